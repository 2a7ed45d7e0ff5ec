"""Kernels: functions `void(args, tid, nth)` compiled on demand, kept on disk, called by address from a program.

`args` is the address of an op record (see emit/fields.py); thread `tid` of `nth` calls. A kernel computes its share of
disjoint outputs, allocates nothing and never raises.

numba compiles a kernel once per machine (compiler.py); object_cache.py keeps the machine code and links it later,
without numba, whose import alone takes longer than everything else at the start of a warm run. Therefore nothing here
imports numba until a kernel must be compiled: pieces, devices and kernels are plain objects until then.
"""

import gc
import threading
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
_LINKING = threading.Lock()  # guards the addresses of kernels; models of several threads share kernels
_COMPILING = threading.RLock()  # one thread compiles at a time, so that no kernel is compiled twice


class Kernel(KernelSource):
    """A kernel that is linked from the disk cache, or compiled, when its address is first read."""

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
        """Set the address of the machine code, which `keep` owns. Once only: see `_use`."""
        assert not self.ready
        self._keep, self.from_cache, self._address = keep, from_cache, address

    def compile(self) -> None:
        """Compile with numba, write the machine code to the cache, and link it."""
        from .compiler import compile_kernel

        compiled = compile_kernel(self)
        write(self.file, compiled)
        _use({self: compiled}, from_cache=False)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Make a Kernel: @kernel on `def op(a, tid, nth, *, x: Address, ldx: Int, ...)`, whose keyword-only parameters are
    the fields of the op's records (emit/fields.py)."""
    return Kernel(function)


def variant(
    template: Kernel | Callable[..., Any], name: str, /, *, without: Iterable[str] = (), **pieces: Any
) -> Kernel:
    """The kernel `template` with some globals replaced (`pieces`), e.g. the unpacking of a weight type, and the fields
    `without` removed."""
    source = template.function if isinstance(template, Kernel) else template
    return Kernel(with_globals(source, name, pieces), without=without)


def _use(compiled: dict[Kernel, CompiledObject], *, from_cache: bool) -> None:
    """Link the kernels that no other thread has linked meanwhile. A kernel keeps its first machine code: programs hold
    its address, and a second link would free the code while they run it."""
    with _LINKING:
        new = {item: code for item, code in compiled.items() if not item.ready}
        linked = link(list(new.values()))
        for item, code in new.items():
            item.use(linked.get_function_address(code.symbol), linked, from_cache=from_cache)


def load_cached(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Link the kernels that the disk cache has; returns the others."""
    _use({k: code for k in kernels if (code := read(k.file)) is not None}, from_cache=True)
    return [k for k in kernels if not k.ready]


def compile_kernels(
    kernels: Iterable[Kernel],
    progress: CompileProgress | None = None,
    helper: Sequence[str] = (),
    n_processes: int = 2,
) -> float:
    """Link or compile all kernels that are not ready; returns the seconds spent. May be called from several threads.

    progress(name, done, total) is called before each kernel compiled here and, if any was missing, at the end.
    `helper`: command of up to `n_processes` - 1 helper processes (helpers.py), at most one per three kernels.
    """
    start = time.perf_counter()
    wanted = [k for k in dict.fromkeys(kernels) if not k.ready]
    missing = load_cached(wanted)
    if missing:
        with _COMPILING:
            _compile(missing, progress, helper, n_processes)
    return time.perf_counter() - start


def _compile(
    kernels: Sequence[Kernel], progress: CompileProgress | None, helper: Sequence[str], n_processes: int
) -> None:
    """The part of `compile_kernels` for kernels that the disk cache does not have, unless another thread has compiled
    them meanwhile."""
    # longest first, so that no process begins a long one last
    missing = sorted((k for k in kernels if not k.ready), key=lambda k: -k.code_size)
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
        # link the kernels of helpers; compile them here if the cache could not be written
        for item in load_cached([k for k in missing if not k.ready]):
            item.compile()
    if progress and missing:
        progress("", len(missing), len(missing))


def serve_helper(kernels: Iterable[Kernel]) -> None:
    """Run a helper process: compile the kernels that its input names."""
    with _few_collections():
        help_compiling(kernels)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage rarely: a compiler makes little, and the usual rate takes a tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
