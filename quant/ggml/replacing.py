"""Files that are either complete or absent: written beside the old one, which they replace when they are on the disk.

    .NAME.0123abcd.tmp     an unfinished NAME, in the folder where NAME will be; locked while its writer lives

A symbolic link stays and the file that it names is replaced. The new file has the permissions of the old one, or else
those that the umask gives. What a killed process left is found by its name, and by its lock that is gone: the next
writer of NAME removes it.
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
    """An interrupt between two lines, the end of a `with` and the beginning of its __exit__, leaves what it opened."""
    for path, process in list(_unfinished.items()):
        if process == os.getpid():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class Replacement:
    """A file that is being written and takes its name when it is complete. In a `with`, or step by step:

    `open`, then `complete`, which brings it to the disk, and `place`, which gives it its name. `discard`, at any
    time and after `place` too, removes what has no name yet. Methods raise OSError; `open` UsageError as
    `check_target` does.

    mode: permissions of a new file, less the umask. durable = False spares the time to wait for the disk where a lost
    file is made again.
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
        """The file to write to. What earlier attempts left behind when they were killed is removed first."""
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
        """Make the unfinished file and lock it. False: it was taken for one left behind before it was locked."""
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
        """Gives the file its size and returns its unfinished name, by which others may open it and fill it."""
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
        """All that was written is on the disk. The file stays open, because closing it would end its lock."""
        assert self._file is not None
        self._file.flush()
        if self._final_mode is not None:
            os.fchmod(self._file.fileno(), self._final_mode)
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the complete file early, where too many would be open: another writer of this name may remove it."""
        assert self._file is not None
        self._file.close()

    def place(self, *, sync: bool = True) -> None:
        """The complete file takes its name; `sync`: the disk has that, too. In one folder the last one's is enough."""
        assert self._temporary is not None and self._file is not None
        self._temporary.replace(self.path)
        _unfinished.pop(self._temporary, None)
        self._temporary, self.placed = None, True
        self._file.close()
        if self._durable and sync:
            _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the file unless it has its name."""
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
    """Write `chunks` to `path`: after a crash at any moment there is the old file or the new one. OSError."""
    with Replacement(path) as file:
        for chunk in chunks:
            file.write(chunk)


def check_target(path: Path) -> None:
    """UsageError when the path of the new file is taken by something else: a folder, a device, a pipe."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{shown(path)} is not a regular file. Give another output path.")


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove what is left of files that were being written as `name` (* and ? stand for any) by processes that died.

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
    """As much of a name as leaves room for the rest of an unfinished file's."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST else raw[:_LONGEST].decode("utf-8", "ignore")


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable. Some file systems do not sync folders; the data is safe without."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
