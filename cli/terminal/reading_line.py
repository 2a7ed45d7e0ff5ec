"""Progress of reading a prompt: a line on stderr that disappears when the answer begins."""

import threading
import time
from types import TracebackType
from typing import Self

from .. import console


class ReadingLine:
    """`step` is a progress callback; silent if stderr is not a terminal, and for the first DELAY seconds.

    A pass over some hundred tokens of a large model takes seconds; a thread updates the line in between.
    """

    DELAY = 0.5  # seconds
    EVERY = 0.25

    def __init__(self) -> None:
        self._status = console.StatusLine()
        self._done, self._total = 0, 0  # tokens
        self._begun = self._told = 0.0  # times of the first and the last progress
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def step(self, done: int, total: int) -> None:
        """`done` of `total` tokens have been read."""
        self._told = time.monotonic()
        self._done, self._total = done, total
        if self._thread is None and self._status.is_shown and not self._over.is_set():
            self._begun = self._told
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Removes the line for good."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._status.clear()

    def _run(self) -> None:
        if self._over.wait(self.DELAY):
            return
        while True:
            self._status.show(
                reading_text(self._done, self._total, self._told - self._begun, time.monotonic() - self._told)
            )
            if self._over.wait(self.EVERY):
                return


def reading_text(done: int, total: int, seconds: float, since: float = 0.0) -> str:
    """The line: `done` of `total` tokens in `seconds`, the last progress `since` seconds ago."""
    text = f"reading {done} of {total} tokens" if done else f"reading {total} tokens"
    if not done or seconds <= 0:
        return text
    left = max(0.0, (total - done) * seconds / done - since)
    return f"{text}, {done / seconds:.0f} per second, {console.duration(max(1.0, left))} left"
