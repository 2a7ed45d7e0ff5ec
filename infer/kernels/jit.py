"""Kernels: functions `void(args, tid, nth)` compiled on demand, cached on disk, called by address from a program.

`args` is the address of an op record (int64 fields), `tid` of `nth` threads is calling. A kernel takes its share of
disjoint outputs, allocates nothing and never raises.

numba's disk cache notices a change in a kernel's own file only, not in the emitter or another kernel file that it
inlines; therefore the cache folder is named after a hash of all sources of this package and of the versions involved.
"""

import hashlib
import os
import tempfile
import time
import types as python_types
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature
from platformdirs import user_cache_path

from . import SOURCE_DIGEST

_OPTIONS = {"nopython": True, "error_model": "numpy", "boundscheck": False}
KERNEL_SIGNATURE = "void(int64,int64,int64)"

# A function inlined into the kernels that call it; compiled with them, cached with them.
device = numba.njit(error_model="numpy", boundscheck=False)


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept, or None when no such folder can be written."""
    digest = hashlib.sha256(f"{SOURCE_DIGEST} {numba.__version__} {llvmlite.__version__}".encode())
    folder = user_cache_path("hybrid-lm") / "kernels" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    return folder


class _Compiled(CFunc):
    """A CFunc that tells when the disk cache does not have it and LLVM must work."""

    on_miss: Callable[[], None] | None = None

    def _compile_uncached(self) -> Any:
        if self.on_miss:
            self.on_miss()
        return super()._compile_uncached()  # type: ignore[misc]


class Kernel:
    """A kernel that is compiled, or loaded from the disk cache, when its address is first asked for."""

    def __init__(self, function: Callable[..., Any], signature: str = KERNEL_SIGNATURE) -> None:
        self.function, self.signature, self.name = function, signature, function.__qualname__
        self._compiled: _Compiled | None = None
        self.from_cache = False

    @property
    def ready(self) -> bool:
        return self._compiled is not None

    @property
    def address(self) -> int:
        if self._compiled is None:
            self.compile()
        assert self._compiled is not None
        return int(self._compiled.address or 0)

    def compile(self, on_miss: Callable[[], None] | None = None) -> None:
        """Make the machine code; `on_miss` is called first when it is not in the disk cache."""
        compiled = _Compiled(self.function, normalize_signature(self.signature), {}, dict(_OPTIONS))
        compiled.on_miss = on_miss
        folder = cache_folder()
        if folder is not None:
            outer = getattr(config, "CACHE_DIR")  # noqa: B009  numba makes its options at run time
            setattr(config, "CACHE_DIR", os.fspath(folder))  # noqa: B010
            try:
                compiled.enable_caching()
            except RuntimeError:
                pass  # the source is not a file (an interactive session, a zip): nothing to key the cache by
            finally:
                setattr(config, "CACHE_DIR", outer)  # noqa: B010
        compiled.compile()
        self.from_cache = compiled.cache_hits > 0
        self._compiled = compiled

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def kernel(function: Callable[..., Any]) -> Kernel:
    """@kernel on `def op(a, tid, nth)`."""
    return Kernel(function)


def variant(template: Kernel | Callable[..., Any], name: str, **pieces: Any) -> Kernel:
    """The kernel `template` with some of its globals replaced, e.g. the unpacking of a weight type.

    A closure would do, but numba's cache keys closures by a pickle that changes from process to process.
    """
    source = template.function if isinstance(template, Kernel) else template
    missing = [p for p in pieces if p not in source.__code__.co_names]
    assert not missing, f"{source.__name__} does not use {missing}"
    made = python_types.FunctionType(source.__code__, {**source.__globals__, **pieces}, name, source.__defaults__)
    made.__qualname__ = name
    made.__module__ = source.__module__
    return Kernel(made)


def compile_kernels(kernels: Iterable[Kernel], progress: Callable[[str, int, int], None] | None = None) -> float:
    """Make sure that all are compiled; returns the seconds spent.

    progress(name, done, total) before each that the disk cache does not have, and at the end if there was any.
    """
    pending = [k for k in dict.fromkeys(kernels) if not k.ready]
    start = time.perf_counter()
    missed = False
    for i, item in enumerate(pending):

        def on_miss(name: str = item.name, done: int = i) -> None:
            nonlocal missed
            missed = True
            if progress:
                progress(name, done, len(pending))

        item.compile(on_miss)
    if progress and missed:
        progress("", len(pending), len(pending))
    return time.perf_counter() - start
