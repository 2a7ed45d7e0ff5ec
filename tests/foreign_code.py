"""Pieces of kernels compiled for a processor that this machine need not have, and aarch64 code executed in an emulator.

    text = assembly(piece, NEON, ARM)                   what LLVM makes of a piece
    call = Arm64(piece, NEON)                           call(array, 3, other): arrays are copied in and back
    call = Native(piece)                                the same piece on this machine, its own path

The pieces are what kernels are made of (emit.py); the thin layer of numba around them has no instruction of a target.
"""

import ctypes
import re
import struct
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hybrid.infer.kernels.emit import I64, VOID, Emitter, Piece
from hybrid.infer.kernels.isa import ISA, NEON, host
from llvmlite import ir


@dataclass(frozen=True)
class Machine:
    triple: str
    cpu: str
    features: str = ""


ARM = Machine("aarch64-unknown-linux-gnu", "generic", "+neon,+dotprod")
NATIVE = Machine(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def x86(cpu: str, features: str = "") -> Machine:
    return Machine("x86_64-unknown-linux-gnu", cpu, features)


def _optimized(piece: Piece, isa: ISA, machine: Machine) -> tuple[Any, Any]:
    """The piece as a function `f` of i64 arguments, after LLVM's passes at the level that numba uses."""
    arguments = [k for k in piece.sig.split("->")[0].split(",") if k]
    assert set(arguments) <= {"i64"}, piece.sig
    assert piece.sig.endswith("->void"), piece.sig
    module = ir.Module("piece")
    module.triple = machine.triple
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * len(arguments)), "f")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    piece.body(Emitter(builder, isa), *function.args)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # small: addresses relative to the program counter, which are the ones that `Arm64` knows how to link
    target = llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="static", codemodel="small"
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return parsed, target


def assembly(piece: Piece, isa: ISA, machine: Machine) -> str:
    parsed, target = _optimized(piece, isa, machine)
    return str(target.emit_assembly(parsed))


def innermost_loops(text: str) -> list[list[str]]:
    """Instructions of each loop that has no loop within it: from a label to the last branch back to it."""
    lines = [line.split("//")[0].split("#")[0].strip() for line in text.splitlines()]
    label_at = {line[:-1]: k for k, line in enumerate(lines) if re.fullmatch(r"\.?L[\w$]+:", line)}
    loops: dict[int, int] = {}
    for k, line in enumerate(lines):
        start = label_at.get(line.replace(",", " ").split()[-1]) if line else None
        if start is not None and start < k:
            loops[start] = k
    inner = [(i, k) for i, k in loops.items() if not any(i < j <= k for j in loops)]
    return [[x for x in lines[i : k + 1] if x and not x.endswith(":") and not x.startswith(".")] for i, k in inner]


def loop_with(text: str, instruction: str) -> list[str]:
    """The innermost loop that has the most of an instruction."""
    loops = innermost_loops(text)
    best = max(loops, key=lambda loop: sum(i.startswith(instruction) for i in loop), default=[])
    assert any(i.startswith(instruction) for i in best), f"no innermost loop has {instruction}"
    return best


class Native:
    """A piece on this machine: call(*arguments), arrays as their addresses."""

    def __init__(self, piece: Piece, isa: ISA | None = None) -> None:
        module, target = _optimized(piece, isa or piece.isa or host(), NATIVE)
        self._engine = llvm.create_mcjit_compiler(module, target)
        self._engine.finalize_object()
        self._address = self._engine.get_function_address("f")

    def __call__(self, *arguments: Any) -> None:
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(values))(self._address)(*values)


_CODE, _STACK, _DATA, _RETURN = 0x100000, 0x8000000, 0x10000000, 0x7FF0000
_STACK_BYTES = 1 << 20


class Arm64:
    """A piece compiled for aarch64, in the emulator `unicorn`; the test is skipped where it is not installed."""

    def __init__(self, piece: Piece, isa: ISA = NEON, machine: Machine = ARM) -> None:
        pytest.importorskip("unicorn", reason="no emulator of aarch64: pip install unicorn")
        module, target = _optimized(piece, isa, machine)
        self._image, self._entry = _link(target.emit_object(module), _CODE)

    def __call__(self, *arguments: Any) -> None:
        """Arrays are copied into the emulated memory, each followed by a page that must not be touched, and back."""
        import unicorn
        from unicorn import arm64_const as arm

        emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        emulator.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        emulator.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # floats and vectors are not trapped
        emulator.mem_map(_CODE, _pages(len(self._image)))
        emulator.mem_write(_CODE, bytes(self._image))
        emulator.mem_map(_STACK, _STACK_BYTES)
        place, values, arrays = _DATA, [], []
        for value in arguments:
            if isinstance(value, np.ndarray):
                assert value.flags.c_contiguous
                size = _pages(value.nbytes)
                emulator.mem_map(place, size)
                # what lies after an array shows: the end of the array is the end of its last page, but for alignment
                start = place + (size - value.nbytes) // 64 * 64
                emulator.mem_write(start, value.tobytes())
                arrays.append((start, value))
                values.append(start)
                place += size + 4096
            else:
                values.append(int(value))
        stack = _STACK + _STACK_BYTES - 256
        for k, value in enumerate(values[8:]):
            emulator.mem_write(stack + 8 * k, struct.pack("<q", value))
        for k, value in enumerate(values[:8]):
            emulator.reg_write(arm.UC_ARM64_REG_X0 + k, value & (1 << 64) - 1)
        emulator.reg_write(arm.UC_ARM64_REG_SP, stack)
        emulator.reg_write(arm.UC_ARM64_REG_LR, _RETURN)
        emulator.emu_start(self._entry, _RETURN)
        for start, value in arrays:
            value.view(np.uint8).reshape(-1)[:] = np.frombuffer(emulator.mem_read(start, value.nbytes), np.uint8)


def _pages(nbytes: int) -> int:
    return (nbytes + 4095) // 4096 * 4096 or 4096


def _link(code: bytes, base: int) -> tuple[bytearray, int]:
    """An ELF object of 64 bits -> its image at `base` and the address of `f`. Relocations: ELF for the Arm 64-bit
    Architecture (AAELF64), those that code of the small model has; any other fails."""
    table, size, count = struct.unpack_from("<Q", code, 40)[0], *struct.unpack_from("<HH", code, 58)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [list(struct.unpack_from("<IIQQQQIIQQ", code, table + k * size)) for k in range(count)]
    image, at = bytearray(), {}
    for k, (_, kind, flags, _, offset, nbytes, _, _, align, _) in enumerate(sections):
        if not flags & 2:  # not in memory
            continue
        image += bytes(-len(image) % max(align, 1))
        at[k] = base + len(image)
        image += bytes(nbytes) if kind == 8 else code[offset : offset + nbytes]
    symbols, entry = [], 0
    for _, kind, _, _, offset, nbytes, link, _, _, _ in sections:
        if kind != 2:
            continue
        for k in range(0, nbytes, 24):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", code, offset + k)
            start = sections[link][4] + name
            text = code[start : code.index(b"\0", start)].decode()
            symbols.append((text, at[section] + value if section in at else None))
            if text == "f":
                entry = at[section] + value
    for _, kind, _, _, offset, nbytes, _, target, _, _ in sections:
        if kind != 4 or target not in at or not sections[target][2] & 4:  # only of code
            continue
        for k in range(0, nbytes, 24):
            place, info, addend = struct.unpack_from("<QQq", code, offset + k)
            name, value = symbols[info >> 32]
            assert value is not None, f"the piece calls {name}"
            _relocate(image, at[target] + place, info & 0xFFFFFFFF, value + addend, base)
    return image, entry


def _relocate(image: bytearray, place: int, kind: int, value: int, base: int) -> None:
    (word,) = struct.unpack_from("<I", image, place - base)
    scaled = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD_ABS_LO12_NC, LDST8 to LDST128_ABS_LO12_NC
    if kind in (282, 283):  # JUMP26, CALL26
        word |= (value - place >> 2) & 0x3FFFFFF
    elif kind == 275:  # ADR_PREL_PG_HI21
        pages = (value >> 12) - (place >> 12)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in scaled:
        word |= (value & 0xFFF) >> scaled[kind] << 10
    else:
        raise AssertionError(f"relocation {kind} of aarch64 is not known here")
    struct.pack_into("<I", image, place - base, word)
