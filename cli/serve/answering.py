"""The jobs of one request, as the event loop sees them: pieces as they come, and the end of each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece
from hybrid.infer.answers.service import Service

from .errors import RequestError


@dataclass(frozen=True)
class Event:
    """Of job number `index`: a piece of its answer; None: its end."""

    index: int
    piece: TextPiece | None


class Answering:
    """Submits jobs and tells of them. Leave it by `close`, whatever happens: what has not ended is cancelled.

    What waits for a client that reads slowly is at most its own answers, which end where the context does.
    """

    def __init__(self, service: Service, jobs: Sequence[Job]) -> None:
        self.service, self.jobs = service, list(jobs)
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        for index, job in enumerate(self.jobs):
            job.on_text = lambda piece, index=index: self._tell(Event(index, piece))
            job.on_end = partial(self._end, index, job.on_end)

    def _end(self, index: int, before: Callable[[], None] | None) -> None:
        """before: what else is to be done when the answer has ended."""
        if before is not None:
            before()
        self._tell(Event(index, None))

    def _tell(self, event: Event) -> None:
        """From the service's thread. A loop that has been closed meanwhile belongs to a server that ends."""
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:
            self.jobs[event.index].cancel()

    def submit(self) -> None:
        """BusyError, UsageError, ClosedError: nothing was submitted."""
        try:
            for job in self.jobs:
                self.service.submit(job)
        except BaseException:
            self.close()
            raise

    async def events(self) -> AsyncIterator[Event]:
        """Until all jobs have ended."""
        left = len(self.jobs)
        while left:
            event = await self._events.get()
            left -= event.piece is None
            yield event
            if event.piece is None:
                self._check(self.jobs[event.index])

    def _check(self, job: Job) -> None:
        if job.error is not None:
            raise RequestError(f"no answer could be drawn: {job.error}", status=500)
        if job.result.reason == "interrupt":
            raise RequestError("the answer was interrupted: the server ends", status=503)

    def close(self) -> None:
        """Cancel what has not ended."""
        for job in self.jobs:
            if not job.done:
                self.service.cancel(job)
