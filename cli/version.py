"""Versions and the code path of this processor, for bug reports."""

import platform
from importlib.metadata import PackageNotFoundError, version


def version_text() -> str:
    """The two lines of `hybrid --version`."""
    packages = ", ".join(f"{name} {_of(name)}" for name in ("numba", "llvmlite", "numpy"))
    system = f"{platform.system()} {platform.machine()}"
    return f"hybrid {_of('hybrid-lm')} (Python {platform.python_version()}, {packages}, {system})\n{code_path()}"


def code_path() -> str:
    """`code path avx2 (avx2, fma, f16c) on AMD EPYC (znver3)`"""
    from hybrid.infer.bench.machine import cpu_name
    from hybrid.infer.kernels.emit.isa import host, used_features

    used = f" ({', '.join(used_features())})" if used_features() else ""
    return f"code path {host().name}{used} on {cpu_name()}"


def _of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
