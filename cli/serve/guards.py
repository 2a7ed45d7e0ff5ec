"""What stands before the routes: whether the server ends, whose pages ask, keys, sizes and times of bodies."""

import asyncio
import hmac
from collections.abc import Callable, Collection, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .client import KEY
from .errors import RequestError
from .served import Served

MOST_BODY = 32 << 20
MOST_BODIES = 8 * MOST_BODY  # of all requests that are being answered, or wait
OPEN_PATHS = ("/health", "/v1/health")  # without a key


def header(scope: Scope, name: bytes) -> str | None:
    """The last header of this name."""
    return next((value.decode("latin-1") for key, value in reversed(scope["headers"]) if key == name), None)


class Guard:
    """Looks at requests before `app` does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.request if scope["type"] == "http" else self.app)(scope, receive, send)

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let `app` do it."""
        raise NotImplementedError


class Ending(Guard):
    """Counts the requests that are being answered. 503 for new ones while the server ends."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        super().__init__(app)
        self.served = served

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.served.stopping:
            response = errors.response(503, "the server ends: it takes no more requests", Connection="close")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        self.served.n_running += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.served.n_running -= 1


class Pages(Guard):
    """403 for what pages of the web may not do: ask from another origin than `allowed`, or under a name of theirs.

    A browser lets a page send a form or plain text anywhere without asking first, so that whoever listens on this
    machine only is reached by every page that somebody here looks at. A browser always says whose page it is (Origin);
    programs do not. Whoever has a key has been let in by its owner, whatever he asks from.

    hosts    names of this server, for Host headers (listening.own_hosts); None: any
    allowed  origins that may ask ("*": all)
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
    """Of a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class Keys(Guard):
    """401 without one of the keys, compared in constant time.

    is_open  of a method and a path: asked for without a key, as OPEN_PATHS are
    shared   whether texts belong to all keys together, and not to the one that sent them
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
        """The one that a request comes with."""
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ") or headers.get(b"x-api-key", b"")
        # all are compared, so that the time does not say which one is near
        return next(iter([key for key in self.keys if hmac.compare_digest(given, key)]), None)


class Heads(Guard):
    """431 for a head of more than `most` bytes. h11 counts the bytes of incomplete heads only: one that comes in one
    piece passes it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        super().__init__(app)
        self.most = most

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": " and the end of the line
        if size > self.most:
            response = errors.response(431, f"the head of the request is larger than {self.most} bytes")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        await self.app(scope, receive, send)


class Bodies(Guard):
    """413 for a body of more than MOST_BODY bytes, whether it says so or not; 408 for one that takes too long to come;
    429 where those that are here already are too much together."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        super().__init__(app)
        self.seconds = seconds
        self._held = 0  # bytes of all bodies

    async def request(self, scope: Scope, receive: Receive, send: Send) -> None:
        stated = header(scope, b"content-length") or "0"
        if not stated.isdigit() or len(stated) > 18 or int(stated) > MOST_BODY:
            response = errors.response(413, f"the body is larger than {MOST_BODY} bytes")
            await errors.for_path(scope["path"], response)(scope, receive, send)
            return
        body = _Body(self, receive)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self._held -= body.size

    def hold(self, size: int) -> None:
        """RequestError: too much is held."""
        self._held += size
        if self._held > MOST_BODIES:
            raise RequestError("the bodies of all requests are too large together. Try again later.", status=429)


class _Body:
    """Of one request, as it comes."""

    def __init__(self, bodies: Bodies, receive: Receive) -> None:
        self.bodies, self._receive = bodies, receive
        self.size, self._complete = 0, False
        self._end = asyncio.get_running_loop().time() + bodies.seconds

    async def receive(self) -> Message:
        """The next part; after the last one the end of the client."""
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
        if self.size > MOST_BODY:
            raise RequestError(f"the body is larger than {MOST_BODY} bytes", status=413)
        return message
