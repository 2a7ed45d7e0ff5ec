"""Checks in front of all routes: shutdown, origins of web pages, API keys, sizes and times of heads and bodies."""

import asyncio
import hmac
from collections.abc import Callable, Collection, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .client import KEY
from .errors import RequestError
from .models.router import ModelRouter

MOST_BODY = 32 << 20
MOST_BODY_SEEING = 2 * MOST_BODY  # if the model takes pictures: clients send all of a conversation with each question
MOST_BODIES = 8 * MOST_BODY  # of all requests in progress or waiting
OPEN_PATHS = ("/health", "/v1/health")  # need no key


def header(scope: Scope, name: bytes) -> str | None:
    """The last header of this name."""
    return next((value.decode("latin-1") for key, value in reversed(scope["headers"]) if key == name), None)


def most_body(router: ModelRouter) -> int:
    """The most bytes of a body."""
    return MOST_BODY_SEEING if router.sees else MOST_BODY


class Guard:
    """Middleware that sees requests before `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.request if scope["type"] == "http" else self.app)(scope, receive, send)

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, or calls `app`."""
        raise NotImplementedError


class Ending(Guard):
    """Counts requests in progress, and ends their use of models; answers new ones with 503 while the server shuts
    down."""

    def __init__(self, app: ASGIApp, router: ModelRouter) -> None:
        super().__init__(app)
        self.router = router

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.router.stopping:
            response = errors.response(503, "the server ends: it takes no more requests", Connection="close")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        self.router.n_running += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.router.n_running -= 1
            self.router.release(scope)


class Pages(Guard):
    """Answers 403 to web pages that may not use the server: pages of an origin that is not `allowed`, or that use
    another host name.

    A browser lets any page send forms and plain text to any address, so every page that a user opens can reach a server
    that listens on this machine only. A browser always names the page (Origin); programs do not. A request with a valid
    API key is allowed from any origin.

    hosts    names of this server in Host headers (listening.own_hosts); None: any
    allowed  origins that may use the server; "*": all
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, allowed: Collection[str]) -> None:
        super().__init__(app)
        self.hosts, self.allowed = hosts, allowed

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._why_not(header(scope, b"host") or "", header(scope, b"origin"), scope["scheme"])
        if why is None:
            await self.app(scope, receive, send)
        else:
            await errors.for_path(scope["path"], errors.response(403, why))(scope, receive, send)

    def _why_not(self, host: str, origin: str | None, scheme: str) -> str | None:
        if self.hosts is not None and _name_of(host) not in self.hosts:
            return (
                f"Host: {host[:80]!r} is not a name of this server. Use 127.0.0.1 or localhost, or a server with keys."
            )
        same = f"{scheme}://{host}".lower()
        if origin is None or origin.lower() == same or "*" in self.allowed or origin in self.allowed:
            return None
        return f"Origin: pages of {origin[:80]!r} may not use this server. Start it with --cors for them."


def _name_of(host: str) -> str | None:
    """The host name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class Keys(Guard):
    """Answers 401 to requests without one of the API keys. Keys are compared in constant time.

    is_open  whether a method and path need no key, as OPEN_PATHS
    shared   all keys share one owner of texts, instead of one owner per key
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[str],
        is_open: Callable[[str, str], bool] | None = None,
        *,
        shared: bool = False,
    ) -> None:
        super().__init__(app)
        self.keys, self.shared = [key.encode() for key in keys], shared
        self._is_open = is_open or (lambda method, path: False)

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["path"] in OPEN_PATHS or self._is_open(scope["method"], scope["path"])
        if self.keys and not is_open:
            key = self._key(scope)
            if key is None:
                response = errors.response(401, "a key is needed: Authorization: Bearer KEY")
                await errors.for_path(scope["path"], response)(scope, receive, send)
                return
            if not self.shared:
                scope[KEY] = key
        await self.app(scope, receive, send)

    def _key(self, scope: Scope) -> bytes | None:
        """The API key of a request, or None if it is not a known one."""
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ") or headers.get(b"x-api-key", b"")
        # compares all keys, so that the time reveals nothing
        return next(iter([key for key in self.keys if hmac.compare_digest(given, key)]), None)


class Heads(Guard):
    """Answers 431 to a head of more than `most` bytes. h11 limits incomplete heads only; a head that arrives in one
    piece passes it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        super().__init__(app)
        self.most = most

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": " and CRLF
        if size > self.most:
            response = errors.response(431, f"the head of the request is larger than {self.most} bytes")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        await self.app(scope, receive, send)


class Bodies(Guard):
    """Limits bodies: 413 for more than `most` bytes, with or without a Content-Length; 408 for one that arrives too
    slowly; 429 if the bodies of all requests together are too large."""

    def __init__(self, app: ASGIApp, seconds: float, most: int) -> None:
        super().__init__(app)
        self.seconds, self.most = seconds, most
        self._held = 0  # bytes of all bodies in memory

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        stated = header(scope, b"content-length") or "0"
        if not stated.isdigit() or len(stated) > 18 or int(stated) > self.most:
            response = errors.response(413, f"the body is larger than {self.most} bytes")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        body = _Body(self, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self._held -= body.size

    def hold(self, size: int) -> None:
        """Adds to the bytes held. RequestError: all bodies together are too large."""
        self._held += size
        if self._held > MOST_BODIES:
            raise RequestError("the bodies of all requests are too large together. Try again later.", status=429)


class _Body:
    """The body of one request, as it arrives."""

    def __init__(self, bodies: Bodies, receive: Receive) -> None:
        self.bodies, self._receive = bodies, receive
        self.size, self._complete = 0, False
        self._end = asyncio.get_running_loop().time() + bodies.seconds

    async def receive(self) -> Message:
        """The next message; after the body, waits for the client to disconnect."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            self._complete = True
            raise RequestError(f"the body did not come within {self.bodies.seconds:g} s", status=408) from None
        self._complete = not message.get("more_body", False)
        more = len(message.get("body", b""))
        self.size += more
        self.bodies.hold(more)
        if self.size > self.bodies.most:
            raise RequestError(f"the body is larger than {self.bodies.most} bytes", status=413)
        return message
