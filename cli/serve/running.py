"""Runs uvicorn on an open socket until Ctrl-C, SIGTERM or a fault of the model."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from .connections import Bounds, Connection
from .log import Log
from .served import Served

LAST_WORDS_SECONDS = 2  # time for the errors of cancelled answers to reach clients


class Server(uvicorn.Server):
    """uvicorn's server with our connections; its caller handles signals. proxies: addresses whose forwarding headers
    are trusted."""

    def __init__(self, app: Starlette, bounds: Bounds, proxies: str = "127.0.0.1,::1") -> None:
        config = uvicorn.Config(
            app,
            http=type("BoundConnection", (Connection,), {"bounds": bounds}),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            forwarded_allow_ips=proxies,
            h11_max_incomplete_event_size=bounds.most_head,
            timeout_keep_alive=bounds.idle_seconds,
            timeout_graceful_shutdown=LAST_WORDS_SECONDS,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: uvicorn would raise signals again after it has ended."""
        yield


def run(app: Starlette, served: Served, listener: socket.socket, log: Log, *, grace: float) -> None:
    """Serves until a signal or a fault; returns with the service closed.

    After a signal, new requests are refused and running ones have `grace` seconds; then they are cancelled. A second
    signal cancels them at once, a third one kills the process.
    """
    with log.records():
        asyncio.run(_Run(app, served, listener, log, grace).run())


class _Run:
    def __init__(self, app: Starlette, served: Served, listener: socket.socket, log: Log, grace: float) -> None:
        self.served, self.listener, self.log, self.grace = served, listener, log, grace
        # only a proxy or a program on this machine reaches a socket file
        trusted = {"proxies": "*"} if listener.family == socket.AF_UNIX else {}
        self.server = Server(app, served.bounds, **trusted)
        self._told, self._hurried = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        service = self.served.service

        def closed() -> None:
            loop.call_soon_threadsafe(self._told.set)

        service.on_closed = closed
        if not service.is_open:  # the model failed before the callback was set
            self._told.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, self._signal)
        serving = asyncio.ensure_future(self.server.serve(sockets=[self.listener]))
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        self.served.stopping = True
        n = self.served.n_running
        if service.is_open:
            waits = f", in at most {self.grace:g} s: {requests(n)} in progress" if n else ""
            self.log.say("stopping", f"the server ends{waits}", running=n, grace=self.grace)
            await self._grace()
        service.on_closed = None
        await asyncio.to_thread(service.close)
        n = self.served.n_running
        self.server.should_exit = True
        await serving
        cancelled = f"; {requests(n)} cancelled" if n else ""
        self.log.say("end", f"the server has ended{cancelled}", cancelled=n)

    async def _grace(self) -> None:
        """Waits until no request runs, the time is over or another signal arrives."""
        end = time.monotonic() + self.grace
        while self.served.n_running and self.served.service.is_open and not self._hurried.is_set():
            left = end - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), min(left, 0.05))

    def _signal(self) -> None:
        if self._told.is_set():
            self._hurried.set()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().remove_signal_handler(number)
        self._told.set()


def requests(n: int) -> str:
    """A number of requests: `1 request is`, `2 requests are`."""
    return "1 request is" if n == 1 else f"{n} requests are"
