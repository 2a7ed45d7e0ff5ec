"""Fetches a file from a URL that a client chose, from public addresses only.

All addresses of a host are checked, and the connection goes to a checked one: the name is not looked up again. Each
redirect is checked like the first URL. Bytes, time and redirects are bounded; no cookies, credentials or proxies.
"""

import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from hybrid.infer.pictures.decode import LIMITS
from hybrid.infer.text.stops import look
from hybrid.quant.ggml.errors import PictureError, shown

from .addresses import is_public

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 3
LONGEST_URL = 8192  # characters: signed URLs are long
_PIECE = 1 << 16
_NAME = re.compile(r"[a-z0-9.:_-]+")  # of a host, or its address
_READABLE = "%/?:@!$&'()*+,;=-._~[]"  # characters of a URL that are not escaped

Address = tuple[socket.AddressFamily, Any]  # for socket.connect


def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host. OSError: it has no address."""
    return [(each[0], each[4]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def connect(family: socket.AddressFamily, address: Any, seconds: float) -> socket.socket:
    """A connection to an address. OSError."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(seconds)
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


def host_name(text: str) -> str:
    """A host's name as connections need it: lower case, ASCII; "": the text is no name of a host."""
    try:
        host = urlsplit(f"//{text}").hostname
        name = "" if host != text.strip("[]").lower() else host.rstrip(".").encode("idna").decode()
        return name if _NAME.fullmatch(name) else ""
    except ValueError:  # UnicodeError too
        return ""


@dataclass(frozen=True)
class PictureURL:
    """What a URL names."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "PictureURL":
        """PictureError: a URL that is not fetched, whatever it names."""
        if len(url) > LONGEST_URL or not url.isprintable() or any(c in url for c in " \\"):
            raise PictureError(f"its URL {shown(url, 80)} is too long, or has spaces. Give another one.")
        try:
            parts = urlsplit(url)
            port, host = parts.port, (parts.hostname or "").rstrip(".").encode("idna").decode()
        except ValueError:  # UnicodeError too
            raise PictureError(f"its URL {shown(url, 80)} is damaged. Give another one.") from None
        if parts.scheme not in PORTS:
            raise PictureError(f"its URL begins with {shown(parts.scheme, 20)}:, expected https:, http: or data:.")
        if parts.username is not None or parts.password is not None:
            raise PictureError("its URL has a user's name. Give one without credentials.")
        if not host:
            raise PictureError(f"its URL {shown(url, 80)} names no host. Give another one.")
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), _READABLE)
        return cls(parts.scheme, host, PORTS[parts.scheme] if port is None else port, path)

    @property
    def origin(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class _Timed(io.RawIOBase):
    """Reads from a connection until a moment, however slowly it sends. TimeoutError."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self._end = connection, end

    def readable(self) -> bool:
        return True

    def readinto(self, into: "WriteableBuffer") -> int:
        look()
        self._connection.settimeout(left(self._end))
        return self._connection.recv_into(into)

    # http.client asks a socket for this
    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(self, _PIECE)


def left(end: float) -> float:
    """The seconds until a moment. TimeoutError: none."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


@cache
def _lookups() -> ThreadPoolExecutor:
    """Threads that look up names: the system's resolver cannot be interrupted."""
    return ThreadPoolExecutor(4, "names")


@dataclass(frozen=True)
class Fetcher:
    """Fetches files.

    any_host  from any host, at the ports 80 and 443
    hosts     from these hosts, at any port
    seconds   until the last byte of a file, with all redirects
    context   of TLS; None: the system's
    """

    any_host: bool = True
    hosts: frozenset[str] = frozenset()
    seconds: float = 15.0
    context: ssl.SSLContext | None = None
    resolve: Callable[[str, int], Sequence[Address]] = field(default=resolve, repr=False)
    connect: Callable[[socket.AddressFamily, Any, float], socket.socket] = field(default=connect, repr=False)

    def fetch(self, url: str, most: int = LIMITS.nbytes) -> bytes:
        """The bytes that a URL names, at most `most`. PictureError says in one line why not."""
        end = time.monotonic() + self.seconds
        for _ in range(MOST_REDIRECTS + 1):
            target = PictureURL.of(url)
            try:
                with closing(self._connected(target, end)) as connection:
                    found = self._asked(connection, target, end, most)
                if isinstance(found, bytes):
                    return found
                url = urljoin(url, found)
            except TimeoutError:
                raise PictureError(
                    f"its URL did not send the file within {self.seconds:g} s. Give its bytes instead."
                ) from None
            except (OSError, HTTPException, ValueError) as error:
                said = shown(type(error).__name__, 60)
                raise PictureError(f"its URL at {shown(target.host, 80)} cannot be fetched ({said}).") from None
        raise PictureError(f"its URL redirects more than {MOST_REDIRECTS} times. Give the last one.")

    def _connected(self, target: PictureURL, end: float) -> socket.socket:
        """A connection to a checked address of the target."""
        if target.host not in self.hosts:
            if not self.any_host:
                raise PictureError(f"its URL is at {shown(target.host, 80)}, from where no pictures are fetched here.")
            if target.port not in PORTS.values():
                raise PictureError(f"its URL has the port {target.port}, expected 80 or 443.")
        found = list(_lookups().submit(self.resolve, target.host, target.port).result(left(end)))
        if not found or not all(is_public(str(address[0])) for _, address in found):
            raise PictureError(f"its URL is at {shown(target.host, 80)}, which is no public address.")
        problem: OSError = OSError("no address")
        for family, address in found:
            try:
                connection = self.connect(family, address, left(end))
            except TimeoutError:
                raise
            except OSError as error:
                problem = error
                continue
            return connection if target.scheme == "http" else self._secured(connection, target, end)
        raise problem

    def _secured(self, connection: socket.socket, target: PictureURL, end: float) -> socket.socket:
        try:
            connection.settimeout(left(end))
            context = self.context or ssl.create_default_context()
            return context.wrap_socket(connection, server_hostname=target.host)
        except BaseException:
            connection.close()
            raise

    def _asked(self, connection: socket.socket, target: PictureURL, end: float, most: int) -> bytes | str:
        """The bytes of the file, or the URL that the server redirects to."""
        head = (
            f"GET {target.path} HTTP/1.1", f"Host: {target.origin}", "User-Agent: hybrid", "Accept: image/*",
            "Accept-Encoding: identity", "Connection: close",
        )  # fmt: skip
        connection.settimeout(left(end))
        connection.sendall("".join(f"{line}\r\n" for line in (*head, "")).encode("ascii"))
        timed: Any = _Timed(connection, end)
        with closing(HTTPResponse(timed, method="GET")) as response:
            response.begin()
            if response.status in REDIRECTS and (moved := response.getheader("Location")) is not None:
                return moved
            if response.status != 200:
                raise PictureError(f"its URL at {shown(target.host, 80)} answers with status {response.status}.")
            too_large = PictureError(f"its URL has more than {most} bytes. Give a smaller file.")
            if response.length is not None and response.length > most:
                raise too_large
            told, data = response.length, bytearray()
            while piece := response.read1(_PIECE):
                data += piece
                if len(data) > most:
                    raise too_large
        if told is not None and len(data) < told:
            raise PictureError(f"its URL sent {len(data)} of {told} bytes. Try again.")
        if not data:
            raise PictureError("its URL has no bytes. Give another one.")
        return bytes(data)
