"""The features of the CPU that numba compiles for, and the code path that they select.

The features come from numba's own target (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override it), so a lesser path can be
forced on any machine, and cached machine code always fits its key.
"""

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm


@dataclass(frozen=True)
class ISA:
    """Target of the emitter: architecture, vector width in 32-bit lanes, and how 8-bit integers are multiplied.

    dot   'vnni'  x86 vpdpbusd: u8 x s8, four products per lane
          'avx2'  x86 vpmaddwd / vpmaddubsw
          'neon'  arm64 sdot: s8 x s8, four products per lane
          'plain' widening multiplications, compiled as LLVM chooses
    bf16  vdpbf16ps pays: BF16 weights are multiplied with activations rounded to BF16, except in exact precision
    i8mm  arm64 smmla: products of two rows with two columns, eight deep, for many columns
    near  the cache into which products with single columns prefetch their weights, 3: first level, 2: second level
    """

    name: str
    arch: str
    lanes: int
    dot: str
    bf16: bool = False
    i8mm: bool = False
    near: int = 2

    @property
    def x86(self) -> bool:
        return self.arch == "x86"


# Zen 4 generates 5 to 18 % faster with the first level than with the second; Zen 5 and Zen 3 showed no difference.
AVX512_BF16 = ISA("avx512-bf16", "x86", 16, "vnni", bf16=True, near=3)
AVX512_VNNI = ISA("avx512-vnni", "x86", 16, "vnni", near=3)
AVX_VNNI = ISA("avx2-vnni", "x86", 8, "vnni")
AVX2 = ISA("avx2", "x86", 8, "avx2")
PLAIN_X86 = ISA("plain", "x86", 8, "plain")
# 8 lanes are two registers: the tiles and the order of attention's sums are the same as for AVX2.
NEON = ISA("neon", "arm64", 8, "neon")
NEON_I8MM = ISA("neon-i8mm", "arm64", 8, "neon", i8mm=True)
PLAIN_ARM = ISA("plain", "arm64", 8, "plain")
# Code paths of x86, best first, each with the LLVM features that its code uses.
PATHS: tuple[tuple[ISA, tuple[str, ...]], ...] = (
    (AVX512_BF16, ("avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16")),
    (AVX512_VNNI, ("avx512f", "avx512bw", "avx512vl", "avx512vnni")),
    (AVX_VNNI, ("avx2", "fma", "f16c", "avxvnni")),
    (AVX2, ("avx2", "fma", "f16c")),
    (PLAIN_X86, ()),
)
# LLVM's names of processors with Golden Cove or later cores. Measured on one thread of an Emerald Rapids: vdpbf16ps 89
# GFLOP/s, fma of f32 170. So BF16 weights are multiplied with f32 there, as on the other paths. Twice the prefetch
# distance made single columns 1.1 to 1.25 times as fast (Q8_0, Q4_K, F16, with 1 and 16 threads; 6, 12 and 16 kB are
# slower).
GOLDEN_COVE = {"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"}
# The structure of AVX512_BF16, NEON and NEON_I8MM without their instructions, for tests on any machine.
PLAIN_WIDE = ISA("plain-wide", "any", 16, "vnni-emulated", bf16=True, near=3)
PLAIN_NEON = ISA("plain-neon", "any", 8, "neon-emulated")
PLAIN_I8MM = ISA("plain-i8mm", "any", 8, "neon-emulated", i8mm=True)
# LLVM turns this into `sdot` if its target has it.
_SDOT_PROBE = """
define i32 @probe(<16 x i8> %a, <16 x i8> %b) {
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %m = mul <16 x i32> %x, %y
  %r = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %m)
  ret i32 %r
}
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
"""


# LLVM's names of features of arm64. Linux tells them by bits of getauxval's AT_HWCAP and AT_HWCAP2 (uapi/asm/hwcap.h of
# arm64), macOS by keys of sysctl (Apple: Determining Instruction Set Characteristics).
_AUXILIARY = {"dotprod": (16, 1 << 20), "i8mm": (26, 1 << 13)}
_SYSCTL = {"dotprod": "hw.optional.arm.FEAT_DotProd", "i8mm": "hw.optional.arm.FEAT_I8MM"}


def cpu_features() -> frozenset[str]:
    """LLVM's names of the CPU features that kernels are compiled for."""
    forced = os.environ.get("NUMBA_CPU_FEATURES")
    if forced is None:
        return frozenset(k for k, on in llvm.get_host_cpu_features().items() if on) | system_features()
    return frozenset(t[1:] for t in forced.split(",") if t.startswith("+"))


@cache
def system_features() -> frozenset[str]:
    """Features of an arm64 that LLVM may omit and the system names: `dotprod` and `i8mm` (Linux and macOS)."""
    if not llvm.get_process_triple().startswith(("aarch64", "arm64")) or sys.platform not in ("linux", "darwin"):
        return frozenset()
    system = ctypes.CDLL(None)
    if sys.platform == "linux":
        system.getauxval.argtypes, system.getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
        return frozenset(name for name, (kind, bit) in _AUXILIARY.items() if system.getauxval(kind) & bit)
    return frozenset(name for name, key in _SYSCTL.items() if _sysctl(system, key))


def _sysctl(system: ctypes.CDLL, key: str) -> bool:
    """Whether macOS knows this number and it is not 0."""
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    failed = system.sysctlbyname(key.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return not failed and value.value != 0


def cpu_target() -> str:
    """LLVM's name of the CPU that numba compiles for, e.g. 'znver3'."""
    return os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()


def has_sdot(triple: str, cpu: str, features: frozenset[str]) -> bool:
    """Whether LLVM uses aarch64's `sdot` when it compiles for this target.

    LLVM 22 omits `dotprod` on Linux and names no features on macOS, but derives `sdot` from the CPU's name. Where the
    system does not name the features either (`system_features`), NUMBA_CPU_FEATURES=+neon,+dotprod states it.
    """
    if "dotprod" in features:
        return True
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_SDOT_PROBE)
    module.triple = triple
    flags = ",".join(f"+{name}" for name in sorted(features))
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=flags, opt=2)
    return "sdot" in target.emit_assembly(module)


@cache
def host() -> ISA:
    """The best path for the CPU that numba compiles for."""
    triple = llvm.get_process_triple()
    if triple.startswith(("aarch64", "arm64")):
        if not has_sdot(triple, cpu_target(), cpu_features()):
            return PLAIN_ARM
        return NEON_I8MM if "i8mm" in cpu_features() else NEON
    paths = PATHS[1:] if cpu_target() in GOLDEN_COVE else PATHS
    return next(isa for isa, needed in paths if cpu_features().issuperset(needed))


def prefetch_ahead() -> int:
    """Prefetch distance of loops over memory, in bytes."""
    return 8192 if cpu_target() in GOLDEN_COVE else 4096


def has(isa: ISA, feature: str) -> bool:
    """Whether code for path `isa` may use a feature outside the path's list: only if the path is the host's and its CPU
    has the feature."""
    return isa == host() and feature in cpu_features()


def used_features() -> tuple[str, ...]:
    """The features that select the path `host()` and that its code uses."""
    if host().dot == "neon":
        return ("neon", "dotprod", "i8mm") if host().i8mm else ("neon", "dotprod")
    return dict(PATHS).get(host(), ())
