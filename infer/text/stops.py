"""Stops the rendering and encoding of a long text when its client has gone: both call `look` now and then.

with stopped_by(gone.is_set):   # also in threads that are given this context
    tokenizer.encode(text)      # GoneError once gone.is_set()
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from threading import Lock

from hybrid.quant.ggml.errors import HybridError

_gone: ContextVar[Callable[[], bool] | None] = ContextVar("gone", default=None)


class Gone:
    """Whether nobody waits any more; whoever works may be told. Any thread may use it."""

    def __init__(self) -> None:
        self._is_set, self._told = False, list[Callable[[], None]]()
        self._lock = Lock()

    def __call__(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._is_set = True
            for tell in self._told:
                tell()

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Within the context `tell` is called when this is set, or at once if it is."""
        with self._lock:
            self._told.append(tell)
            if self._is_set:
                tell()
        try:
            yield
        finally:
            with self._lock:
                self._told.remove(tell)


class GoneError(HybridError):
    """Nobody waits for the result any more."""


@contextmanager
def stopped_by(gone: Callable[[], bool] | None) -> Iterator[None]:
    """Within this context, `look` raises once `gone()`; None: never."""
    before = _gone.set(gone)
    try:
        yield
    finally:
        _gone.reset(before)


def telling(tell: Callable[[], None]) -> AbstractContextManager[None]:
    """Within the context `tell` is called as soon as nobody waits any more, if a `Gone` says so."""
    gone = _gone.get()
    return gone.telling(tell) if isinstance(gone, Gone) else nullcontext()


def look() -> None:
    """Raise GoneError if nobody waits any more."""
    gone = _gone.get()
    if gone is not None and gone():
        raise GoneError("nobody waits for this text any more.")
