"""Parts of a work, computed by free workers, with results in the order of the parts.

A part on a worker that died is computed again, on another or on its replacement: a part gives the same result wherever
and however often it is computed.
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

QUEUED = 3  # parts sent per slot of a worker, so that it never waits for the next one
AHEAD = 32  # limit of parts per slot that are started before their turn; their results are kept here
ASK_SECONDS = 1.0
MOST_DEATHS = 4  # of workers that held a part; any of their parts may be the cause


def in_order(
    connection: ClusterConnection, function: Callable[[P], R], parts: Iterable[P], *, alone: bool = False
) -> Iterator[R]:
    """function(part) of every part, in order, computed by the workers. Both must be picklable.

    alone: one part at a time per worker, whatever the number of its slots.
    Raises the error of the first failing part, with the worker's name in front of an error about its files. Raises
    ClusterError if the scheduler is gone, or a part kills its workers. Parts that still run then are ignored.
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
        self._part: dict[int, Any] = {}  # running parts by number
        self._deaths: dict[int, int] = {}
        self._found: dict[int, Any] = {}  # results that wait for their turn
        self._begun = self._turn = 0
        self._slots, self._asked_at = 1, -math.inf
        self._fetching = Fetching[Any](connection.client)

    def results(self) -> Iterator[Any]:
        """The results in order. Raises as `in_order` does."""
        self._fill()
        while self._running:
            self._take()
            while self._turn in self._found:
                result = self._found.pop(self._turn)
                self._turn += 1
                self._fill()  # start further parts before the result is used
                yield result
            self._fill()

    def cancel(self) -> None:
        """Starts no further parts."""
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
        """Slots of all workers, as the scheduler last reported: workers come and go."""
        if time.monotonic() > self._asked_at + ASK_SECONDS:
            with suppress(OSError):  # the scheduler is gone; the results report it
                self._slots = max(1, self._connection.n_workers if self._alone else self._connection.n_slots)
            self._asked_at = time.monotonic()
        return self._slots

    def _submit(self, number: int) -> None:
        # the first parts first: their results are needed first
        future = self._connection.client.submit(self._function, self._part[number], pure=False, priority=-number)
        self._running[future] = number
        self._fetching.add(future)

    def _take(self) -> None:
        """Handles some finished parts."""
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
    """Computes a part on a worker; the result, which may be None, in a tuple. Errors of the worker and of its files
    name the worker."""
    try:
        return (function(part),)
    except HybridError as error:
        if type(error) in (HybridError, ClusterError):
            worker = get_worker()
            raise type(error)(
                f"{label(worker.name, worker.address)}: {error}", remedy=error.remedy, value=error.value
            ) from None
        raise
