"""A log line per request: its route, how much of its prompt was reused and why not more, how long it took.

A line quotes at most the few characters of a prompt where it differs from known texts, without control characters.
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

# polled by programs and pages: logged only when they fail (other clients ask for /v1/models)
QUIET = ("/health", "/metrics", "/slots", "/models", "/page/costs")
NO_FAULT = (200, 499)  # statuses that are not logged; 499: a page has cancelled its question
LONGEST = 120  # characters of a text that the client chose
PLACE = "hybrid.request"  # name in a request's scope


@dataclass(frozen=True)
class RequestLog:
    """A finished request.

    client         address, never an API key
    status         0: the client left before the answer
    n_prompt       tokens of its prompts, each prompt counted once; n_reused and n_processed are parts of them. `reason`
                   belongs to the prompt with the most processed tokens. Prompts that never started are in neither part
    n_drawn        tokens of all answers
    first_seconds  until the first token was sampled; None: no token was sampled
    seconds        until the last byte
    finish         why each answer ended
    notes          further lines
    n_calls        calls of tools in all answers
    model          its name, if the server has several
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
    model: str = ""

    def line(self) -> str:
        """The log line for people."""
        model = f" {self.model}" if self.model else ""
        parts = [f"{self.method} {self.route} {self.status} {self.client}{model}"]
        if self.n_prompt:
            reason = f" ({self.reason})" if self.reason and self.n_processed else ""
            parts.append(f"prompt {self.n_prompt}: {self.n_reused} reused, {self.n_processed} read{reason}")
        if self.finish:
            calls = f", {self.n_calls} call{'s' * (self.n_calls > 1)}" if self.n_calls else ""
            parts.append(f"generated {self.n_drawn} ({', '.join(self.finish)}){calls}")
        first = "" if self.first_seconds is None else f"first token {self.first_seconds:.2f} s, "
        return "; ".join([*parts, f"{first}{self.seconds:.2f} s"])


@dataclass
class Record:
    """Notes on a request in progress; `record_of(scope)` finds it."""

    begun: float = field(default_factory=time.monotonic)
    jobs: Sequence[Job] = ()
    splits: Sequence[Split] = ()
    first: float | None = None  # time of the first sampled token
    notes: Sequence[str] = ()
    model: str = ""

    def watch(self, jobs: Sequence[Job], splits: Sequence[Split] = ()) -> None:
        """Sets the jobs of the request and the readers of their answers. Call it before the jobs are submitted, and
        after their `on_text` is set."""
        self.jobs, self.splits = jobs, splits
        for job in jobs:
            job.on_text = partial(self._heard, job.on_text)

    def _heard(self, tell: Callable[[TextPiece], None] | None, piece: TextPiece) -> None:
        self.first = self.first if self.first is not None else time.monotonic()
        if tell is not None:
            tell(piece)

    def closed(self, scope: Scope, status: int) -> RequestLog:
        """The RequestLog of the finished request."""
        jobs = self.jobs
        if status >= HTTPStatus.BAD_REQUEST and not any(job.reuse for job in jobs):
            jobs = ()  # the request was refused
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
            model=self.model,
            finish=tuple(job.result.reason for job in jobs),
            notes=(*self.notes, *(job.reuse.note for job in jobs if job.reuse is not None and job.reuse.note)),
        )


def record_of(scope: Scope) -> Record:
    """The record of a request in progress."""
    record: Record = scope.setdefault(PLACE, Record())
    return record


class Logged:
    """Middleware that calls `log` with every finished request, however it ended."""

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
