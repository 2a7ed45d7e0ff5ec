"""Runs work of a request in a thread that ends soon after the client has gone, and within the server's time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hybrid.infer.text.stops import Gone, stopped_by

from .served import SERVED, Served
from .streaming import unless_disconnected
from .time_limit import time_limit

P = ParamSpec("P")
T = TypeVar("T")


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


async def prepared(request: Request, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """As `in_thread`, for work that an answer waits for. RequestError: the answer's time is up."""
    served: Served = request.scope[SERVED]
    async with time_limit(request, served.settings.timeout).kept():
        return await in_thread(request, function, *arguments, **named)


def _started(request: Request, function: Callable[[], T]) -> Awaitable[T]:
    """The work in a thread. Where a request's pictures may wait for others' pictures, it has threads of its own: those
    of Starlette are for the streams also."""
    served: Served | None = request.scope.get(SERVED)
    threads = None if served is None else served.threads
    if threads is None:
        return run_in_threadpool(function)
    return asyncio.get_running_loop().run_in_executor(threads, copy_context().run, function)
