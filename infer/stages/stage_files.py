"""A stage saves its part of the prompt cache in files of its machine, for its replacement when its process dies.

    FOLDER/lock            locked (shared) by the processes that keep files here
    FOLDER/4-7/page-12-3   blocks 4 to 7: page 12 after the cache had let go of it three times
    FOLDER/4-7/row-5-1     likewise a row of states

A file has raw bytes of the memory and their CRC-32 (u32, little-endian), and gets its name when it is complete. The
leader's prompt cache decides which pages and rows have one (staged_cache.py). Files are removed at the end of the run;
after a killed run, when another begins there (`sweep`).
"""

import contextlib
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.code_folders import trouble
from hybrid.quant.ggml.errors import LostStageError, shown
from hybrid.quant.ggml.replacing import Replacement

from ..memory import HybridMemory

Place = tuple[int, int]  # the number of a page or a row, and how often the cache has let go of it
_NAMES = re.compile(r"(page|row)-([0-9]+)-([0-9]+)")
_SUM_BYTES = 4


class StageFiles:
    """The files of one stage, in a folder of its run. trouble: why the last file could not be written; mostly empty."""

    def __init__(self, folder: Path, blocks: range) -> None:
        self.folder, self.trouble = folder / f"{blocks.start}-{blocks.stop - 1}", ""
        self._lock = -1  # the folder is not used
        try:
            for path in (folder.parent, folder, self.folder):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)  # files contain users' texts
            if why := trouble(folder):
                self.trouble = f"{shown(folder)}: no checkpoints are kept there: {why}"
                return
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            flock(self._lock, LOCK_SH | LOCK_NB)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.trouble = f"{shown(self.folder)}: no checkpoints are kept there: {error.strerror or error}"

    def _path(self, what: str, place: Place) -> Path:
        return self.folder / f"{what}-{place[0]}-{place[1]}"

    def save(self, memory: HybridMemory, pages: Iterable[Place], rows: Iterable[Place]) -> None:
        """Write files as long as the disk has room: the text of missing ones is read again."""
        if self._lock < 0:
            return
        try:
            for place in pages:
                self._write(self._path("page", place), _page(memory, place[0]))
            for place in rows:
                self._write(self._path("row", place), memory.recurrent.state(place[0]))
        except OSError as error:
            self._failed(error)

    def _write(self, path: Path, arrays: Sequence[np.ndarray]) -> None:
        total = 0
        with Replacement(path, mode=0o600, durable=False) as file:
            for array in arrays:
                data = array.tobytes()
                total = zlib.crc32(data, total)
                file.write(data)
            file.write(total.to_bytes(_SUM_BYTES, "little"))

    def drop(self, pages: Iterable[Place], rows: Iterable[Place]) -> None:
        """Remove files that are not needed any more."""
        with contextlib.suppress(OSError):
            for path in [*(self._path("page", p) for p in pages), *(self._path("row", p) for p in rows)]:
                path.unlink(missing_ok=True)

    def places(self, memory: HybridMemory) -> tuple[list[Place], list[Place]]:
        """Pages and rows with a complete file. Removes damaged and unknown files."""
        found: dict[str, list[Place]] = {"page": [], "row": []}
        with contextlib.suppress(OSError):
            for path in sorted(self.folder.iterdir()) if self._lock >= 0 else ():
                named = _NAMES.fullmatch(path.name)
                place = (int(named[2]), int(named[3])) if named else (-1, 0)
                if named and self._read(path, _arrays(memory, named[1], place[0])) is not None:
                    found[named[1]].append(place)
                else:
                    path.unlink()
        return found["page"], found["row"]

    def load(self, memory: HybridMemory, pages: Iterable[Place], rows: Iterable[Place]) -> None:
        """Read pages and rows that `places` listed. Raises LostStageError if a file has gone since."""
        for what, places in (("page", pages), ("row", rows)):
            for place in places:
                path, arrays = self._path(what, place), _arrays(memory, what, place[0])
                try:
                    data = self._read(path, arrays)
                except OSError:
                    data = None
                if data is None:
                    raise LostStageError(f"{shown(path)}, a checkpoint, has gone.")
                at = 0
                for array in arrays:
                    array[...] = np.frombuffer(data, array.dtype, array.size, at).reshape(array.shape)
                    at += array.nbytes

    def _read(self, path: Path, arrays: Sequence[np.ndarray]) -> bytes | None:
        """The bytes of a file; None if it is damaged or does not fit the arrays."""
        size = sum(array.nbytes for array in arrays)
        if not arrays or path.stat().st_size != size + _SUM_BYTES:
            return None
        data = path.read_bytes()
        return data if zlib.crc32(data[:size]) == int.from_bytes(data[size:], "little") else None

    def close(self, *, remove: bool) -> None:
        """Release the folder. remove: delete the files, since the stage will not be replaced."""
        if self._lock >= 0:
            if remove:
                shutil.rmtree(self.folder, ignore_errors=True)
                remove_unused(self.folder.parent, self._lock)
            os.close(self._lock)
            self._lock = -1


def remove_unused(folder: Path, lock: int) -> None:
    """Remove the folder of a run if no other process keeps files there. lock: its open lock file."""
    try:
        flock(lock, LOCK_EX | LOCK_NB)
        if {path.name for path in folder.iterdir()} <= {"lock"}:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # the last process to close it removes it


def sweep(folder: Path, seconds: float) -> None:
    """Remove runs in a folder that no process has open and that have not changed for `seconds`."""
    for run in [*folder.iterdir()] if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            changed = max(path.lstat().st_mtime for path in (run, *run.iterdir()))
            if run.is_symlink() or time.time() - changed < seconds:
                continue
            with (run / "lock").open("rb") as lock:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(run, ignore_errors=True)


def _arrays(memory: HybridMemory, what: str, number: int) -> list[np.ndarray]:
    """The arrays of a page or a row; empty if the memory has no such number."""
    if what == "page":
        return _page(memory, number) if number < memory.attention.n_stored else []
    return memory.recurrent.state(number) if number < memory.recurrent.n_stored else []


def _page(memory: HybridMemory, page: int) -> list[np.ndarray]:
    attention = memory.attention
    return [kept[page] for kept in (*attention.k.values(), *attention.v.values(), *attention.rows.values())]
