"""Figures of the prompt cache, available also while the model's thread computes."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from hybrid.infer.answers.batch.service import ClosedError, Service
from hybrid.infer.faults import SidePath

HELD = SidePath("the figures of the prompt cache")

PATIENCE = 0.25  # seconds to wait for the end of a step, before the last known figures are returned


@dataclass(frozen=True)
class CacheContents:
    """Bytes of states and logits, of keys and values, and of pinned ones; numbers of checkpoints and tokens."""

    checkpoint_bytes: int = 0
    key_bytes: int = 0
    pinned_bytes: int = 0
    n_checkpoints: int = 0
    n_tokens: int = 0


class CacheFigures:
    """Counts in the service's thread, which owns the tree; at most one count waits for it at a time."""

    def __init__(self) -> None:
        self._last = CacheContents()
        self._waiting: Future[CacheContents] | None = None

    async def now(self, service: Service) -> CacheContents:
        """The figures between two steps, or the last known ones if the current step takes long."""
        cache = service.model.cache
        if cache is None:
            return self._last

        def count() -> CacheContents:
            return HELD.run(
                lambda: CacheContents(*cache.sizes(), cache.pins.nbytes(), cache.n_checkpoints, cache.n_tokens),
                lambda: self._last,
            )

        if self._waiting is not None and self._waiting.done():
            self._waiting = None
        with suppress(TimeoutError, ClosedError):
            self._waiting = self._waiting or service.call(count)
            future = asyncio.wrap_future(self._waiting)
            self._last = await asyncio.wait_for(asyncio.shield(future), PATIENCE)
        return self._last
