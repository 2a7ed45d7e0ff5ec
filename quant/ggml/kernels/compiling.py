"""Notifies that kernels are being compiled, which takes seconds, once per machine. Does not import numba."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_told: list[Callable[[], None]] = []
_watched = False


@contextlib.contextmanager
def told(call: Callable[[], None]) -> Iterator[None]:
    """While open, calls `call` before each kernel that is compiled, on the thread that needs it."""
    _told.append(call)
    try:
        yield
    finally:
        _told.remove(call)


def watch() -> None:
    """Starts to watch, once; called by modules with kernels, which have imported numba."""
    global _watched
    if _watched:
        return
    _watched = True
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            """Notifies, but not for kernels from numba's cache."""
            for call in list(_told):
                call()

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Compiling())
