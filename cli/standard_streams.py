"""Standard streams that were closed before the program began, as `hybrid inspect FILE >&-` leaves them."""

import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_missing() -> None:
    """Opens each standard stream that is missing, before a file gets its number.

    stdin ends at once. stdout is a pipe that nobody reads, so that a command ends as in `hybrid ... | true` when it
    writes, and runs as ever when it does not. stderr is dropped: Python would print its notes to stdout instead.
    """
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is None:
            opened = _unread_pipe() if name == "stdout" else os.open(os.devnull, os.O_RDWR)
            if not _is_open(number):  # a file of a library may have the number already
                os.dup2(opened, number)
                os.close(opened)
                opened = number
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", errors="surrogateescape", closefd=False))


def _unread_pipe() -> int:
    """The end of a pipe that is written to; the other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
