"""Measures the machine's limits, so that a kernel's rate can be stated as a share of them.

Small loops in LLVM IR, compiled for this CPU in some milliseconds: reading memory, f32 multiply-add in registers, and
8-bit (and BF16) dot products in registers. A data sheet does not have the speed of a virtual machine today.
"""

import ctypes
import platform
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..kernels.emit.isa import ISA, host, prefetch_ahead, system_features
from ..program.threads import default_threads

# bytes; larger than the last-level cache of all but a few servers
_BUFFER = 512 << 20
_READ_STEP = 512
_REPEATS = 12
_READ_LOOPS = ("read_loop", "read_ahead_loop")
DOT_WAYS = ("vnni", "ub", "s16", "sdot", "smmla", "pairs")


@dataclass(frozen=True)
class Machine:
    """Measured limits with `n_threads` threads. GB and Gop are 1e9; a multiply-add counts as two operations."""

    cpu: str
    isa: str
    n_threads: int
    read_gb_s: float
    f32_gflop_s: float
    dot_gop_s: dict[str, float]
    """Rates of 8-bit products by scheme (kernels/products/gemm_schemes.py), and of pairs of BF16; empty if the CPU has
    no instruction for them."""

    @property
    def int8_gop_s(self) -> float | None:
        return max((rate for way, rate in self.dot_gop_s.items() if way != "pairs"), default=None)


def cpu_name() -> str:
    """The system's name of the CPU, with LLVM's name of its type: 'AMD EPYC (znver3)'."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    elif platform.system() == "Darwin":
        sysctl = subprocess.run(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        name = sysctl.stdout.strip() or name
    return f"{name} ({llvm.get_host_cpu_name()})"


def measure_machine(n_threads: int = 0) -> Machine:
    """Measure all limits. Takes about a second; some seconds with many threads."""
    n_threads = n_threads or default_threads()
    return Machine(
        cpu_name(),
        host().name,
        n_threads,
        read_bandwidth(n_threads),
        _peak("fma_loop", n_threads) or 0.0,
        {way: rate for way in DOT_WAYS if (rate := _peak(f"{way}_loop", n_threads)) is not None},
    )


def read_bandwidth(n_threads: int = 0) -> float:
    """GB/s at which `n_threads` threads together read memory in sequence: the best of some passes over 512 MB, with and
    without prefetching (Zen 5, 2 threads: 43 GB/s without; with it, as fast as the products)."""
    n_threads = n_threads or default_threads()
    buffer = np.ones(_BUFFER // 8, np.int64)
    share, times = _BUFFER // n_threads // _READ_STEP, _times(n_threads)

    def work(read: _Loop, i: int) -> None:
        for _ in range(times):
            read(buffer.ctypes.data + i * share * _READ_STEP, share)

    seconds = min(_best(n_threads, partial(work, _loops()[name]), repeats=_REPEATS // 2) for name in _READ_LOOPS)
    return times * n_threads * share * _READ_STEP / seconds / 1e9


def _times(n_threads: int) -> int:
    """Factor on the work of each thread, because the measured time includes starting them, 0.1 ms each."""
    return max(1, n_threads // 4)


def _peak(name: str, n_threads: int) -> float | None:
    """Operations per ns of a loop in registers; None if this CPU does not have it."""
    loop = _loops().get(name)
    if loop is None:
        return None
    n = 1 << 16
    while _best(1, partial(_run, loop, n), repeats=1) < 0.01:
        n *= 2
    n *= _times(n_threads)
    seconds = _best(n_threads, partial(_run, loop, n), repeats=max(4, _REPEATS // _times(n_threads)))
    return n_threads * n * loop.operations / seconds / 1e9


def _run(loop: "_Loop", n: int, thread: int) -> int:
    return loop(1, n)


def _best(n_threads: int, work: Callable[[int], object], repeats: int) -> float:
    """Shortest wall time of `repeats` runs in which thread i of n_threads does work(i). ctypes releases the GIL."""
    best = float("inf")
    for _ in range(repeats):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, n_threads)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - start)
    return best


class _Loop:
    """Compiled `i64 name(i64, i64 n)`; `operations` per iteration."""

    def __init__(self, address: int, operations: int, keep: object):
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
        self.operations = operations
        self._keep = keep

    def __call__(self, first: int, n: int) -> int:
        return int(self._call(first, n))


@cache
def _loops() -> dict[str, _Loop]:
    bodies = _bodies(host())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=",".join([llvm.get_host_cpu_features().flatten(), *(f"+{name}" for name in system_features())]),
        opt=3,
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_assembly(bodies)), target)
    engine.finalize_object()
    keep: Any = (engine, target)
    return {name: _Loop(engine.get_function_address(name), body.operations, keep) for name, body in bodies.items()}


def _assembly(bodies: dict[str, "_Body"]) -> str:
    return "\n".join(body.text(name) for name, body in bodies.items())


@dataclass(frozen=True)
class _Body:
    """A loop over `chains` independent values: step(k) returns the LLVM IR that computes %b{k} from %a{k}."""

    kind: str
    """Type of a value."""
    chains: int
    operations: int
    step: Callable[[int], str]
    entry: str = ""
    declare: str = ""

    def text(self, name: str) -> str:
        """LLVM IR of `i64 name(i64 first, i64 n)`: n iterations; `first`: the address to read memory from."""
        every = range(self.chains)
        return "\n".join(
            [
                self.declare,
                f"define i64 @{name}(i64 %first, i64 %n) {{",
                "entry:",
                "  %p = inttoptr i64 %first to ptr",
                self.entry,
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
                *(f"  %a{k} = phi {self.kind} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in every),
                *(self.step(k) for k in every),
                "  %next = add i64 %i, 1",
                "  %more = icmp ult i64 %next, %n",
                "  br i1 %more, label %loop, label %end",
                "end:",
                # the result must depend on every chain, or LLVM drops it
                *(f"  %r{k} = call i64 @any_{name}({self.kind} %b{k})" for k in every),
                "  %s0 = add i64 0, 0",
                *(f"  %s{k + 1} = xor i64 %s{k}, %r{k}" for k in every),
                f"  ret i64 %s{self.chains}",
                "}",
                f"define private i64 @any_{name}({self.kind} %v) alwaysinline {{",
                f"  %w = bitcast {self.kind} %v to <{self._qwords} x i64>",
                f"  %x = call i64 @llvm.vector.reduce.xor.v{self._qwords}i64(<{self._qwords} x i64> %w)",
                "  ret i64 %x",
                "}",
            ]
        )

    @property
    def _qwords(self) -> int:
        count, _, element = self.kind.strip("<>").split()
        return int(count) * {"i64": 8, "i32": 4, "i16": 2, "float": 4}[element] // 8


def _bodies(isa: ISA) -> dict[str, _Body]:
    lanes = isa.lanes
    bodies = {"read_loop": _read_body(), "read_ahead_loop": _read_body(prefetch_ahead()), "fma_loop": _fma_body(lanes)}
    return bodies | {f"{way}_loop": body for way, body in _dot_bodies(isa).items()}


def _read_body(ahead: int = 0) -> _Body:
    """Reads in sequence. ahead: distance in bytes of a prefetch into the first-level cache; 0: no prefetch."""

    def step(k: int) -> str:
        """Read 64 of the 512 bytes of an iteration."""
        prefetch = (
            f"\n  %r{k}_ahead = getelementptr i8, ptr %q{k}, i64 {ahead}\n"
            f"  call void @llvm.prefetch.p0(ptr %r{k}_ahead, i32 0, i32 3, i32 1)"
        )
        return (
            f"  %o{k} = mul i64 %i, {_READ_STEP}\n  %p{k} = getelementptr i8, ptr %p, i64 %o{k}\n"
            f"  %q{k} = getelementptr i8, ptr %p{k}, i64 {64 * k}\n"
            f"  %v{k} = load <8 x i64>, ptr %q{k}, align 8\n  %b{k} = add <8 x i64> %a{k}, %v{k}"
            f"{prefetch if ahead else ''}"
        )

    declare = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)" if ahead else ""
    return _Body("<8 x i64>", 8, 0, step, declare=declare)


def _fma_body(lanes: int) -> _Body:
    # 12 chains cover a latency of 4 cycles on three pipes and fit into 16 registers
    kind, chains = f"<{lanes} x float>", 12
    entry = (
        f"  %f = sitofp i64 %first to float\n  %e = insertelement {kind} zeroinitializer, float %f, i32 0\n"
        f"  %m = shufflevector {kind} %e, {kind} zeroinitializer, <{lanes} x i32> zeroinitializer"
    )
    call = f"call {kind} @llvm.fma.v{lanes}f32({kind} %m, {kind} %m, {kind} %a"
    return _Body(kind, chains, 2 * lanes * chains, lambda k: f"  %b{k} = {call}{k})", entry)


def _neon_body(instruction: str, products: int) -> _Body:
    quads, octets, name = "<4 x i32>", "<16 x i8>", f"@llvm.aarch64.neon.{instruction}.v4i32.v16i8"
    entry = (
        f"  %t = trunc i64 %first to i8\n  %e = insertelement {octets} zeroinitializer, i8 %t, i32 0\n"
        f"  %u = shufflevector {octets} %e, {octets} zeroinitializer, {octets.replace('i8', 'i32')} zeroinitializer"
    )
    step = lambda k: f"  %b{k} = call {quads} {name}({quads} %a{k}, {octets} %u, {octets} %u)"
    return _Body(quads, 16, 2 * products * 16, step, entry, f"declare {quads} {name}({quads}, {octets}, {octets})")


def _pairs_body() -> _Body:
    kind, bf16s, name = "<16 x float>", "<32 x bfloat>", "@llvm.x86.avx512bf16.dpbf16ps.512"
    entry = (
        "  %t = trunc i64 %first to i32\n  %e = insertelement <16 x i32> zeroinitializer, i32 %t, i32 0\n"
        "  %f = shufflevector <16 x i32> %e, <16 x i32> zeroinitializer, <16 x i32> zeroinitializer\n"
        f"  %u = bitcast <16 x i32> %f to {bf16s}"
    )
    step = lambda k: f"  %b{k} = call {kind} {name}({kind} %a{k}, {bf16s} %u, {bf16s} %u)"
    return _Body(kind, 12, 4 * 16 * 12, step, entry, f"declare {kind} {name}({kind}, {bf16s}, {bf16s})")


def _dot_bodies(isa: ISA) -> dict[str, _Body]:
    """Products of 8-bit integers, and of pairs of BF16. On AVX2 one factor is the running sum, which keeps LLVM from
    moving the products out of the loop."""
    if isa.dot == "neon":
        return {"sdot": _neon_body("sdot", 16), **({"smmla": _neon_body("smmla", 32)} if isa.i8mm else {})}
    if not isa.x86 or isa.dot not in ("vnni", "avx2"):
        return {}
    lanes, chains = isa.lanes, 12
    dwords, words, octets = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"
    splat = (
        f"  %t = trunc i64 %first to i8\n  %e = insertelement {octets} zeroinitializer, i8 %t, i32 0\n"
        f"  %u = shufflevector {octets} %e, {octets} zeroinitializer, <{4 * lanes} x i32> zeroinitializer\n"
        f"  %w = bitcast {octets} %u to {words}"
    )
    if isa.dot == "vnni":
        name = f"@llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        declare = f"declare {dwords} {name}({dwords}, {octets}, {octets})"
        call = f"call {dwords} {name}({dwords} %a"
        step = lambda k: f"  %b{k} = {call}{k}, {octets} %u, {octets} %u)"
        of_bf16 = {"pairs": _pairs_body()} if isa.bf16 else {}
        return {"vnni": _Body(dwords, chains, 8 * lanes * chains, step, splat, declare), **of_bf16}

    def ub(k: int) -> str:
        return (
            f"  %c{k} = bitcast {words} %a{k} to {octets}\n"
            f"  %d{k} = call {words} @llvm.x86.avx2.pmadd.ub.sw({octets} %u, {octets} %c{k})\n"
            f"  %b{k} = add {words} %a{k}, %d{k}"
        )

    def s16(k: int) -> str:
        return (
            f"  %c{k} = bitcast {dwords} %a{k} to {words}\n"
            f"  %d{k} = call {dwords} @llvm.x86.avx2.pmadd.wd({words} %w, {words} %c{k})\n"
            f"  %b{k} = add {dwords} %a{k}, %d{k}"
        )

    declare_ub = f"declare {words} @llvm.x86.avx2.pmadd.ub.sw({octets}, {octets})"
    declare_s16 = f"declare {dwords} @llvm.x86.avx2.pmadd.wd({words}, {words})"
    return {
        "ub": _Body(words, chains, 8 * lanes * chains, ub, splat, declare_ub),
        "s16": _Body(dwords, chains, 4 * lanes * chains, s16, splat, declare_s16),
    }
