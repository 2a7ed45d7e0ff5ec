"""One line of the log per request: what was asked, what of its prompt was reused and why not more, how long it took.

Of prompts a line holds no text but the few characters of a difference, and nothing that a terminal obeys.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.infer.faults import SidePath
from hybrid.quant.ggml.errors import shown

from .cache_usage import main_reason, prompts_of
from .chats import Split

LOG = SidePath("the log of requests")

# asked for all the time, by programs and pages: logged only when they fail
QUIET = ("/health", "/metrics", "/slots", "/page/costs")
NO_FAULT = (200, 499)  # of these: a page that has other questions now hangs up
LONGEST = 120  # characters of what a client chooses
PLACE = "hybrid.request"  # in the scope of a request


@dataclass(frozen=True)
class RequestLog:
    """A request that has been answered.

    client         address; a key is never in it
    status         0: it left before it was answered
    n_prompt       tokens of its prompts, each once: n_reused and n_processed of them, whose `reason` is that of the
                   prompt of which most was processed; those of prompts that never joined are in neither
    n_drawn        tokens of all answers
    first_seconds  until the first token was drawn; None: there was none
    seconds        until the last byte
    finish         why each answer ended
    notes          what else should be known: lines of their own
    n_calls        calls of tools in all answers
    """

    method: str
    route: str
    status: int
    client: str
    n_prompt: int = 0
    n_reused: int = 0
    n_processed: int = 0
    reason: str = ""
    n_drawn: int = 0
    first_seconds: float | None = None
    seconds: float = 0.0
    finish: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    n_calls: int = 0

    def line(self) -> str:
        """For people."""
        parts = [f"{self.method} {self.route} {self.status} {self.client}"]
        if self.n_prompt:
            reason = f" ({self.reason})" if self.reason and self.n_processed else ""
            parts.append(f"prompt {self.n_prompt}: {self.n_reused} reused, {self.n_processed} read{reason}")
        if self.finish:
            calls = f", {self.n_calls} call{'s' * (self.n_calls > 1)}" if self.n_calls else ""
            parts.append(f"drew {self.n_drawn} ({', '.join(self.finish)}){calls}")
        first = "" if self.first_seconds is None else f"first token {self.first_seconds:.2f} s, "
        return "; ".join([*parts, f"{first}{self.seconds:.2f} s"])


@dataclass
class Record:
    """What is noted of a request while it is answered: `record_of(request)` finds it."""

    begun: float = field(default_factory=time.monotonic)
    jobs: Sequence[Job] = ()
    splits: Sequence[Split] = ()
    first: float | None = None  # when the first token was drawn
    notes: Sequence[str] = ()

    def watch(self, jobs: Sequence[Job], splits: Sequence[Split] = ()) -> None:
        """The jobs that answer it, before they are submitted and when their `on_text` is set; who reads the answers."""
        self.jobs, self.splits = jobs, splits
        for job in jobs:
            job.on_text = partial(self._heard, job.on_text)

    def _heard(self, tell: Callable[[TextPiece], None] | None, piece: TextPiece) -> None:
        self.first = self.first if self.first is not None else time.monotonic()
        if tell is not None:
            tell(piece)

    def closed(self, scope: Scope, status: int) -> RequestLog:
        """When it is over."""
        jobs = self.jobs
        if status >= HTTPStatus.BAD_REQUEST and not any(job.reuse for job in jobs):
            jobs = ()  # refused
        prompts = prompts_of(jobs)
        joined = [job.reuse for job in prompts if job.reuse is not None]
        client = scope.get("client")
        return RequestLog(
            method=shown(scope["method"], LONGEST),
            route=shown(scope["path"], LONGEST),
            status=status,
            client=shown(client[0], LONGEST) if client else "-",
            n_prompt=sum(len(job.ids) for job in prompts),
            n_reused=sum(reuse.n_reused for reuse in joined),
            n_processed=sum(reuse.n_processed for reuse in joined),
            reason=main_reason(joined),
            n_drawn=sum(len(job.result.ids) for job in jobs),
            n_calls=sum(len(split.reader.calls) for split in self.splits),
            first_seconds=None if self.first is None else self.first - self.begun,
            seconds=time.monotonic() - self.begun,
            finish=tuple(job.result.reason for job in jobs),
            notes=(*self.notes, *(job.reuse.note for job in jobs if job.reuse is not None and job.reuse.note)),
        )


def record_of(scope: Scope) -> Record:
    """Of a request that is being answered."""
    record: Record = scope.setdefault(PLACE, Record())
    return record


class Logged:
    """Tells `log` of every request when it is over, whatever became of it."""

    def __init__(self, app: ASGIApp, log: Callable[[RequestLog], None]) -> None:
        self.app, self.log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record, status = record_of(scope), 0

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, heard)
        except Exception:
            status = status or 500
            raise
        finally:
            if status not in NO_FAULT or scope["path"] not in QUIET:
                LOG.do(lambda: self.log(record.closed(scope, status)))
