"""Short answers beside streams that nobody reads: how long a client waits that asks for one after the other.

    python benchmarks/serve_unread.py MODEL.gguf [--parallel 4] [--unread 24 100] [--idle 5000] [--requests 100]

The client is 127.0.0.1, the streams are 127.0.0.2's: of 2000 tokens, and requested again when the server drops them.
`readers`: as many streams as slots, read as they arrive. `--idle`: with silent connections. Figures are seconds of
answers of 16 tokens; `refused`: answers with a status other than 200.

Nothing else may compute meanwhile: the use by others is printed.
"""

import argparse
import asyncio
import json
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from http_connection import Connection
from quiet import Watch
from servers import ours

CLIENT, OTHERS = "127.0.0.1", "127.0.0.2"
N_LONG, N_SHORT = 2000, 16
HEAD = ("beside", "first s", "p50 s", "p99 s", "most s", "refused", "others cores")


def asking(port: int, body: dict[str, Any]) -> bytes:
    """A request for a stream."""
    text = json.dumps({"stream": True, "temperature": 0, "ignore_eos": True, **body}).encode()
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: {len(text)}\r\n\r\n".encode()
        + text
    )


class Streams:
    """Keeps streams open within the context that are requested and not read, or read and dropped."""

    def __init__(self, port: int, n: int, *, reads: bool) -> None:
        self.port, self.reads, self._rng = port, reads, random.Random(n)
        self._poll, self._socks = select.poll(), dict[int, socket.socket]()
        for _ in range(n):
            self._ask()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for sock in self._socks.values():
            sock.close()

    def _ask(self) -> None:
        sock = socket.create_connection((CLIENT, self.port), source_address=(OTHERS, 0))
        prompt = [self._rng.randrange(3, 250) for _ in range(16)]
        sock.sendall(asking(self.port, {"prompt": prompt, "max_tokens": N_LONG}))
        self._poll.register(sock, select.POLLIN if self.reads else 0)
        self._socks[sock.fileno()] = sock

    def _run(self) -> None:
        while not self._ends.is_set():
            for number, event in self._poll.poll(100):
                sock, said = self._socks[number], b""
                if event == select.POLLIN:
                    with suppress(OSError):
                        said = sock.recv(1 << 16)
                if not said or said.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") or b"HTTP/1.1 429" in said:
                    self._poll.unregister(sock)
                    self._socks.pop(number).close()
                    self._ask()


@contextmanager
def idle(port: int, n: int) -> Iterator[None]:
    """Keep n silent connections, all accepted by the server, which may close them."""
    with ExitStack() as stack:
        for _ in range(n):
            stack.enter_context(socket.create_connection((CLIENT, port)))
        while n and asyncio.run(healthy(port)) != 200:
            time.sleep(0.1)
        yield


async def healthy(port: int) -> int:
    """The status of /health."""
    async with Connection(port) as connection:
        return (await connection.ask("GET", "/health"))[0]


async def asked(port: int, n: int) -> tuple[list[float], int]:
    """Seconds of successive short answers, and how many were refused."""
    took, refused, rng = [], 0, random.Random(1)
    async with Connection(port) as connection:
        for _ in range(n):
            prompt = [rng.randrange(3, 250) for _ in range(16)]
            body = {"prompt": prompt, "max_tokens": N_SHORT, "temperature": 0, "ignore_eos": True}
            begin = time.perf_counter()
            status, _ = await connection.ask("POST", "/v1/completions", body)
            took.append(time.perf_counter() - begin)
            refused += status != 200
    return took, refused


def measured(given: argparse.Namespace, name: str, n: int, *, reads: bool = False, n_idle: int = 0) -> list[str]:
    """A row of the table, from a new server."""
    options = ("--parallel", given.parallel, "-c", 4096, "--checkpoint-budget", 1 << 30)
    with ours(given.model, *options) as server, Watch() as watch:
        with Streams(server.port, given.parallel, reads=True):  # compiles, and measures steps
            asyncio.run(asked(server.port, 50))
        with Streams(server.port, n, reads=reads), idle(server.port, n_idle):
            took, refused = asyncio.run(asked(server.port, given.requests))
    p50, p99 = np.percentile(took, [50, 99])
    others = f"{watch.usage.others:.1f}" if watch.usage else ""
    return [name, *(f"{t:.3f}" for t in (took[0], p50, p99, max(took))), str(refused), others]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--unread", type=int, nargs="*", default=[24, 100])
    parser.add_argument("--idle", type=int, nargs="*", default=[5000], help="silent connections for the last row")
    parser.add_argument("--requests", type=int, default=100)
    given = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}")
    rows: list[tuple[str, int, dict[str, Any]]] = [
        ("nothing", 0, {}),
        (f"{given.parallel} streams that are read", given.parallel, {"reads": True}),
        *((f"{n} unread streams", n, {}) for n in given.unread),
        *((f"{n} unread streams, {m} idle connections", n, {"n_idle": m}) for n in given.unread for m in given.idle),
    ]
    for name, n, more in rows:
        print(f"| {' | '.join(measured(given, name, n, **more))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
