"""Says that kernels are compiled, to whoever wants to know: it takes seconds, once per machine. Imports no numba."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_told: list[Callable[[], None]] = []
_watched = False


@contextlib.contextmanager
def told(call: Callable[[], None]) -> Iterator[None]:
    """`call` at every kernel that is compiled meanwhile, before it is, on the thread that needs it."""
    _told.append(call)
    try:
        yield
    finally:
        _told.remove(call)


def watch() -> None:
    """Begin to look, once; for the modules that have kernels, which have imported numba."""
    global _watched
    if _watched:
        return
    _watched = True
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            """Not for what comes from numba's cache."""
            for call in list(_told):
                call()

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Compiling())
