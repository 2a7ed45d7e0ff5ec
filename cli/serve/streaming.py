"""The answers of one request as a response: whole, or as a stream while they are sampled."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece

from .cached_conversations import check_pins
from .chats import Split
from .connections import CONNECTION
from .errors import RequestError
from .request_jobs import MOST_LISTED, Event, RequestJobs
from .request_log import record_of
from .served import Served
from .time_limit import time_limit

PING_SECONDS = 5.0
T = TypeVar("T")


@dataclass(frozen=True)
class StreamFormat:
    """The format of a stream.

    media  its media type
    ping   sent while a prompt is read, so that proxies and clients do not time out
    """

    media: str
    ping: str


SSE = StreamFormat("text/event-stream", ": a prompt is being read\n\n")


class AnswerShape(Protocol):
    """How one API writes the answers of a request. `index`: of the job; events are texts in the stream's
    format, for server-sent events made by `event`."""

    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response, from the pieces of all finished jobs."""

    def opening(self) -> Iterable[str]:
        """The events before any piece."""

    def piece(self, index: int, piece: TextPiece) -> Iterable[str]:
        """The events for a piece."""

    def ending(self, index: int) -> Iterable[str]:
        """The events at the end of a job."""

    def closing(self) -> Iterable[str]:
        """The events at the end of all jobs."""

    def failure(self, error: Exception) -> Iterable[str]:
        """The events at an error that ends the stream."""


class Watcher(Protocol):
    """Gets every event of a stream before the shape does, including how far the prompts are read."""

    def watch(self, news: Event) -> Iterable[str]:
        """SSE events about the progress of an answer, beside the events of its text."""


def event(value: Any, name: str | None = None) -> str:
    """A server-sent event with a JSON value."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def respond(
    served: Served,
    request: Request,
    jobs: list[Job],
    shape: AnswerShape,
    *,
    stream: bool,
    watcher: Watcher | None = None,
    splits: Sequence[Split] = (),
    form: StreamFormat = SSE,
) -> Response:
    """Submits the jobs and returns the response. BusyError, UsageError, RequestError: no job is left running.

    splits: readers of the answers. In a stream the shape pushes pieces into them; their `end` is called before the
    shape's `ending`. form: of a stream.
    """
    await check_pins(served, jobs)
    limit = time_limit(request, served.settings.timeout)
    answering = RequestJobs(served.answers, jobs, limit, reading=stream and watcher is not None, streams=stream)
    record_of(request.scope).watch(jobs, splits)
    if stream and (connection := request.scope.get("state", {}).get(CONNECTION)) is not None:
        connection.bound_unsent()
    answering.submit()
    if stream:
        told = events(answering, shape, watcher, splits, form.ping)
        return StreamingResponse(told, media_type=form.media, headers={"Cache-Control": "no-cache"})
    try:
        pieces: list[list[TextPiece]] = [[] for _ in jobs]

        async def collect() -> None:
            n_listed = 0
            async for told in answering.events():
                n_listed += told.n_listed
                if n_listed > MOST_LISTED:
                    raise RequestError(
                        f"the answer lists more than {MOST_LISTED} candidates of its tokens (n_probs, top_logprobs, "
                        "logprobs). Ask for fewer, for fewer tokens, or for a stream."
                    )
                if told.piece is not None:
                    pieces[told.index].append(told.piece)
                    if splits:
                        splits[told.index].push(told.piece)
                elif told.ends and splits:
                    await run_in_threadpool(splits[told.index].end)

        await unless_disconnected(request, collect())
        return await run_in_threadpool(
            lambda: JSONResponse(shape.whole(pieces))
        )  # in a thread, so that streams continue
    finally:
        answering.close()


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`. If the client goes first, `work` is cancelled and RequestError raised."""
    task = asyncio.ensure_future(work)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError("the client has gone", status=499)
        return await task
    finally:
        for each in (task, leaving):
            each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await each


def _told(shape: AnswerShape, news: Event) -> Iterable[str]:
    """The shape's events for a piece or an end; none while the prompt is read."""
    if news.n_read is not None:
        return ()
    return shape.ending(news.index) if news.piece is None else shape.piece(news.index, news.piece)


async def events(
    answering: RequestJobs, shape: AnswerShape, watcher: Watcher | None, splits: Sequence[Split], ping: str
) -> AsyncIterator[str]:
    """The events of a stream. Starlette closes this generator when the client goes."""
    waiting: asyncio.Future[Any] | None = None
    try:
        for text in shape.opening():
            yield text
        told = answering.events()
        while True:
            waiting = waiting or asyncio.ensure_future(anext(told, None))
            done, _ = await asyncio.wait({waiting}, timeout=PING_SECONDS)
            if not done:
                yield ping
                continue
            news, waiting = waiting.result(), None
            if news is None:
                break
            for text in watcher.watch(news) if watcher is not None else ():
                yield text
            if news.ends and splits:
                await run_in_threadpool(splits[news.index].end)
            for text in _told(shape, news):
                yield text
        for text in shape.closing():
            yield text
    except RequestError as error:
        for text in shape.failure(error):
            yield text
    finally:
        if waiting is not None:
            waiting.cancel()
        answering.close()
