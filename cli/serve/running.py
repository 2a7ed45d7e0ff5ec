"""uvicorn on a socket that is open already, until Ctrl-C or SIGTERM."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

GRACE_SECONDS = 5  # for answers that run when the server is told to end


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise them again when all is over; here they only end the server."""
        yield


def run(app: Starlette, listener: socket.socket) -> None:
    """Returns when a signal has ended it. Answers that run then have GRACE_SECONDS."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE_SECONDS, ws="none"
    )
    server = _Server(config)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, _end, server)
        await server.serve(sockets=[listener])

    asyncio.run(serve())


def _end(server: uvicorn.Server) -> None:
    server.should_exit = True
