"""Files that are either complete or absent: written beside the old file, which they replace once they are on disk.

    .NAME.0123abcd.tmp     an unfinished NAME, in NAME's folder; locked while its writer lives

A symbolic link stays, and the file that it names is replaced. The new file has the permissions of the old one; without
an old one the umask applies. Leftovers of killed processes are found by their names and missing locks: the next writer
of NAME removes them.
"""

import atexit
import contextlib
import errno
import glob
import os
import secrets
from collections.abc import Iterable, Iterator
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from .errors import HybridError, UsageError, shown

_DIGITS = 4  # bytes of a random number in the name of an unfinished file
_LONGEST = 255 - len("..tmp") - 1 - 2 * _DIGITS  # bytes of NAME in it; file systems allow 255 in all


_unfinished: dict[Path, int] = {}
"""Files that have no name yet, and the process that writes each."""


@atexit.register
def _remove_own() -> None:
    """Removes files that were opened just before an interrupt: it may come between two lines, the end of a `with` and
    the beginning of its __exit__."""
    for path, process in list(_unfinished.items()):
        if process == os.getpid():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class Replacement:
    """A file that gets its name when it is complete. Use it in a `with`, or step by step:

    `open`, then `complete`, which writes it to disk, and `place`, which gives it its name. `discard`, at any time and
    also after `place`, removes a file without its name. Methods raise OSError; `open` raises UsageError as
    `check_target` does.

    mode: permissions of a new file, less the umask. durable = False does not wait for the disk, for files that can be
    made again.
    """

    def __init__(self, path: Path | str, *, mode: int = 0o666, durable: bool = True) -> None:
        self.path = Path(os.path.realpath(path))
        self._given = Path(path)
        self._mode = mode
        self._durable = durable
        self._final_mode: int | None = None  # what `shared` changed
        self._temporary: Path | None = None
        self._file: BinaryIO | None = None
        self.placed = False

    def open(self, buffering: int = -1) -> BinaryIO:
        """The file to write to. Leftovers of killed attempts are removed first."""
        check_target(self._given)
        remove_unfinished(self.path.parent, glob.escape(_start(self.path.name)))
        try:
            while not self._created(buffering):
                self.discard()
            assert self._file is not None
            return self._file
        except BaseException:
            self.discard()
            raise

    def _created(self, buffering: int) -> bool:
        """Makes and locks the unfinished file. False: another process took it for a leftover before it was locked."""
        try:
            mode: int | None = self.path.stat().st_mode & 0o777
        except FileNotFoundError:
            mode = None
        # known before there is such a file, so that nothing can end us in between and leave it
        self._temporary = self.path.with_name(f".{_start(self.path.name)}.{secrets.token_hex(_DIGITS)}.tmp")
        _unfinished[self._temporary] = os.getpid()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self._temporary, flags, self._mode if mode is None else mode)
        self._file = os.fdopen(fd, "wb", buffering=buffering)
        if mode is not None:
            os.fchmod(fd, mode)  # the umask is for new files
        with contextlib.suppress(OSError):  # not every file system has locks
            flock(fd, LOCK_EX)
        return self._temporary.exists()

    def shared(self, nbytes: int) -> Path:
        """Sets the size of the file, and returns its unfinished name, under which others may open and fill it."""
        assert self._file is not None and self._temporary is not None
        self._file.flush()
        fd = self._file.fileno()
        os.ftruncate(fd, nbytes)
        mode = os.fstat(fd).st_mode & 0o777
        if not mode & 0o200:  # of a file that nobody may write, which this one replaces
            self._final_mode = mode
            os.fchmod(fd, mode | 0o200)
        return self._temporary

    def complete(self) -> None:
        """Writes everything to disk. The file stays open, because closing it would end its lock."""
        assert self._file is not None
        self._file.flush()
        if self._final_mode is not None:
            os.fchmod(self._file.fileno(), self._final_mode)
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes a complete file early, if too many would be open; another writer of this name may then remove it."""
        assert self._file is not None
        self._file.close()

    def place(self, *, sync: bool = True) -> None:
        """Gives the complete file its name; `sync`: also on disk. In one folder a sync for the last file is enough."""
        assert self._temporary is not None and self._file is not None
        self._temporary.replace(self.path)
        _unfinished.pop(self._temporary, None)
        self._temporary, self.placed = None, True
        self._file.close()
        if self._durable and sync:
            _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Removes the file unless it has its name."""
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            _unfinished.pop(self._temporary, None)
            self._temporary = None
        if self._file is not None:
            # Closing flushes, which fails once more on a full disk; what counts was said before.
            with contextlib.suppress(OSError):
                self._file.close()

    def __enter__(self) -> BinaryIO:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.complete()
                self.place()
        finally:
            self.discard()


def replace_file(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Writes `chunks` to `path`: after a crash at any moment there is the old file or the new one. OSError."""
    with Replacement(path) as file:
        for chunk in chunks:
            file.write(chunk)


def check_target(path: Path) -> None:
    """UsageError: the path of the new file is a folder, a device or a pipe."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{shown(path)} is not a regular file. Give another output path.")


def remove_unfinished(folder: Path, name: str) -> None:
    """Removes leftovers of files called `name` (* and ? are wildcards) from processes that died.

    A file that is still being written is locked and stays.
    """
    for left in folder.glob(f".{name}.{'[0-9a-f]' * 2 * _DIGITS}.tmp"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            flock(file, LOCK_EX | LOCK_NB)
            left.unlink()


@contextlib.contextmanager
def failures_named(path: Path | str) -> Iterator[None]:
    """Turns an OSError inside into a HybridError: `path`, the reason, and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        step = "Make room or write elsewhere" if full else "Give another output path"
        raise HybridError(f"{shown(path)} cannot be written: {error.strerror or error}. {step}.") from error


def _start(name: str) -> str:
    """The beginning of a name, short enough for the name of an unfinished file."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST else raw[:_LONGEST].decode("utf-8", "ignore")


def _sync_folder(folder: Path) -> None:
    """Makes the rename durable. Some file systems cannot sync folders; the data is safe anyway."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
