"""What the CPU that numba compiles for can do, and which of our code paths that selects.

The features come from numba's own target (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override it), so that a lesser path can
be forced on any machine and the cached machine code always fits the key under which numba stores it.
"""

import os
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm


@dataclass(frozen=True)
class ISA:
    """Target of the emitter: architecture, vector width in 32-bit lanes, and how 8-bit integers are multiplied.

    dot   'vnni'  x86 vpdpbusd: u8 x s8, four products a lane
          'avx2'  x86 vpmaddwd / vpmaddubsw
          'plain' whatever LLVM makes of widening multiplications
    """

    name: str
    arch: str
    lanes: int
    dot: str

    @property
    def x86(self) -> bool:
        return self.arch == "x86"


AVX512_VNNI = ISA("avx512-vnni", "x86", 16, "vnni")
AVX_VNNI = ISA("avx2-vnni", "x86", 8, "vnni")
AVX2 = ISA("avx2", "x86", 8, "avx2")
PLAIN_X86 = ISA("plain", "x86", 8, "plain")
PLAIN_ARM = ISA("plain", "arm64", 8, "plain")
# Code paths of x86, the best first, each with the LLVM features that its code uses.
PATHS: tuple[tuple[ISA, tuple[str, ...]], ...] = (
    (AVX512_VNNI, ("avx512f", "avx512bw", "avx512vl", "avx512vnni")),
    (AVX_VNNI, ("avx2", "fma", "f16c", "avxvnni")),
    (AVX2, ("avx2", "fma", "f16c")),
    (PLAIN_X86, ()),
)
# Same structure as AVX512_VNNI without its instructions, so that its tiles can be tested on any machine.
PLAIN_WIDE = ISA("plain-wide", "any", 16, "vnni-emulated")


def cpu_features() -> frozenset[str]:
    """LLVM names of the features that numba compiles for."""
    forced = os.environ.get("NUMBA_CPU_FEATURES")
    if forced is None:
        return frozenset(k for k, on in llvm.get_host_cpu_features().items() if on)
    return frozenset(t[1:] for t in forced.split(",") if t.startswith("+"))


def cpu_target() -> str:
    """LLVM's name of the CPU that numba compiles for, e.g. 'znver3'."""
    return os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()


@cache
def host() -> ISA:
    """The best path for the CPU that numba compiles for."""
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        return PLAIN_ARM
    return next(isa for isa, needed in PATHS if cpu_features().issuperset(needed))


def used_features() -> tuple[str, ...]:
    """The features that select the path of `host` and that its code uses."""
    return dict(PATHS).get(host(), ())
