"""The jobs of one request, seen from the event loop: pieces of answers as they arrive, and the end of each job."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.batch.service import Service
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.quant.ggml.errors import UsageError

from .errors import RequestError
from .time_limit import TimeLimit
from .timings import ServerTimings

MOST_AHEAD = 32  # unsent pieces of a stream: sampling pauses until the client has taken half of them
MOST_UNREAD = 4096  # unsent pieces of an answer that cannot pause
MOST_LISTED = 100_000  # candidates (n_probs, top_logprobs) in a whole answer, or unsent ones of a stream


@dataclass(frozen=True)
class Event:
    """News of job number `index`: a piece of its answer, n_read tokens of its prompt read, or, with neither, its end.

    timings: at that moment.
    """

    index: int
    piece: TextPiece | None
    timings: ServerTimings
    n_read: int | None = None

    @property
    def n_listed(self) -> int:
        """Number of candidates listed for its token, including the token itself."""
        return 0 if self.piece is None or self.piece.logprobs is None else 1 + len(self.piece.logprobs.top)

    @property
    def ends(self) -> bool:
        """Whether the job has ended."""
        return self.piece is None and self.n_read is None


class RequestJobs:
    """Submits jobs and yields their events. Always call `close`, which cancels unfinished jobs.

    limit: until the last answer has ended, including the queue and the reading of prompts.
    """

    def __init__(
        self,
        service: Service,
        jobs: Sequence[Job],
        limit: TimeLimit,
        *,
        reading: bool = False,
        streams: bool = False,
    ) -> None:
        """reading: also report how far prompts are read; streams: the consumer of events may wait for its client."""
        self.service, self.jobs, self.limit = service, list(jobs), limit
        self._n_told = [0] * len(self.jobs)
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._streams, self._paused = streams, False
        self._waiting = threading.Lock()  # guards the next two, to which the service's thread adds
        self._n_waiting = self._n_listed = 0  # unsent events of a stream, and candidates in them
        self._too_slow = self._given_up = False
        for index, job in enumerate(self.jobs):
            job.on_text = partial(self._tell, index)
            job.on_end = partial(self._end, index, job.on_end)
            if reading:
                job.on_read = partial(self._tell_read, index)

    def _end(self, index: int, before: Callable[[], None] | None) -> None:
        """Handles the end of an answer. before: called first."""
        try:
            if before is not None:
                before()
        finally:
            self._tell(index, None)

    def _tell(self, index: int, piece: TextPiece | None, n_read: int | None = None) -> None:
        """Called in the service's thread: passes an event to the loop, or drops it if the loop is closed."""
        self._n_told[index] += piece is not None and piece.id is not None
        event = Event(index, piece, ServerTimings.of(self.jobs[index], self._n_told[index]), n_read)
        if self._streams:
            self._count(event)
        try:
            self._loop.call_soon_threadsafe(self._put, event)
        except RuntimeError:
            self.jobs[index].cancel()

    def _tell_read(self, index: int, n: int, _: int) -> None:
        self._tell(index, None, n)

    def _count(self, event: Event) -> None:
        """Counts unsent events. If there are too many, sampling pauses; an answer that cannot pause is cancelled before
        it
        fills the memory.
        """
        with self._waiting:
            self._too_slow |= self._n_waiting >= MOST_UNREAD or self._n_listed > MOST_LISTED
            self._n_waiting, self._n_listed = self._n_waiting + 1, self._n_listed + event.n_listed
            if not self._paused and self._ahead > 1:
                self._pause(paused=True)

    def _put(self, event: Event) -> None:
        if not self._too_slow:
            self._events.put_nowait(event)
        elif not self._given_up:
            self._given_up = True
            while not self._events.empty():
                self._events.get_nowait()
            self.close()
            self._events.put_nowait(event)  # wakes the waiting consumer

    @property
    def _ahead(self) -> float:
        """Unsent events, as a share of the limit at which sampling pauses."""
        return max(self._n_waiting / (MOST_AHEAD * len(self.jobs)), 4 * self._n_listed / MOST_LISTED)

    def _pause(self, *, paused: bool) -> None:
        self._paused = paused
        for job in self.jobs:
            if not job.done:
                self.service.pause(job, paused=paused)

    def submit(self) -> None:
        """Submits all jobs. BusyError, UsageError, ClosedError: nothing was submitted."""
        try:
            for job in self.jobs:
                self.service.submit(job)
        except BaseException:
            self.close()
            raise

    async def events(self) -> AsyncIterator[Event]:
        """Yields events until all jobs have ended. RequestError: a job ended without an answer."""
        left = len(self.jobs)
        while left:
            event = await self._next()
            if event.ends:
                self._check(self.jobs[event.index])
                left -= 1
            yield event

    async def _next(self) -> Event:
        async with self.limit.kept():
            event = await self._events.get()
        if self._too_slow:
            raise RequestError(
                f"the client reads too slowly: {MOST_UNREAD} tokens waited for it, or {MOST_LISTED} candidates",
                status=408,
            )
        if self._streams:
            with self._waiting:
                self._n_waiting, self._n_listed = self._n_waiting - 1, self._n_listed - event.n_listed
                if self._paused and self._ahead <= 1 / 2:
                    self._pause(paused=False)
        return event

    def _check(self, job: Job) -> None:
        if job.error is not None:
            status = 400 if isinstance(job.error, UsageError) else 500
            raise RequestError(f"no answer could be generated: {job.error}", status=status)
        if self.service.fault is not None and job.result.reason == "interrupt":
            raise RequestError("the model has failed, and the server ends", status=500)
        if job.result.reason == "interrupt":
            raise RequestError("the answer was interrupted: the server ends", status=503)

    def close(self) -> None:
        """Cancels unfinished jobs."""
        for job in self.jobs:
            if not job.done:
                self.service.cancel(job)
