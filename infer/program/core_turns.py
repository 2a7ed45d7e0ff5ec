"""Turns at the cores, for programs of several models in one process: they run one after the other, not against each
other.

Threads that wait for each other at barriers lose milliseconds whenever the system lets other threads run instead. So
programs run at the same time only if each of their threads has a core; the others wait, in the order of their coming.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE = 0.1  # seconds between two looks at whether those before still run or wait


class Runs(Protocol):
    """A user of turns. One thread runs it at a time."""

    @property
    def is_running(self) -> bool: ...


class CoreTurns:
    """Lets programs of at most `most` threads in total run at a time; a program with more threads runs alone.

    May be used from any thread. A turn is a matter of speed only: one that a fault has left without an end costs the
    others PATIENCE, and programs that run at the same time do each other no harm.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[Runs, float] = {}  # in the order of their coming; when each was last seen
        self._running: dict[Runs, int] = {}  # threads of each
        self._of_thread = threading.local()

    @contextmanager
    def turn(self, program: Runs, n: int) -> Iterator[None]:
        """Waits until a program of n threads may run; it may run until the context ends."""
        try:
            self._enter(program, n)
            yield
        finally:
            self.leave(program)

    def _enter(self, program: Runs, n: int) -> None:
        with self._changed:
            self._running.pop(program, None)
            if not self._waiting and self._fits(n):
                self._running[program] = n
                return
            begin = now = time.perf_counter()
            try:
                self._waiting[program] = begin
                while next(iter(self._waiting)) is not program or not self._fits(n):
                    if not self._changed.wait(PATIENCE):
                        self._remove_lost(now)
                    now = self._waiting[program] = time.perf_counter()
            finally:
                self._waiting.pop(program, None)
                self._of_thread.waited = self.waited + now - begin
                self._changed.notify_all()
            self._running[program] = n

    def _fits(self, n: int) -> bool:
        return not self._running or sum(self._running.values()) + n <= self.most

    def _remove_lost(self, before: float) -> None:
        """Removes programs that do not run, and programs that were not seen waiting for a while `before`."""
        for program in [each for each in self._running if not each.is_running]:
            del self._running[program]
        for program in [each for each, seen in self._waiting.items() if seen < before - 3 * PATIENCE]:
            del self._waiting[program]

    def leave(self, program: Runs) -> None:
        """Ends the turn of a program, if it has one."""
        with self._changed:
            if self._running.pop(program, None) is not None:
                self._changed.notify_all()

    @property
    def waited(self) -> float:
        """Seconds that this thread has waited for its turns so far."""
        seconds: float = getattr(self._of_thread, "waited", 0.0)
        return seconds

    def clock(self) -> float:
        """A clock in seconds that stands still while this thread waits for its turn: it measures work alone."""
        return time.perf_counter() - self.waited
