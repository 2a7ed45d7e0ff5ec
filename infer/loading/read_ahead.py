"""Reads weights that are not in memory yet from the disk, in the order in which a pass needs them.

A pass reads a mapped file page by page; the system then fetches some 128 KB at a time, and the pass waits for each. A
thread that reads megabytes at a time, ahead of the pass and while kernels are compiled and a vocabulary is built, uses
the disk at its full rate. Blocks that are in memory already are not read again.
"""

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hybrid.quant.ggml.machine_memory import machine_memory
from hybrid.quant.ggml.reader import GGUFFile

from .page_cache import is_held

BLOCK = 4 << 20  # bytes read at a time


@dataclass(frozen=True)
class Extent:
    """Bytes [start, stop) of a file."""

    path: Path
    start: int
    stop: int


def extents(gguf: GGUFFile, names: Iterable[str]) -> list[Extent]:
    """The extents of the tensors, in this order. Adjacent ones are merged."""
    homes = {name: part.path for part in gguf.parts for name in part.tensors}
    found: list[Extent] = []
    for name in dict.fromkeys(names):
        path, info = homes[name], gguf.info(name)
        last = found[-1] if found else None
        # the gap between adjacent tensors is less than the alignment
        if last and last.path == path and 0 <= info.offset - last.stop < gguf.alignment:
            found[-1] = Extent(path, last.start, info.offset + info.nbytes)
        else:
            found.append(Extent(path, info.offset, info.offset + info.nbytes))
    return found


class ReadAhead:
    """Reads the tensors `names` in this order in a thread, until all are read or `stop` is called.

    Does nothing unless the system tells which pages are in memory (Linux) and all tensors fit the available memory:
    otherwise the last ones would displace the first. Errors of reading are ignored: the pass will raise them.
    """

    def __init__(self, gguf: GGUFFile, names: Iterable[str]) -> None:
        self.n_read = 0  # bytes that were not in memory
        self._extents = extents(gguf, names)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if hasattr(os, "RWF_NOWAIT") and sum(e.stop - e.start for e in self._extents) <= machine_memory().available:
            self._thread = threading.Thread(target=self._run, name="hybrid-read-ahead", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Make the thread end after the current block, without waiting for it."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait until everything is read, or `stop`."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            for extent in self._extents:
                with extent.path.open("rb", buffering=0) as file:
                    self._read(file.fileno(), extent)

    def _read(self, fd: int, extent: Extent) -> None:
        buffer = memoryview(bytearray(BLOCK))
        at = extent.start
        while at < extent.stop and not self._stopped.is_set():
            n = min(BLOCK, extent.stop - at)
            if not (is_held(fd, at) and is_held(fd, at + n - 1)):
                os.posix_fadvise(fd, at + n, BLOCK, os.POSIX_FADV_WILLNEED)  # keeps the disk busy between two reads
                done = os.preadv(fd, [buffer[:n]], at)
                if not done:
                    return  # the file was cut off since it was opened
                self.n_read += done
                at += done
            else:
                at += n
