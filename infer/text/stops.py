"""Stops the rendering and encoding of a long text when its client has gone: both call `look` now and then.

with stopped_by(gone.is_set):   # also in threads that are given this context
    tokenizer.encode(text)      # GoneError once gone.is_set()
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hybrid.quant.ggml.errors import HybridError

_gone: ContextVar[Callable[[], bool] | None] = ContextVar("gone", default=None)


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


def look() -> None:
    """Raise GoneError if nobody waits any more."""
    gone = _gone.get()
    if gone is not None and gone():
        raise GoneError("nobody waits for this text any more.")
