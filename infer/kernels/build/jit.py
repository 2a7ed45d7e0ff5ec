"""Kernels: functions `void(args, tid, nth)` compiled on demand, kept on disk, called by address from a program.

`args` is the address of an op record (see emit/fields.py), `tid` of `nth` threads is calling. A kernel takes its share
of disjoint outputs, allocates nothing and never raises.

numba compiles a kernel once per machine (compiler.py); object_cache.py keeps the machine code and links it again later,
without numba, whose import alone takes longer than everything else at the start of a warm run. Therefore nothing here
imports numba before a kernel really has to be compiled: pieces, devices and kernels are plain objects until then.
"""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .kernel import KernelSource, device, with_globals
from .object_cache import CompiledObject, folder, link, read, write

__all__ = ["CompileProgress", "Kernel", "compile_backwards", "compile_kernels", "device", "kernel", "variant"]

CompileProgress = Callable[[str, int, int], None]


class Kernel(KernelSource):
    """A kernel that is linked from the disk cache, or compiled, when its address is first asked for."""

    def __init__(self, function: Callable[..., Any], *args: Any, **how: Any) -> None:
        super().__init__(function, *args, **how)
        self._address = 0
        self._keep: Any = None
        self.from_cache = False

    @property
    def ready(self) -> bool:
        return self._address != 0

    @property
    def address(self) -> int:
        if not self.ready:
            compile_kernels([self])
        return self._address

    def use(self, address: int, keep: Any, *, from_cache: bool) -> None:
        """`keep` owns the machine code at `address`."""
        self._address, self._keep, self.from_cache = address, keep, from_cache

    def compile(self) -> None:
        """Compile with numba and write the machine code to the cache."""
        from .compiler import compile_kernel

        compiled = compile_kernel(self)
        write(self.file, compiled)
        _use({self: compiled}, from_cache=False)


def kernel(function: Callable[..., Any]) -> Kernel:
    """@kernel on `def op(a, tid, nth, *, x: Address, ldx: Int, ...)`, whose keyword-only parameters are the fields of
    the op's records (emit/fields.py)."""
    return Kernel(function)


def variant(
    template: Kernel | Callable[..., Any], name: str, /, *, without: Iterable[str] = (), **pieces: Any
) -> Kernel:
    """The kernel `template` with some of its globals replaced, e.g. the unpacking of a weight type, and with all of its
    fields but those `without`."""
    source = template.function if isinstance(template, Kernel) else template
    return Kernel(with_globals(source, name, pieces), without=without)


def _use(compiled: dict[Kernel, CompiledObject], *, from_cache: bool) -> None:
    linked = link(list(compiled.values()))
    for item, code in compiled.items():
        item.use(linked.get_function_address(code.symbol), linked, from_cache=from_cache)


def load_cached(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Link those that the disk cache has; returns the others."""
    _use({k: code for k in kernels if (code := read(k.file)) is not None}, from_cache=True)
    return [k for k in kernels if not k.ready]


def compile_kernels(
    kernels: Iterable[Kernel],
    progress: CompileProgress | None = None,
    helper: Sequence[str] | None = None,
) -> float:
    """Make sure that all are ready; returns the seconds spent.

    progress(name, done, total) before each that has to be compiled, and at the end if there was any. `helper` is a
    command that compiles every second of the missing kernels into the disk cache, in a process of its own: numba
    compiles under one lock, so threads would not help.
    """
    start = time.perf_counter()
    wanted = [k for k in dict.fromkeys(kernels) if not k.ready]
    missing = load_cached(wanted)
    total = len(missing)
    process = None
    if helper and total > 3 and folder() is not None and (os.cpu_count() or 1) > 1:
        try:
            process = subprocess.Popen(
                [sys.executable, *helper],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            process = None
    try:
        with _few_collections():
            # from both ends: whoever is faster takes more
            while missing:
                item = missing.pop(0)
                if progress:
                    progress(item.name, total - len(missing) - 1, total)
                item.compile()
                if process:
                    missing = load_cached(missing)
        if progress and total:
            progress("", total, total)
    finally:
        if process:
            process.kill()
            process.wait()
    return time.perf_counter() - start


def compile_backwards(kernels: Iterable[Kernel]) -> None:
    """The helper's share: the missing kernels from the last to the first, until the cache has them all."""
    wanted = list(dict.fromkeys(kernels))
    with _few_collections():
        for item in reversed(wanted):
            if read(item.file) is None:
                item.compile()


@contextmanager
def _few_collections() -> Iterator[None]:
    """A compiler makes many objects and little garbage: looking for it as often as usual takes a tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
