"""HTTP/1.1 for load and soak tests: it sees when each part arrives, and may close at any moment."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Self


class Connection:
    """A connection to a server on this machine, for successive requests until the server closes it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close it at once, even during a response."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def send(self, method: str, path: str, body: bytes = b"", stated: int | None = None) -> None:
        """stated: the Content-Length, if it should differ from the body's."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        n = len(body) if stated is None else stated
        self._streams[1].write(f"{head}Content-Length: {n}\r\n\r\n".encode() + body)
        await self._streams[1].drain()

    async def status(self) -> int:
        """The response's status. Raises ConnectionError without a response."""
        assert self._streams is not None
        try:
            head = (await self._streams[0].readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError as error:
            self.leave()
            raise ConnectionError(f"closed after {error.partial[:100]!r}") from None
        first, *lines = head.split("\r\n")
        self._headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        return int(first.split()[1])

    async def parts(self) -> AsyncIterator[bytes]:
        """Parts of the body as they arrive. Raises ConnectionError if it is cut off."""
        assert self._streams is not None
        reader = self._streams[0]
        try:
            if self._headers.get("transfer-encoding") == "chunked":
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    yield (await reader.readexactly(size + 2))[:-2]
                await reader.readexactly(2)
            else:
                yield await reader.readexactly(int(self._headers.get("content-length", 0)))
        except asyncio.IncompleteReadError as error:
            self.leave()
            raise ConnectionError(f"cut off after {error.partial[:100]!r}") from None
        if self._headers.get("connection") == "close":
            self.leave()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON, or the text if it is not JSON."""
        await self.send(method, path, b"" if body is None else json.dumps(body).encode())
        status = await self.status()
        text = b"".join([part async for part in self.parts()]).decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    async def events(self) -> AsyncIterator[Any]:
        """Values of server-sent events; None for a comment; "[DONE]" ends them."""
        left = b""
        async for part in self.parts():
            *whole, left = (left + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in whole:
                data = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
                if not data:
                    yield None
                elif data != [b"[DONE]"]:
                    yield json.loads(b"\n".join(data))
