"""Files that are whole or not there: written beside the old one, which they replace when they are on the disk."""

import contextlib
import glob
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows
    flock = None  # type: ignore[assignment]

_DIGITS = 4  # bytes of a random number in the name of an unfinished file


def replace_file(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write `chunks` beside `path` and rename: after a crash at any moment there is the old file or the new one.

    What an earlier attempt left behind when it was killed is removed first.
    """
    remove_unfinished(path.parent, glob.escape(path.name))
    with _temporary(path) as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).replace(path)
    if hasattr(os, "O_DIRECTORY"):
        # the rename itself is only on the disk when the folder is
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove what is left of files that were being written as `name` (* and ? stand for any) by processes that died.

    A file that is still being written is locked and stays.
    """
    for left in folder.glob(f".{name}.{'[0-9a-f]' * 2 * _DIGITS}.tmp") if flock is not None else ():
        with contextlib.suppress(OSError), left.open("rb") as file:
            flock(file, LOCK_EX | LOCK_NB)
            left.unlink()


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`, locked; it is gone afterwards unless it was renamed."""
    # not mkstemp, which would leave the file unreadable to everybody whom the umask allows
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_DIGITS)}.tmp")
    try:
        with temporary.open("xb") as file:
            if flock is not None:
                with contextlib.suppress(OSError):  # not every file system has locks
                    flock(file, LOCK_EX | LOCK_NB)
            yield file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
