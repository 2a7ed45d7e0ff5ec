"""The log of a running server: lines for people on stderr, or JSON on stdout, one object per line.

An object has `time` (UTC), `event` and `message`; other fields depend on the event. Bugs of ours carry a traceback.
"""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .. import console

if TYPE_CHECKING:
    from .request_log import RequestLog

LOGGERS = ("uvicorn.error", "asyncio")


class LogKind(StrEnum):
    """Values of --log. `off`: faults only."""

    PLAIN = "plain"
    JSON = "json"
    OFF = "off"


class Log:
    """Writes lines; may be called from any thread."""

    def __init__(self, kind: LogKind) -> None:
        self.kind = kind
        self._lock = threading.Lock()  # lines are not interleaved

    def say(self, event: str, message: str, **fields: Any) -> None:
        """Logs an event. fields: for the JSON log."""
        try:
            with self._lock:
                if self.kind is LogKind.JSON:
                    self._write(event, message, fields)
                elif self.kind is LogKind.PLAIN:
                    console.note(console.one_line(message))
        except BrokenPipeError:  # the log has no reader any more: go on serving
            self.kind = LogKind.OFF
        except OSError:  # the disk is full: later lines may fit
            pass

    def request(self, entry: "RequestLog") -> None:
        """Logs a finished request."""
        fields = {name: value for name, value in vars(entry).items() if name != "notes"}
        self.say("request", entry.line(), **fields)
        for note in entry.notes:
            self.say("note", note if self.kind is LogKind.JSON else f"note: {note}")

    def fault(self, message: str, error: BaseException | None) -> None:
        """Logs a bug of ours, whatever the kind of log."""
        lines = [] if error is None else traceback.format_exception(error)
        with self._lock, suppress(OSError):  # no reader, or a full disk: go on serving
            if self.kind is LogKind.JSON:
                self._write("fault", message, {"traceback": "".join(lines)} if lines else {})
            else:
                console.note(console.one_line(message))
                print("".join(lines), end="", file=sys.stderr, flush=True)

    def _write(self, event: str, message: str, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "message": console.one_line(message), **console.plain(fields)}
        print(json.dumps(line, ensure_ascii=False), flush=True)

    @contextmanager
    def records(self) -> Iterator[None]:
        """While open, errors that uvicorn and asyncio log are logged as faults."""
        handler = _Records(self)
        for name in LOGGERS:
            logging.getLogger(name).addHandler(handler)
        try:
            yield
        finally:
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(handler)


class _Records(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.ERROR)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        from asyncio import CancelledError  # slow to import, and `hybrid serve --help` imports this module

        error = record.exc_info[1] if record.exc_info else None
        # cancelling answers at the end of --grace is no fault
        if isinstance(error, CancelledError) or (error is None and "graceful shutdown" in record.getMessage()):
            return
        self.log.fault(record.getMessage().strip(), error)
