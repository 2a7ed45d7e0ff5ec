"""Runs work of a request in a thread that ends soon after the client has gone, and within the server's time limit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hybrid.infer.text.stops import Gone, stopped_by

from .errors import RequestError
from .streaming import unless_disconnected

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def in_time(seconds: float | None) -> AsyncIterator[None]:
    """Cancels the work within after `seconds`; None: no limit. RequestError: it took longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestError(f"the answer took more than the {seconds:g} s of --timeout", status=504) from None


async def in_thread(request: Request, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `function`. RequestError: the client has gone. Rendering and encoding stop early, other work runs
    to its end."""
    over = Gone()

    async def work() -> T:
        with stopped_by(over):  # the thread runs in this context
            thread = asyncio.ensure_future(_started(request, partial(function, *arguments, **named)))
        thread.add_done_callback(
            lambda ended: ended.cancelled() or ended.exception()
        )  # otherwise asyncio logs an unretrieved exception
        try:
            return await asyncio.shield(thread)
        finally:
            over.set()
            await asyncio.wait({thread})

    return await unless_disconnected(request, work())


def _started(request: Request, function: Callable[[], T]) -> Awaitable[T]:
    """The work in a thread. Where a request's pictures may wait for others' pictures, it has threads of its own: those
    of Starlette are for the streams also."""
    app = request.scope.get("app")
    threads = None if app is None else app.state.served.threads
    if threads is None:
        return run_in_threadpool(function)
    return asyncio.get_running_loop().run_in_executor(threads, copy_context().run, function)
