"""Progress of reading a prompt and its pictures: a line on stderr that disappears when the answer begins."""

import threading
import time
from functools import partial
from types import TracebackType
from typing import Self

from .. import console


class ReadingLine:
    """`step` and `picture` are progress callbacks; silent if stderr is not a terminal, and for the first DELAY seconds.

    A pass over some hundred tokens of a large model takes seconds; a thread updates the line in between.
    """

    DELAY = 0.5  # seconds
    EVERY = 0.25

    def __init__(self) -> None:
        self._status = console.StatusLine()
        self._title = ""  # of the picture that is being read; "": the prompt is
        self._done, self._total = 0, 0  # tokens or patches
        self._begun = self._told = 0.0  # times of the first and the last progress
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def step(self, done: int, total: int) -> None:
        """`done` of `total` tokens have been read."""
        self.picture("", done, total)

    def picture(self, title: str, done: int, total: int) -> None:
        """`done` of `total` patches of a picture have been read; 0 of 0: it begins."""
        self._told = time.monotonic()
        if title != self._title:
            self._begun = self._told
        self._title, self._done, self._total = title, done, total
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
            seconds, since = self._told - self._begun, time.monotonic() - self._told
            text = partial(picture_text, self._title) if self._title else reading_text
            self._status.show(text(self._done, self._total, seconds, since))
            if self._over.wait(self.EVERY):
                return


def reading_text(done: int, total: int, seconds: float, since: float = 0.0) -> str:
    """The line: `done` of `total` tokens in `seconds`, the last progress `since` seconds ago."""
    text = f"reading {done} of {total} tokens" if done else f"reading {total} tokens"
    if not done or seconds <= 0:
        return text
    return f"{text}, {done / seconds:.0f} per second, {_left(done, total, seconds, since)} left"


def picture_text(title: str, done: int, total: int, seconds: float, since: float = 0.0) -> str:
    """The line for `done` of `total` patches of a picture."""
    if not done or seconds <= 0:
        return f"reading {title}"
    return f"reading {title}, {100 * done // total} %, {_left(done, total, seconds, since)} left"


def _left(done: int, total: int, seconds: float, since: float) -> str:
    """The time that is left at the same speed, at least a second."""
    return console.duration(max(1.0, (total - done) * seconds / done - since))
