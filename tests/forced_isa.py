"""Runs Python under another instruction set: every x86 path on one machine, each with its own compiled kernels.

    done = python("avx2", "-c", "...")                      a script
    done = python("plain", "-m", "pytest", "tests/unit/infer/kernels/products/test_products.py", "-k", "q4_0")

Paths that this machine cannot execute can still be compiled: `assembly` returns LLVM's code of a kernel.
"""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

ROOT = Path(__file__).resolve().parent.parent
_V2 = "64bit cmov cx8 cx16 fxsr mmx popcnt sahf sse sse2 sse3 ssse3 sse4.1 sse4.2 crc32"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe"
FEATURES = {
    "plain": _V2,
    "avx2": _V3,
    "avx2-vnni": f"{_V3} avxvnni",
    "avx512-vnni": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl avx512vnni",
    "avx512-bf16": f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl avx512vnni avx512bf16",
}
ran: set[str] = set()  # other paths than the native one that the current test has executed; see tests/conftest.py


def environment(isa: str) -> dict[str, str]:
    """Variables that make numba, and thus our code, take this path."""
    return {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in FEATURES[isa].split())}


def executable(isa: str) -> bool:
    """Whether this machine has the path's instructions."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return False
    has = {name for name, on in llvm.get_host_cpu_features().items() if on}
    return has.issuperset(FEATURES[isa].split())


def require(isa: str) -> None:
    """Skip the test if the path cannot be executed."""
    if not executable(isa):
        pytest.skip(f"this processor does not execute {isa}")


def python(isa: str, *arguments: str, timeout: float = 500) -> subprocess.CompletedProcess[str]:
    """Run Python in the root of the checkout. Kernels are cached as usual, in the path's folder."""
    ran.add(isa)
    return _python(isa, *arguments, timeout=timeout)


def _python(isa: str, *arguments: str, timeout: float = 500) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=forced_environment(isa),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def forced_environment(isa: str) -> dict[str, str]:
    """This process's environment with the path forced and tests/ importable."""
    places = [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]
    return {**os.environ, **environment(isa), "PYTHONPATH": os.pathsep.join(filter(None, places))}


def assembly(isa: str, kernel: str) -> str:
    """Assembly of `module:NAME` (a kernel, or an expression for one) for the path; runs nothing."""
    module, _, name = kernel.partition(":")
    script = (
        f"import {module} as m; from hybrid.infer.kernels.build.compiler import assembly; print(assembly(m.{name}))"
    )
    done = _python(isa, "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout
