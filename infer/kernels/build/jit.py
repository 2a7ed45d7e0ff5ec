"""Kernels: functions `void(args, tid, nth)` compiled on demand, kept on disk, called by address from a program.

`args` is the address of an op record (int64 fields), `tid` of `nth` threads is calling. A kernel takes its share of
disjoint outputs, allocates nothing and never raises.

numba compiles a kernel once per machine (compiler.py); object_cache.py keeps the machine code and links it again later,
without numba, whose import alone takes longer than everything else at the start of a warm run. Therefore nothing here
imports numba before a kernel really has to be compiled: pieces, devices and kernels are plain objects until then.
"""

import os
import subprocess
import sys
import time
import types as python_types
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from .object_cache import CompiledObject, folder, link, read, write
from .sources import digest

KERNEL_SIGNATURE = "void(int64,int64,int64)"
CompileProgress = Callable[[str, int, int], None]


class Device:
    """A function that kernels call; compiled into each of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__name__ = function, function.__name__


def device(function: Callable[..., Any]) -> Any:
    """@device on a function that is called by kernels."""
    return Device(function)


class Kernel:
    """A kernel that is linked from the disk cache, or compiled, when its address is first asked for.

    Its name must be unique among those of the sources it was made from: the two name the cached file.
    """

    def __init__(self, function: Callable[..., Any], signature: str = KERNEL_SIGNATURE) -> None:
        self.function, self.signature, self.name = function, signature, function.__qualname__
        self._address = 0
        self._keep: Any = None
        self.from_cache = False

    @cached_property
    def file(self) -> str:
        """Name under which the cache keeps it."""
        return f"{self.name}-{digest(self.function.__module__)}"

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

        made = compile_kernel(self)
        write(self.file, made)
        _use({self: made}, from_cache=False)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def kernel(function: Callable[..., Any]) -> Kernel:
    """@kernel on `def op(a, tid, nth)`."""
    return Kernel(function)


def variant(template: Kernel | Callable[..., Any], name: str, **pieces: Any) -> Kernel:
    """The kernel `template` with some of its globals replaced, e.g. the unpacking of a weight type."""
    source = template.function if isinstance(template, Kernel) else template
    missing = [p for p in pieces if p not in source.__code__.co_names]
    assert not missing, f"{source.__name__} does not use {missing}"
    made = python_types.FunctionType(source.__code__, {**source.__globals__, **pieces}, name, source.__defaults__)
    made.__qualname__ = name
    made.__module__ = source.__module__
    return Kernel(made)


def _use(found: dict[Kernel, CompiledObject], *, from_cache: bool) -> None:
    linked = link(list(found.values()))
    for item, made in found.items():
        item.use(linked.get_function_address(made.symbol), linked, from_cache=from_cache)


def load_cached(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Link those that the disk cache has; returns the others."""
    _use({k: made for k in kernels if (made := read(k.file)) is not None}, from_cache=True)
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
    for item in reversed(wanted):
        if read(item.file) is None:
            item.compile()
