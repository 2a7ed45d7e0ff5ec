"""What stands before the routes: keys and sizes."""

import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .errors import RequestError

MOST_BODY = 32 << 20


class Keys:
    """401 without one of the keys, compared in constant time."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self.app, self.keys = app, [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.keys and scope["path"] != "/health" and not self._has_key(scope):
            response = errors.response(401, "a key is needed: Authorization: Bearer KEY")
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ") or headers.get(b"x-api-key", b"")
        # all are compared, so that the time does not say which one is near
        return sum(hmac.compare_digest(given, key) for key in self.keys) > 0


class Limits:
    """413 for a body of more than MOST_BODY bytes, whether it says so or not."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > MOST_BODY:
            response = errors.response(413, f"the body is larger than {MOST_BODY} bytes")
            await response(scope, receive, send)
            return
        n = 0

        async def counted() -> Message:
            nonlocal n
            message = await receive()
            n += len(message.get("body", b""))
            if n > MOST_BODY:
                raise RequestError(f"the body is larger than {MOST_BODY} bytes", status=413)
            return message

        await self.app(scope, counted, send)
