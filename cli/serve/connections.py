"""One HTTP connection: uvicorn's, with limits on time, size and number.

uvicorn waits without limit for the head of a request, for its body and for a client that does not read; this class
does not. uvicorn's own limits stay: the size of a head, and how long an idle connection stays open.

A connection that is closed while its client still sends lingers: otherwise the client's system would drop the answer
unread when its next bytes arrive at a closed socket. The bytes are read and dropped, up to a limit.
"""

import asyncio
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import errors

MOST_RECEIVED = 32 << 10  # bytes parsed in one turn of the event loop: 60 ms if each is a chunk
MOST_CHUNKS = 1 << 18  # of a body; parsing one takes about 10 microseconds, whatever its size
SILENT_SECONDS = 1.0  # after this time a connection that has sent nothing counts as idle
LEAST_READ = 16 << 10  # bytes that a client must read in Bounds.unread_seconds
MOST_UNSENT = 16 << 10  # unsent bytes of a stream in this process; the system may hold as many
CONNECTION = "hybrid.connection"  # name in a request's state

SPARE_CONNECTIONS = 256  # connections without a request in progress or waiting


@dataclass(frozen=True)
class Bounds:
    """Limits of connections.

    head_seconds     until the head of a request is complete, from the connection or from its first byte
    body_seconds     until the body is complete
    idle_seconds     for a connection without a request
    unread_seconds   in which a client must read LEAST_READ bytes, or all that waits
    linger_seconds   in which a client that has its answer must stop sending
    most_dropped     bytes that such a client may still send
    most_head        bytes of a head
    most_connections at a time; more than can be answered or queued, so that a full queue can still be reported
    """

    head_seconds: float = 10
    body_seconds: float = 60
    idle_seconds: int = 75
    unread_seconds: float = 20
    linger_seconds: float = 10
    most_dropped: int = 256 << 20
    most_head: int = 16 << 10
    most_connections: int = 512

    @classmethod
    def of(cls, n_jobs: int) -> "Bounds":
        """Limits of a server that answers or queues n_jobs requests at a time."""
        return cls(most_connections=n_jobs + SPARE_CONNECTIONS)

    @property
    def tick(self) -> float:
        """Seconds between two checks of a connection."""
        return min(1.0, min(self.head_seconds, self.body_seconds, self.unread_seconds, self.linger_seconds) / 4)


class Lingering:
    """A transport whose `close` gives a client that is still sending time to read its answer."""

    def __init__(self, transport: asyncio.Transport, connection: "Connection") -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Closes at once, unless the client is in the middle of a request."""
        if not self._connection.linger():
            self._transport.close()

    def is_closing(self) -> bool:
        """True also while it lingers."""
        return self._connection.lingers or self._transport.is_closing()


class Incoming(h11.Connection):
    """h11's parser of a client's bytes, with a limit on the number of chunks."""

    _n_chunks = 0

    def next_event(self) -> Any:
        """As in h11. RemoteProtocolError: too many chunks."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._n_chunks += 1
            if self._n_chunks > MOST_CHUNKS:
                raise h11.RemoteProtocolError(f"the body has more than {MOST_CHUNKS} chunks", error_status_hint=413)
        elif isinstance(event, h11.Request):
            self._n_chunks = 0
        return event


class Connection(H11Protocol):
    """Closes itself when a limit is exceeded. The request in progress is cancelled as if the client had left."""

    bounds = Bounds()
    # shared by all connections of a server: each server makes a subclass
    _watch: asyncio.TimerHandle | None = None
    _open: "dict[Connection, None]"  # least recently used first; without connections that were closed to make room
    _unsent = 0  # unread bytes at _unread_since

    def __init_subclass__(cls) -> None:
        cls._open = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers 503 if there are too many connections and none can be closed for this one."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.conn = Incoming(h11.SERVER, self.bounds.most_head)
        self.transport.max_size = MOST_RECEIVED  # type: ignore[attr-defined]  # of asyncio's: bytes of one reading
        self.app_state = {**self.app_state, CONNECTION: self}
        self.transport = Lingering(self.transport, self)  # type: ignore[assignment]
        now = self.loop.time()
        # start of the wait for each limit; None: nothing is awaited
        self._head_since: float | None = now
        self._body_since: float | None = None
        self._unread_since: float | None = None
        self._lingers_since: float | None = None
        self._n_dropped = 0  # bytes dropped since the answer was complete
        self._writing_paused = self._is_bound = False
        self._used, self._is_silent = now, True
        if type(self)._watch is None:
            self._look_soon()
        if len(self._open) < self.bounds.most_connections or self._make_room():
            self._open[self] = None
        else:
            self._fail(503, f"this server keeps {self.bounds.most_connections} connections at a time. Try again later.")

    def data_received(self, data: bytes) -> None:
        """Parses bytes as HTTP; bytes after the answer are dropped, up to the limit."""
        self._used, self._is_silent = self.loop.time(), False
        if self in self._open:
            del self._open[self]
            self._open[self] = None
        if self.lingers or (self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete):
            self._n_dropped += len(data)
            if self._n_dropped > self.bounds.most_dropped:
                self.transport.abort()
        if not self.transport.is_closing():
            super().data_received(data)
            self._awaited()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        super().connection_lost(exc)

    def bound_unsent(self, most: int | None = MOST_UNSENT) -> None:
        """Limits the unsent bytes of a stream, here and in the system each, until the response is complete. Bytes in
        transit do not count. None: no limit, which is faster for an answer that is sent whole."""
        self._is_bound = most is not None
        self.transport.set_write_buffer_limits(high=most)
        with suppress(OSError, AttributeError):  # this system or kind of socket has no such limit
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, most or 0)

    def on_response_complete(self) -> None:
        self._n_dropped = 0
        if self._is_bound:
            self.bound_unsent(None)
        super().on_response_complete()

    def shutdown(self) -> None:
        """Closes the connection because the server ends."""
        if self.lingers:
            self.transport.abort()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        self._writing_paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._writing_paused = False
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Reports invalid HTTP, or a head that is too large, in the shape of all errors."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", 400)
        why = f"the head of the request is larger than {self.bounds.most_head} bytes" if status == 431 else str(error)
        self._fail(status, why or msg)

    # --- the end ---
    @property
    def lingers(self) -> bool:
        """Whether the answer is sent and only the end of the client's request is awaited."""
        return self._lingers_since is not None

    def linger(self) -> bool:
        """Ends the answer and drops the rest of the request; False if there is no rest, or the connection is gone."""
        if self.lingers:
            return True
        if self.transport.is_closing() or self.conn.their_state not in (h11.SEND_BODY, h11.ERROR):
            return False
        self._head_since = self._body_since = None
        self._lingers_since, self._n_dropped = self.loop.time(), 0
        try:
            self.transport.write_eof()
        except OSError:  # the client has gone
            return False
        self.flow.resume_reading()
        return True

    # --- bounds ---
    @property
    def _between_requests(self) -> bool:
        answered = self.cycle is not None and self.cycle.response_complete
        return answered and self._head_since is None and self.conn.their_state in (h11.IDLE, h11.DONE)

    def _is_idle(self, now: float) -> bool:
        return self._between_requests or (self._is_silent and now - self._used > SILENT_SECONDS)

    def _make_room(self) -> bool:
        """Closes the least recently used lingering connection, or else idle connection. False: there is neither."""
        now = self.loop.time()
        spare = next((each for each in self._open if each.lingers), None)
        if spare is None:
            spare = next((each for each in self._open if each._is_idle(now)), None)
        if spare is None:
            return False
        del self._open[spare]  # it is closed in a later turn of the loop; do not choose it again
        if spare.lingers:
            spare.transport.abort()
        else:
            spare.transport.close()
        return True

    def _awaited(self) -> None:
        """After the client has sent something, starts the wait for its next step."""
        now, state = self.loop.time(), self.conn.their_state
        self._head_since = (self._head_since or now) if state is h11.IDLE else None
        self._body_since = (self._body_since or now) if state is h11.SEND_BODY else None

    def _look_soon(self) -> None:
        """Starts the one timer that checks all connections: thousands of timers would delay requests."""
        type(self)._watch = self.loop.call_later(self.bounds.tick, self._look_at_all)

    def _look_at_all(self) -> None:
        type(self)._watch = None
        now = self.loop.time()
        for each in list(self.connections):
            if isinstance(each, Connection):
                each._look(now)
        if self.connections:
            self._look_soon()

    def _look(self, now: float) -> None:
        """Checks all limits; called at every tick."""
        bounds = self.bounds
        lingers_since = now if self._lingers_since is None else self._lingers_since
        if self._is_stuck(now) or now - lingers_since > bounds.linger_seconds:
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since > bounds.head_seconds:
            self._fail(408, f"the head of the request did not come within {bounds.head_seconds:g} s")
        elif self._body_since is not None and now - self._body_since > bounds.body_seconds:
            self._fail(408, f"the body did not come within {bounds.body_seconds:g} s")

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has read too little of the waiting bytes while none were added."""
        size = self.transport.get_write_buffer_size()
        complete = self.transport.is_closing() or (self.cycle is not None and self.cycle.response_complete)
        if size == 0 or not (self._writing_paused or complete):
            self._unread_since = None
        elif self._unread_since is None or size <= self._unsent - LEAST_READ:
            self._unread_since, self._unsent = now, size
        return self._unread_since is not None and now - self._unread_since > self.bounds.unread_seconds

    def _fail(self, status: int, message: str) -> None:
        """Sends an error, if no response can have begun, and closes the connection."""
        self._head_since = self._body_since = None
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = bytes(errors.response(status, message).body)
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            head = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
            self.transport.write(b"".join(self.conn.send(each) or b"" for each in (head, h11.Data(body))))
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its answer is not needed any more
            self.cycle.message_event.set()
        self.transport.close()
