"""Ranges of an unfinished file that other processes or machines write.

The creator of the file sets its size (`Replacement.shared`) and hands out ranges, which can be pickled. The owner of a
range opens the file by its unfinished name, writes the bytes, and reports a checksum; a range may be written again with
the same bytes. Nothing here renames the file.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .errors import FormatError, HybridError, shown
from .replacing import failures_named

READ_NBYTES = 16 << 20  # that are read at a time to check them
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@dataclass(frozen=True)
class FileRange:
    """`nbytes` bytes of the file `path`, whose final name will be `given`, from offset `start`."""

    path: Path
    given: Path
    start: int
    nbytes: int

    def part(self, start: int, nbytes: int) -> "FileRange":
        """`nbytes` of its bytes, from its offset `start`."""
        assert 0 <= start <= start + nbytes <= self.nbytes, f"{start} + {nbytes} of {self.nbytes} bytes"
        return replace(self, start=self.start + start, nbytes=nbytes)

    @contextmanager
    def opened(self, *, sync: bool) -> "Iterator[Filling]":
        """Opens it for writing. sync: at the end flush to disk, so that errors of the disk are reported.

        HybridError: the file is not visible from here, or cannot be written.
        """
        # Only to write: a page that a network's file system has not read is not written back whole, over what others
        # wrote of it.
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise not_seen(self.given) from None
        except OSError as error:
            raise HybridError(f"{shown(self.given)} cannot be written: {error.strerror}.") from error
        try:
            with failures_named(self.given):
                yield Filling(self, fd)
                if sync:
                    _sync_data(fd)
        finally:
            os.close(fd)

    def check(self, checksum: int) -> None:
        """FormatError unless the file has bytes with this CRC-32 there."""
        found, done = 0, 0
        with failures_named(self.given), self.path.open("rb", buffering=0) as file:  # anew: no old bytes are buffered
            file.seek(self.start)
            while done < self.nbytes and (data := file.read(min(READ_NBYTES, self.nbytes - done))):
                found, done = zlib.crc32(data, found), done + len(data)
        if (found, done) != (checksum, self.nbytes):
            raise FormatError(
                f"{shown(self.given)}: bytes {self.start} to {self.start + self.nbytes} differ from the bytes that "
                "were written. The folder is not the same everywhere, or its disk fails."
            )


class Filling:
    """Writes one range of bytes of an output file, from its start on; keeps the CRC-32 of the bytes in `checksum`."""

    def __init__(self, place: FileRange, fd: int) -> None:
        self._place, self._fd = place, fd
        self.checksum, self.done = 0, 0

    def write(self, data: np.ndarray | bytes) -> None:
        """Writes the next bytes of the range."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if isinstance(data, np.ndarray) else data
        rest = memoryview(raw)
        assert self.done + rest.nbytes <= self._place.nbytes, f"more than {self._place.nbytes} bytes"
        self.checksum, at = zlib.crc32(rest, self.checksum), self._place.start + self.done
        self.done += rest.nbytes
        while rest:
            n = os.pwrite(self._fd, rest, at)
            rest, at = rest[n:], at + n


def not_seen(path: Path) -> HybridError:
    """The error for a file or folder of another process that is not visible here."""
    return HybridError(f"{shown(path)} is not there. Give a path that all workers share.")
