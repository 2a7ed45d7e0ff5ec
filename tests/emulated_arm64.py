"""Runs all kernels as aarch64 code in an emulator: for tests of kernels and whole models on another machine.

    python -m pytest -p emulated_arm64 tests/unit/infer/kernels/products/test_products.py

As a pytest plugin (or after `install()`) the process uses the code path NEON. numba stops before generating machine
code, LLVM compiles numba's output for aarch64, and `unicorn` executes it, one thread after the other. The emulated
memory is this process's memory at the same addresses, so records may point anywhere. Linux only.
"""

import hashlib
import struct
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

TRIPLE = "aarch64-unknown-linux-gnu"
FEATURES = "+neon,+dotprod"
_CODE, _STACK, _STACK_BYTES = 0x10000000, 0x8000000, 4 << 20
_RETURN = _STACK - 4096
_CHUNK = 1 << 20


def missing() -> str:
    """Why this machine cannot emulate; empty if it can."""
    try:
        import unicorn  # noqa: F401
    except ImportError:
        return "no emulator of aarch64: pip install unicorn"
    return "" if Path("/proc/self/maps").exists() else "the emulator's memory needs /proc/self/maps"


class Emulator:
    """One aarch64 processor whose memory is this process's."""

    def __init__(self) -> None:
        import unicorn
        from unicorn import arm64_const

        self._uc, self._arm = unicorn, arm64_const
        self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._cpu.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
        self._cpu.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # do not trap floats and vectors
        self._cpu.mem_map(_STACK, _STACK_BYTES)
        self._cpu.hook_add(unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED, self._share)
        self._end = _CODE
        self._known: dict[str, int] = {}
        module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{RUNTIME}')
        self._known = self.load(target().emit_object(module))

    def load(self, code: bytes) -> dict[str, int]:
        """Link an object file into the memory; return the addresses of the symbols that it defines."""
        image, defined = link(code, self._end, self._known)
        size = (len(image) + 4095) // 4096 * 4096
        self._cpu.mem_map(self._end, size)
        self._cpu.mem_write(self._end, bytes(image))
        self._end += size
        return defined

    def call(self, address: int, *arguments: int) -> None:
        for k, value in enumerate(arguments):
            self._cpu.reg_write(self._arm.UC_ARM64_REG_X0 + k, value & (1 << 64) - 1)
        self._cpu.reg_write(self._arm.UC_ARM64_REG_SP, _STACK + _STACK_BYTES - 256)
        self._cpu.reg_write(self._arm.UC_ARM64_REG_LR, _RETURN)
        self._cpu.emu_start(address, _RETURN)

    def _share(self, _cpu: Any, _access: int, address: int, _size: int, _value: int, _data: Any) -> bool:
        """Map this process's memory at an address of its first use. False: nothing is mapped there."""
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, last = (int(v, 16) for v in line.split(" ", 1)[0].split("-"))
            if first <= address < last:
                chunk = address // _CHUNK * _CHUNK
                start, end = max(first, chunk), min(last, chunk + _CHUNK)
                try:
                    self._cpu.mem_map_ptr(start, end - start, self._uc.UC_PROT_ALL, start)
                except self._uc.UcError:  # a part is mapped already
                    start = address // 4096 * 4096
                    self._cpu.mem_map_ptr(start, 4096, self._uc.UC_PROT_ALL, start)
                return True
        return False


# LLVM replaces such loops by calls of these functions; volatile prevents that within them.
RUNTIME = """
define ptr @memset(ptr %p, i32 %v, i64 %n) {
entry:
  %byte = trunc i32 %v to i8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %at = getelementptr i8, ptr %p, i64 %i
  store volatile i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %loop
end:
  ret ptr %p
}
define ptr @memcpy(ptr %p, ptr %q, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %from = getelementptr i8, ptr %q, i64 %i
  %at = getelementptr i8, ptr %p, i64 %i
  %byte = load volatile i8, ptr %from
  store volatile i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %loop
end:
  ret ptr %p
}
"""
# exceptions of numba, waiting in the executor, and the C library's logarithm
_NEVER_CALLED = ("numba_", "NRT_", "Py", "_Py", "syscall", "sched_yield", "log")
# ADR_GOT_PAGE and LD64_GOT_LO12_NC become these relocations, of the GOT slot
_FROM_SLOT = {311: 275, 312: 286}


def link(code: bytes, base: int, known: dict[str, int]) -> tuple[bytearray, dict[str, int]]:
    """The image of a 64-bit ELF object for address `base`, and the addresses of its symbols.

    It may refer to `known` symbols; symbols of _NEVER_CALLED get an address that cannot be called. Only relocations of
    the small code model are supported (ELF for the Arm 64-bit Architecture).
    """
    table, size, count = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<HH", code, 58)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + k * size) for k in range(count)]
    image, at = bytearray(), {}
    for k, (_, kind, flags, _, offset, nbytes, _, _, align, _) in enumerate(sections):
        if flags & 2:  # occupies memory
            image += bytes(-len(image) % max(align, 1))
            at[k] = base + len(image)
            image += bytes(nbytes) if kind == 8 else code[offset : offset + nbytes]
    symbols: list[int] = []
    defined: dict[str, int] = {}
    for _, kind, _, _, offset, nbytes, link, _, _, _ in sections:
        if kind != 2:
            continue
        for k in range(0, nbytes, 24):
            text, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", code, offset + k)
            start = sections[link][4] + text
            name = code[start : code.index(b"\0", start)].decode()
            if section in at:
                symbols.append(at[section] + value)
                defined[name] = symbols[-1]
            else:
                assert section or not name or name in known or name.startswith(_NEVER_CALLED), f"kernels need {name}"
                symbols.append(known.get(name, base - 4096))
    slots: dict[int, int] = {}  # slots (GOT) hold addresses of symbols that may be anywhere
    for _, kind, _, _, offset, nbytes, _, target, _, _ in sections:
        if kind != 4 or target not in at:
            continue
        for k in range(0, nbytes, 24):
            place, info, addend = struct.unpack_from("<QQq", code, offset + k)
            symbol, kind = info >> 32, info & 0xFFFFFFFF
            value = symbols[symbol] + addend
            if kind in _FROM_SLOT:
                if symbol not in slots:
                    image += bytes(-len(image) % 8)
                    slots[symbol] = base + len(image)
                    image += struct.pack("<Q", value)
                kind, value = _FROM_SLOT[kind], slots[symbol]
            _relocate(image, base, at[target] + place, kind, value)
    return image, defined


def _relocate(image: bytearray, base: int, place: int, kind: int, value: int) -> None:
    (word,) = struct.unpack_from("<I", image, place - base)
    scaled = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD_ABS_LO12_NC, LDST8 to LDST128_ABS_LO12_NC
    if kind in (282, 283):  # JUMP26, CALL26
        word |= (value - place) >> 2 & 0x3FFFFFF
    elif kind == 275:  # ADR_PREL_PG_HI21
        pages = (value >> 12) - (place >> 12)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in scaled:
        word |= (value & 0xFFF) >> scaled[kind] << 10
    elif kind == 261:  # PREL32: unwinding, which is not used
        return
    elif kind == 257:  # ABS64
        struct.pack_into("<Q", image, place - base, value)
        return
    else:
        raise AssertionError(f"relocation {kind} of aarch64 is not known here")
    struct.pack_into("<I", image, place - base, word)


def target(features: str = FEATURES) -> Any:
    """LLVM's target machine."""
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu="generic", features=features, opt=3, reloc="static", codemodel="small"
    )


def object_code(kernel: Any, features: str = FEATURES) -> tuple[bytes, str]:
    """Compile a kernel for aarch64: an object file and the name of its function."""
    from hybrid.infer.kernels.build.compiler import optimized

    compiled, symbol = optimized(kernel)
    machine = target(features)
    text = str(compiled)
    lines = [line for line in text.splitlines() if not line.startswith(("target triple", "target datalayout"))]
    module = llvm.parse_assembly("\n".join(lines))
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    module.verify()
    return machine.emit_object(module), symbol


class _Machine:
    """Holds the emulator of this process."""

    make: Any = Emulator
    features: str = FEATURES
    emulator: Any = None


# ignores kernels that another version of this file compiled
_PREFIX = f"aarch64-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"


def _compile(kernel: Any) -> None:
    """Stands in for Kernel.compile; the address is the emulator's. The object cache of this machine keeps the code, and
    removes it like other kernels that are no longer used."""
    from hybrid.infer.kernels.build.object_cache import CompiledObject, read, write

    _Machine.emulator = _Machine.emulator or _Machine.make()
    name = f"{_PREFIX}{_Machine.features.replace('+', '').replace(',', '')}-{kernel.file}"
    if (compiled := read(name)) is None:
        code, entry = object_code(kernel, _Machine.features)
        write(name, compiled := CompiledObject(entry, code))
    kernel.use(_Machine.emulator.load(compiled.code)[compiled.symbol], None, from_cache=False)


def _call(address: int, record: int, tid: int, nth: int) -> None:
    assert _Machine.emulator is not None
    _Machine.emulator.call(address, record, tid, nth)


def run(kernel: Any, fields: np.ndarray, n_threads: int = 1) -> None:
    """Stands in for reference.run_kernel.run."""
    address = kernel.address
    for tid in range(n_threads):
        _call(address, fields.ctypes.data, tid, n_threads)


class Pool:
    """Stands in for hybrid.infer.program.threads.Pool, whose executor needs concurrent threads."""

    def __init__(self, n: int, cpus: tuple[int, ...] = (), nodes: tuple[int, ...] = ()) -> None:
        self.n = n

    def run(self, program: Any, *, stoppable: bool, stop: Any = None, stamps: int = 0) -> None:
        program.counters[:] = 0
        for record in program.records[: len(program.ops)]:
            for tid in range(self.n):
                _call(int(record[0]), record[1:].ctypes.data, tid, self.n)

    def close(self) -> None:
        pass


def install(path: Any = None, features: str = FEATURES, emulator: Any = Emulator) -> None:
    """Switch to aarch64 kernels, of this code path (None: NEON). Call it before importing hybrid.infer.kernels."""
    import numba

    from hybrid.infer.kernels.emit import isa

    path = path or isa.NEON
    _Machine.make, _Machine.features = emulator, features
    isa.host = lambda: path  # type: ignore[assignment]
    from reference import run_kernel

    from hybrid.infer.engine import engine
    from hybrid.infer.kernels.build import jit

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    numba.njit("int64(int64)")(lambda x: x)  # compile the parts of numba's runtime for the real processor first
    jit.Kernel.compile = _compile  # type: ignore[method-assign]
    jit.folder = lambda: None
    jit.load_cached = lambda kernels: [k for k in kernels if not k.ready]
    engine.Pool = Pool  # type: ignore[misc,assignment]
    run_kernel.run = run


def pytest_configure() -> None:
    assert not missing(), missing()
    install()
