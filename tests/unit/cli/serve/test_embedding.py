"""Which request may read how much of a text at a time, and in which turn."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hybrid.cli.serve.embedding import ALONE_SECONDS, BESIDE_SECONDS, Embedding
from hybrid.infer.answers.batch.service import BusyError
from hybrid.infer.evaluate.embed_reading import EmbedReading
from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.loading.dense import Dense

SECONDS = 0.001  # that a token takes


class FakeService:
    """Runs calls one at a time, on demand."""

    def __init__(self) -> None:
        self.busy, self.most_waiting = False, 2
        self.calls: list[Callable[[], Any]] = []

    def call(self, function: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self.calls.append(lambda: future.set_result(function()))
        return future

    async def run(self, n: int = 1) -> None:
        """Run n calls in their order."""
        for _ in range(n):
            while not self.calls:
                await asyncio.sleep(0)
            self.calls.pop(0)()
            for _ in range(5):
                await asyncio.sleep(0)


class FakeReading(EmbedReading):
    """Texts as numbers of tokens; logs what was read."""

    def __init__(self, ids: Sequence[Sequence[int]], log: list[tuple[int, int]]) -> None:
        super().__init__(Pooling.LAST, ids, Dense(()))
        self.log, self.at, self.closed = log, 0, False

    @property
    def between(self) -> bool:
        return self.at == 0

    def step(self, most: int) -> tuple[int, float]:
        n = min(most, len(self.ids[self.next]) - self.at)
        self.log.append((self.ids[0][0], n))
        self.at += n
        if self.at == len(self.ids[self.next]):
            self.at = 0
            self._add(np.ones(2))
        return n, n * SECONDS

    def close(self) -> None:
        self.at, self.closed = 0, True


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a coroutine a test."""

    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))

    return run


def made() -> tuple[FakeService, Embedding, list[tuple[int, int]], list[FakeReading]]:
    service, log, readings = FakeService(), list[tuple[int, int]](), list[FakeReading]()

    def begin(ids: Sequence[Sequence[int]], applied: object = None) -> FakeReading:
        readings.append(FakeReading(ids, log))
        return readings[-1]

    return service, Embedding(service, SimpleNamespace(begin=begin)), log, readings  # type: ignore[arg-type]


@in_a_loop
async def test_slices() -> None:
    """Beside answers a slice has as many tokens as its time allows; alone it has more."""
    service, embedding, log, _ = made()
    service.busy = True
    work = asyncio.ensure_future(embedding.vectors([[1] * 1000], normalize=False))
    await service.run(4)
    assert [n for _, n in log] == [32, 100, 100, 100] and BESIDE_SECONDS / SECONDS == 100
    service.busy = False
    await service.run(3)
    assert [n for _, n in log[4:]] == [32, 512, 124] and ALONE_SECONDS / SECONDS > 512
    assert (await work).shape == (1, 2)


@in_a_loop
async def test_turns() -> None:
    """A text is read to its end before another request's; between texts the other request has its turn."""
    service, embedding, log, _ = made()
    service.busy = True
    works = [asyncio.ensure_future(embedding.vectors([[i] * 40] * 2, normalize=False)) for i in (1, 2)]
    await service.run(5)
    await asyncio.gather(*works)
    assert [who for who, _ in log] == [1, 1, 2, 1, 2], log


@in_a_loop
async def test_whoever_leaves_gives_back_what_he_holds() -> None:
    service, embedding, log, readings = made()
    service.busy = True
    left = asyncio.ensure_future(embedding.vectors([[1] * 400], normalize=False))
    stays = asyncio.ensure_future(embedding.vectors([[2] * 10], normalize=False))
    await service.run()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    await service.run(3)
    assert readings[0].closed and [who for who, _ in log] == [1, 1, 2]
    assert (await stays).shape == (1, 2) and embedding.n_waiting == 0


@in_a_loop
async def test_no_more_than_may_wait() -> None:
    service, embedding, _, _ = made()
    works = [asyncio.ensure_future(embedding.vectors([[i]], normalize=False)) for i in (1, 2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="3 requests for embeddings wait"):
        await embedding.vectors([[4]], normalize=False)
    await service.run(3)
    await asyncio.gather(*works)
