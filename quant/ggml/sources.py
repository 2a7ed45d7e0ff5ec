"""Input files are regular files: a pipe would be waited for, and a device may have no end."""

import stat
from pathlib import Path

from .errors import UsageError, shown


def check_source(path: Path, what: str) -> None:
    """UsageError when `path` is a pipe, a device or a socket. what: the file to give instead, for the message.

    A path that does not exist or is a folder passes: opening it says so. Raises OSError when it cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{shown(path)} is not a regular file. Give the path of {what}.")
