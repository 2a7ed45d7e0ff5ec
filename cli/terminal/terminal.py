"""The terminal while an answer is printed: echo of keys is off, and changes of the screen are noticed."""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator
from typing import Any


class Screen:
    """Notices when something else moves lines on the screen: a new size, or another program after Ctrl-Z."""

    def __init__(self) -> None:
        self._size = _size()
        self.n_disturbed = 0

    def disturbed(self, *_: Any) -> None:
        """Counts a change of the screen."""
        self.n_disturbed += 1

    @property
    def columns_and_rows(self) -> tuple[int, int] | None:
        """The current size, or None if unknown. A new size counts as a change."""
        size = _size()
        if size != self._size:
            self._size = size
            self.n_disturbed += 1
        return size


def _size() -> tuple[int, int] | None:
    # not $COLUMNS, which does not change with the window
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return (columns, rows) if columns > 0 and rows > 0 else None


@contextlib.contextmanager
def quiet_keys() -> Iterator[Screen]:
    """While open, typed keys are not echoed: they would appear inside the answer. They wait for the next prompt."""
    screen = Screen()
    echoed = _switch_echo_off()
    before: dict[signal.Signals, Any] = {}
    try:
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in (signal.SIGWINCH, signal.SIGCONT):
                before[number] = signal.signal(number, screen.disturbed)
        yield screen
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if echoed is not None:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, echoed)


def _switch_echo_off() -> list[Any] | None:
    """Turns echo off and returns the old settings; None: no terminal, or echo is off already."""
    try:
        before = termios.tcgetattr(sys.stdin.fileno())
        if not before[3] & termios.ECHO:
            return None
        quiet = list(before)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, quiet)
    except (termios.error, OSError, ValueError, AttributeError):
        return None
    return before
