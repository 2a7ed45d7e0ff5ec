"""Standard streams that were closed before the program started, as in `hybrid inspect FILE >&-`."""

import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_missing() -> None:
    """Opens each missing standard stream, before another file gets its number.

    stdin is empty. stdout is a pipe without a reader: a command that writes ends as in `hybrid ... | true`, one that
    does not write runs as usual. stderr is discarded: Python would print its messages to stdout instead.
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
    """The write end of a pipe whose read end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
