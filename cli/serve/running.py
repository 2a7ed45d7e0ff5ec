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
from .models.router import ModelRouter

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


def run(app: Starlette, router: ModelRouter, listener: socket.socket, log: Log, *, grace: float) -> None:
    """Serves until a signal or a fault of the only model; returns with all services closed.

    After a signal, new requests are refused and running ones have `grace` seconds; then they are cancelled. A second
    signal cancels them at once, a third one kills the process.
    """
    with log.records():
        asyncio.run(_Run(app, router, listener, log, grace).run())


class _Run:
    def __init__(self, app: Starlette, router: ModelRouter, listener: socket.socket, log: Log, grace: float) -> None:
        self.router, self.listener, self.log, self.grace = router, listener, log, grace
        # only a proxy or a program on this machine reaches a socket file
        trusted = {"proxies": "*"} if listener.family == socket.AF_UNIX else {}
        self.server = Server(app, router.settings.bounds, **trusted)
        self._told, self._hurried = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.router.on_ended = self._told.set
        self.router.begin()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, self._signal)
        serving = asyncio.ensure_future(self.server.serve(sockets=[self.listener]))
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        self.router.stopping = True
        n = self.router.n_running
        if self.router.is_open:
            waits = f", in at most {self.grace:g} s: {requests(n)} in progress" if n else ""
            self.log.say("stopping", f"the server ends{waits}", running=n, grace=self.grace)
            await self._grace()
        await self.router.close()
        n = self.router.n_running
        self.server.should_exit = True
        await serving
        cancelled = f"; {requests(n)} cancelled" if n else ""
        self.log.say("end", f"the server has ended{cancelled}", cancelled=n)

    async def _grace(self) -> None:
        """Waits until no request runs, the time is over or another signal arrives."""
        end = time.monotonic() + self.grace
        while self.router.n_running and self.router.busy and not self._hurried.is_set():
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
