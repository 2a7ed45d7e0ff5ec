"""The machine code that LLVM makes of a piece of a kernel, also for other processors than this machine's.

text = assembly(gemv.make_int_gemv(kind, NEON), NEON, ARM)
loop = loop_with(text, "sdot")
"""

import re
from dataclasses import dataclass

import llvmlite.binding as llvm
from llvmlite import ir

from hybrid.infer.kernels.emit.emitter import I64, VOID, Emitter, Piece
from hybrid.infer.kernels.emit.isa import ISA


@dataclass(frozen=True)
class Machine:
    triple: str
    cpu: str
    features: str = ""


ARM = Machine("aarch64-unknown-linux-gnu", "generic", "+neon,+dotprod")
ARM_I8MM = Machine(ARM.triple, ARM.cpu, f"{ARM.features},+i8mm")


def x86(cpu: str, features: str = "") -> Machine:
    return Machine("x86_64-unknown-linux-gnu", cpu, features)


def assembly(piece: Piece, isa: ISA, machine: Machine) -> str:
    """Assembly of the piece as a function of i64 arguments, optimized at numba's level."""
    arguments = [k for k in piece.sig.split("->")[0].split(",") if k]
    assert set(arguments) <= {"i64"}, piece.sig
    module = ir.Module("piece")
    module.triple = machine.triple
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * len(arguments)), "piece")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    piece.body(Emitter(builder, isa), *function.args)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return str(target.emit_assembly(parsed))


def innermost_loops(text: str) -> list[list[str]]:
    """The instructions of each loop without an inner loop: from its label to the last branch back to it."""
    lines = [re.split(r"//|#", line)[0].strip() if "\t" in line else line.strip() for line in text.splitlines()]
    lines = [line.replace("\t", " ") for line in lines]
    label_at = {line.split(":")[0]: k for k, line in enumerate(lines) if re.match(r"\.?L[\w$]+:", line)}
    loops: dict[int, int] = {}
    for k, line in enumerate(lines):
        start = label_at.get(line.replace(",", " ").split()[-1]) if line else None
        if start is not None and start < k:
            loops[start] = k
    inner = [(i, k) for i, k in loops.items() if not any(i < j <= k for j in loops)]
    return [[x for x in lines[i + 1 : k + 1] if x and ":" not in x and not x.startswith(".")] for i, k in inner]


def loop_with(text: str, instruction: str) -> list[str]:
    """The innermost loop that has the instruction most often."""
    loops = innermost_loops(text)
    best = max(loops, key=lambda loop: count(loop, instruction), default=[])
    assert count(best, instruction), f"no innermost loop has {instruction}"
    return best


def count(loop: list[str], instruction: str) -> int:
    """The number of lines that begin with `instruction`, after prefixes such as {vex}."""
    return sum(re.sub(r"^\{\w+\} *", "", line).startswith(instruction) for line in loop)


def spills(loop: list[str]) -> list[str]:
    """The lines that store vectors to the stack or load them from it."""
    return [x for x in loop if re.search(r"\bq\d+.*\[sp|%[xyz]mm.*\(%rsp|\(%rsp.*%[xyz]mm", x)]
