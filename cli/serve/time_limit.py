"""The limit on the time of an answer (`--timeout`): preparing its prompt, the queue, and generating it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request

from .errors import RequestError

PLACE = "hybrid.time_limit"  # name in a request's scope


@dataclass(frozen=True)
class TimeLimit:
    """seconds: of an answer; end: when it must be there, in the loop's time. None: no limit."""

    seconds: float | None = None
    end: float | None = None

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Ends the work in the context when its time is up. RequestError says so."""
        over = asyncio.timeout_at(self.end)
        try:
            async with over:
                yield
        except TimeoutError:
            if not over.expired():
                raise
            message = f"the answer took more than the {self.seconds:g} s of --timeout"
            raise RequestError(message, status=504) from None


def time_limit(request: Request, seconds: float | None) -> TimeLimit:
    """The limit of a request's answer, counted from the first call, when its body is there."""
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    limit: TimeLimit = request.scope.setdefault(PLACE, TimeLimit(seconds, end))
    return limit
