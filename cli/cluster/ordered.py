"""Parts of a work, done by workers as they are free, with results in the order of the parts.

A part that was on a worker which died is done again, by another or by the one that takes its place: parts give the same
wherever and however often they are done.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from distributed import CancelledError, Future, KilledWorker, get_worker
from distributed.comm import CommClosedError

from hybrid.quant.ggml.errors import ClusterError, HybridError

from .connection import ClusterConnection
from .fetching import Fetching
from .plugin import label

P = TypeVar("P")
R = TypeVar("R")

QUEUED = 3  # parts a worker is given for each that it can do at a time: no worker waits for the next one
AHEAD = 32  # parts for each, at most, that are done or begun before their turn: their results are kept here
ASK_SECONDS = 1.0
MOST_DEATHS = 4  # of workers that had a part, which may have been any of those that they had


def in_order(
    connection: ClusterConnection, function: Callable[[P], R], parts: Iterable[P], *, alone: bool = False
) -> Iterator[R]:
    """function(part) of every part, in their order, computed by the workers. Both must be picklable.

    alone: a worker does one at a time, whatever the number of its slots.
    Raises what the first part to fail raises, with the worker's name before an error of its files; ClusterError when
    the scheduler is gone, or workers die of a part. What is still running afterwards gives nothing to anybody.
    """
    work = _Work(connection, partial(_done, function), iter(parts), alone)
    try:
        yield from work.results()
    finally:
        work.cancel()


class _Work:
    def __init__(
        self, connection: ClusterConnection, function: Callable[[Any], Any], parts: Iterator[Any], alone: bool
    ) -> None:
        self._connection, self._function, self._parts, self._alone = connection, function, parts, alone
        self._running: dict[Future[Any], int] = {}
        self._part: dict[int, Any] = {}  # by number, of those that run
        self._deaths: dict[int, int] = {}
        self._found: dict[int, Any] = {}  # results before their turn
        self._begun = self._turn = 0
        self._slots, self._asked_at = 1, -math.inf
        self._fetching = Fetching[Any](connection.client)

    def results(self) -> Iterator[Any]:
        """The results, in the order of the parts. Raises as `in_order` does."""
        self._fill()
        while self._running:
            self._take()
            while self._turn in self._found:
                result = self._found.pop(self._turn)
                self._turn += 1
                self._fill()  # before the result is used
                yield result
            self._fill()

    def cancel(self) -> None:
        """Nothing of it is begun any more."""
        if self._running and self._connection.client.status == "running":
            self._connection.client.cancel(list(self._running), force=True)
        self._running = {}

    def _fill(self) -> None:
        slots = self._n_slots()
        while len(self._running) < QUEUED * slots and self._begun < self._turn + AHEAD * slots:
            try:
                part = next(self._parts)
            except StopIteration:
                return
            self._part[self._begun] = part
            self._submit(self._begun)
            self._begun += 1

    def _n_slots(self) -> int:
        """As the scheduler has lately said it: workers come and go."""
        if time.monotonic() > self._asked_at + ASK_SECONDS:
            with suppress(OSError):  # the scheduler is gone: so are the results, which tell it
                self._slots = max(1, self._connection.n_workers if self._alone else self._connection.n_slots)
            self._asked_at = time.monotonic()
        return self._slots

    def _submit(self, number: int) -> None:
        # the first ones first: their results are waited for
        future = self._connection.client.submit(self._function, self._part[number], pure=False, priority=-number)
        self._running[future] = number
        self._fetching.add(future)

    def _take(self) -> None:
        """Some that are over."""
        try:
            over = self._fetching.next()
        except (CancelledError, CommClosedError):
            raise ClusterError("the scheduler of the workers is gone. Start it, then this again.") from None
        for future, outcome in over:
            number = self._running.pop(future)
            if isinstance(outcome, KilledWorker | CancelledError):
                self._deaths[number] = self._deaths.get(number, 0) + 1
                if self._deaths[number] > MOST_DEATHS:
                    raise ClusterError(
                        f"workers died {self._deaths[number]} times that were to do part {number + 1} of the work. See "
                        "whether they have enough memory."
                    )
                self._submit(number)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                (self._found[number],) = outcome
                del self._part[number]


def _done(function: Callable[[P], R], part: P) -> tuple[R]:
    """On a worker: the result, which may be None, in a tuple. Errors of its own or of its files name the worker."""
    try:
        return (function(part),)
    except HybridError as error:
        if type(error) in (HybridError, ClusterError):
            worker = get_worker()
            raise type(error)(
                f"{label(worker.name, worker.address)}: {error}", remedy=error.remedy, value=error.value
            ) from None
        raise
