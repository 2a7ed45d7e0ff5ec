"""Work in a thread ends when its client disconnects."""

import asyncio
import threading
from typing import Any

import pytest
from starlette.requests import Request

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.in_thread import in_thread
from hybrid.infer.text.stops import GoneError, look


def test_it_ends_when_the_client_goes() -> None:
    ended, why = threading.Event(), []

    async def run() -> None:
        gone, loop = asyncio.Event(), asyncio.get_running_loop()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        def work() -> None:
            loop.call_soon_threadsafe(gone.set)
            try:
                while True:
                    look()
            except GoneError as error:
                why.append(error)
            ended.set()

        with pytest.raises(RequestError, match="the client has gone"):
            await in_thread(Request({"type": "http"}, receive), work)
        assert ended.is_set() and len(why) == 1, "nobody's work goes on"

    asyncio.run(run())


def test_what_it_returns_and_raises() -> None:
    async def run() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        request = Request({"type": "http"}, receive)
        assert await in_thread(request, int, "12", base=16) == 18
        with pytest.raises(ValueError, match="invalid literal"):
            await in_thread(request, int, "x")

    asyncio.run(run())
