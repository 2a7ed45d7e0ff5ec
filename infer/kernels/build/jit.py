"""Kernels: functions `void(args, tid, nth)` compiled on demand, kept on disk, called by address from a program.

`args` is the address of an op record (see emit/fields.py), `tid` of `nth` threads is calling. A kernel takes its share
of disjoint outputs, allocates nothing and never raises.

numba compiles a kernel once per machine (compiler.py); object_cache.py keeps the machine code and links it again later,
without numba, whose import alone takes longer than everything else at the start of a warm run. Therefore nothing here
imports numba before a kernel really has to be compiled: pieces, devices and kernels are plain objects until then.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .cache_folders import folder
from .helpers import Helpers, help_compiling
from .kernel import KernelSource, device, with_globals
from .object_cache import CompiledObject, link, read, write

__all__ = ["CompileProgress", "Kernel", "compile_kernels", "device", "kernel", "serve_helper", "variant"]

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
    """Links the kernels in the disk cache; returns the others."""
    _use({k: code for k in kernels if (code := read(k.file)) is not None}, from_cache=True)
    return [k for k in kernels if not k.ready]


def compile_kernels(
    kernels: Iterable[Kernel],
    progress: CompileProgress | None = None,
    helper: Sequence[str] = (),
    n_processes: int = 2,
) -> float:
    """Make sure that all are ready; returns the seconds spent.

    progress(name, done, total) before each that is compiled here, and at the end if any had to be compiled. `helper`
    is the command of `n_processes` - 1 helpers, each of which has three kernels at least (helpers.py).
    """
    start = time.perf_counter()
    wanted = [k for k in dict.fromkeys(kernels) if not k.ready]
    # the longest first, so that nobody begins one when the others are done
    missing = sorted(load_cached(wanted), key=lambda k: -k.code_size)
    n_helpers = min(n_processes - 1, (len(missing) - 1) // 3) if helper and folder() is not None else 0
    with _few_collections(), Helpers(missing, helper, n_helpers) as helpers:
        while True:
            while item := helpers.take():
                if progress:
                    progress(item.name, len(missing) - len(helpers) - 1, len(missing))
                item.compile()
            helpers.wait()
            if not helpers:
                break
        # of helpers, but for a cache that could not be written
        for item in load_cached([k for k in missing if not k.ready]):
            item.compile()
    if progress and missing:
        progress("", len(missing), len(missing))
    return time.perf_counter() - start


def serve_helper(kernels: Iterable[Kernel]) -> None:
    """Runs in a helper: compiles the kernels that it is told to."""
    with _few_collections():
        help_compiling(kernels)


@contextmanager
def _few_collections() -> Iterator[None]:
    """A compiler makes many objects and little garbage: looking for it as often as usual takes a tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
