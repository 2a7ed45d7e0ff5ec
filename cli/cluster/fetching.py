"""Results of tasks as they complete; all ready results are fetched together.

Fetched one by one, each would take a round trip to the scheduler, during which no task is started.
"""

import time
from typing import Generic, TypeVar

from distributed import CancelledError, Client, Future, as_completed

T = TypeVar("T")  # type of a result


class Fetching(Generic[T]):
    """Futures may be added at any time; `next` returns each once. Results must not be None."""

    WAKE_SECONDS = 0.1  # interval of Dask's own polling

    def __init__(self, client: Client) -> None:
        self._client = client
        self._completed = as_completed([], loop=client.loop)
        self._waited: set[Future[T]] = set()

    def add(self, future: "Future[T]") -> None:
        """Waits for this future also from now on."""
        self._waited.add(future)
        self._completed.add(future)

    def next(self, seconds: float | None = None) -> list[tuple["Future[T]", T | Exception]]:
        """At least one finished future, each with its result or exception; an empty list after `seconds`.

        If a worker dies before its result was fetched, Dask computes it again, and it is waited for again. A future
        that Dask has forgotten, while many workers come and go, has a CancelledError as its exception: submit the task
        again. Raises CancelledError or CommClosedError if the scheduler is gone.
        """
        over: list[tuple[Future[T], T | Exception]] = []
        until = None if seconds is None else time.monotonic() + seconds
        while not over:
            if until is not None and not self._is_ready(until):
                return []
            batch = [future for future in self._completed.next_batch(block=True) if future in self._waited]
            finished = {future.key: future for future in batch if future.status == "finished"}
            found = self._client.gather(finished, errors="skip") if finished else {}
            for future in batch:
                if (result := found.get(future.key)) is not None:
                    over.append((future, result))
                elif future.status == "error":
                    over.append((future, future.exception()))
                elif future.status == "cancelled":
                    if self._client.status != "running":
                        raise CancelledError(future.key)
                    over.append((future, CancelledError(future.key)))
                else:
                    self.add(future)
        self._waited.difference_update(future for future, _ in over)
        return over

    def _is_ready(self, until: float) -> bool:
        while not (ready := bool(self._completed.has_ready())) and time.monotonic() < until:
            with self._completed.thread_condition:
                self._completed.thread_condition.wait(self.WAKE_SECONDS)
        return ready
