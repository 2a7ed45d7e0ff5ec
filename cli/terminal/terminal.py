"""The terminal while an answer is written: keys that are not echoed, and whether the screen is as we left it."""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator
from typing import Any


class Screen:
    """Notices what moves lines on the screen without us: another size, or another program after Ctrl-Z."""

    def __init__(self) -> None:
        self._size = _size()
        self.n_disturbed = 0

    def disturbed(self, *_: Any) -> None:
        """A signal says so."""
        self.n_disturbed += 1

    @property
    def columns_and_rows(self) -> tuple[int, int] | None:
        """Of now, None: nobody knows. A change counts as a disturbance."""
        size = _size()
        if size != self._size:
            self._size = size
            self.n_disturbed += 1
        return size


def _size() -> tuple[int, int] | None:
    # not COLUMNS of the environment, which does not change with the window
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return (columns, rows) if columns > 0 and rows > 0 else None


@contextlib.contextmanager
def quiet_keys() -> Iterator[Screen]:
    """What is typed meanwhile waits unseen for the next prompt: it would stand in the middle of the answer."""
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
    """Returns the settings as they were; None: there is no terminal, or it does not echo."""
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
