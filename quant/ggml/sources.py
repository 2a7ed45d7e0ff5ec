"""Checks that input files are regular files: a pipe would block, and a device may have no end."""

import stat
from pathlib import Path

from .errors import UsageError, shown


def check_source(path: Path, what: str) -> None:
    """UsageError: `path` is a pipe, a device or a socket. what: the file to give instead, for the message.

    A missing path or a folder passes: opening it reports that. Raises OSError if it cannot be examined.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{shown(path)} is not a regular file. Give the path of {what}.")
