"""A resolver of names and a server on this machine, in place of the network that pictures are fetched from."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

from hybrid.cli.serve.pictures.fetching import Address, Fetcher

PUBLIC = "93.184.216.34"
Answer = bytes | Callable[[socket.socket], None]


class Site:
    """A server whose answers are `pages` by path. `heads`: of all requests."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Answer] = {}
        self.heads: list[str] = []
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self._listener.settimeout(0.02)
        while not self.over.is_set():
            with suppress(OSError):  # nobody came, or somebody left
                connection = self._listener.accept()[0]
                connection.settimeout(5)
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        self.heads.append(head.decode())
        answer = self.pages[head.split()[1].decode()]
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(answer)
        if self._context is not None:
            connection.close()

    def close(self) -> None:
        self.over.set()
        self._thread.join()
        self._listener.close()


@contextmanager
def site_of(context: ssl.SSLContext | None = None) -> Iterator[Site]:
    made = Site(context)
    try:
        yield made
    finally:
        made.close()


class Network:
    """Names with addresses; every public address leads to the test's server. `reached`: addresses with connections."""

    def __init__(self, site: Site | None, names: dict[str, list[str]] | None = None) -> None:
        self.site, self.asked, self.reached = site, list[str](), list[tuple[Any, ...]]()
        self.names = {"pictures.example": [PUBLIC], **(names or {})}

    def resolve(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        addresses = self.names.get(host)
        if addresses is None:
            addresses = [host]
            ip_address(host)
        v6 = socket.AF_INET6
        return [(v6, (a, port, 0, 0)) if ":" in a else (socket.AF_INET, (a, port)) for a in addresses]

    def connect(self, family: socket.AddressFamily, address: Any, seconds: float) -> socket.socket:
        self.reached.append(address[:2])
        if self.site is None:
            raise ConnectionRefusedError
        return socket.create_connection(("127.0.0.1", self.site.port), seconds)

    def fetcher(self, **more: Any) -> Fetcher:
        return Fetcher(resolve=self.resolve, connect=self.connect, **{"seconds": 3.0, **more})


def page(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode()
    return head + body


def sized(body: bytes, n: int | None = None) -> bytes:
    return page(body, "200 OK", f"Content-Length: {len(body) if n is None else n}")


def moved(to: str, status: int = 302) -> bytes:
    return page(b"", f"{status} Moved", f"Location: {to}", "Content-Length: 0")
