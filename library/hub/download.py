"""Downloads into the hub's cache: resumed, verified, and moved into place only when complete."""

import errno
import hashlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import HybridError, Remedy, shown
from hybrid.quant.ggml.progress import Progress

from ..reporting import SILENT
from . import api, folders
from .repository import Listing, RepoFile

CHUNK = 1 << 20
ATTEMPTS = 6  # in a row without a new byte
MARGIN = 64 << 20  # free bytes to leave


def missing(listing: Listing, files: Sequence[RepoFile]) -> int:
    """Bytes of these files that are not on this disk yet."""
    return sum(file.nbytes - _here(listing, file) for file in files)


def _here(listing: Listing, file: RepoFile) -> int:
    if folders.is_here(listing.repository, listing.commit, file):
        return file.nbytes
    blob = folders.blob_path(listing.repository, file.blob)
    for path in (blob, _incomplete(blob)):
        with suppress(OSError):
            return min(path.stat().st_size, file.nbytes)
    return 0


def check_room(needs: Mapping[Path, int], what: str) -> None:
    """HybridError unless the disks of these folders, which need not exist yet, have enough free space."""
    total: dict[int, int] = defaultdict(int)
    for folder, nbytes in needs.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        disk = there.stat().st_dev
        total[disk] += nbytes
        free = shutil.disk_usage(there).free
        if nbytes and total[disk] + MARGIN > free:
            raise HybridError(
                f"{what} needs {size_text(total[disk])}, and {folder} has {size_text(free)} free.",
                remedy=Remedy.DISK_ROOM,
            )


def download(
    listing: Listing, files: Sequence[RepoFile], progress: Progress, note: Callable[[str], None] = SILENT.note
) -> None:
    """Downloads the missing files. progress(path, done, total): bytes of all files; note: called when it must wait.

    HybridError: no free space, no answer, or a wrong hash. After a failure or an interrupt the partial file stays, and
    the next download continues it.
    """
    total, before = sum(file.nbytes for file in files), 0
    for file in files:
        if not folders.is_here(listing.repository, listing.commit, file):
            step = lambda done, path=file.path, before=before: progress(path, before + done, total)
            with _writable():
                _bring(listing, file, step, note)
        before += file.nbytes
        progress(file.path, before, total)


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as err:
        where = shown(err.filename or folders.hub())
        full = err.errno in (errno.ENOSPC, errno.EDQUOT)
        step = "Make room: the same command goes on" if full else "Set HF_HUB_CACHE to a folder that can be"
        raise HybridError(f"{where} cannot be written: {err.strerror or err}. {step}.") from err


def _bring(listing: Listing, file: RepoFile, progress: Callable[[int], None], note: Callable[[str], None]) -> None:
    blob = folders.blob_path(listing.repository, file.blob)
    lock = folders.hub() / ".locks" / folders.folder_name(listing.repository) / f"{file.blob}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(lock, note):
        if folders.is_here(listing.repository, listing.commit, file):
            return
        if not blob.is_file() or blob.stat().st_size != file.nbytes:
            _fetch(listing, file, blob, progress)
        _link(blob, folders.pointer(listing.repository, listing.commit, file.path))


@contextmanager
def _locked(lock: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Holds huggingface_hub's lock. If another process held it, the file may be complete afterwards."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(lock, timeout=0.5))
        except Timeout:
            note("another process downloads this file; waiting for it")
            stack.enter_context(WeakFileLock(lock))
        yield


def _incomplete(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.incomplete")


def _fetch(listing: Listing, file: RepoFile, blob: Path, progress: Callable[[int], None]) -> None:
    """Downloads to BLOB.incomplete, continuing it if it exists, and renames it when its hash is right."""
    path = _incomplete(blob)
    with path.open("a+b") as out:
        arriving = _Arriving(file, out)
        failures = 0
        while arriving.done < file.nbytes:
            before = arriving.done
            try:
                _go_on(listing, arriving, progress)
            except api.TransientError:
                failures = 0 if arriving.done > before else failures + 1
                if failures >= ATTEMPTS:
                    raise
                time.sleep(pause(failures))
        out.flush()
        os.fsync(out.fileno())
    if not arriving.is_right():
        path.unlink(missing_ok=True)
        raise HybridError(
            f"{listing.repository}: {shown(file.path)} arrived damaged (wrong hash) and was removed. "
            "Run the command again."
        )
    path.replace(blob)


def pause(failures: int) -> float:
    """Seconds to wait before the next attempt."""
    return float(min(0.5 * 2**failures, 10))


class _Arriving:
    """A file whose first `done` bytes are on disk, with their hash."""

    def __init__(self, file: RepoFile, out: BinaryIO) -> None:
        self.file, self._out = file, out
        self.restart(keep=True)
        out.seek(0)
        while chunk := out.read(CHUNK):
            self._digest.update(chunk)
            self.done += len(chunk)
        if self.done > file.nbytes:
            self.restart()

    def restart(self, keep: bool = False) -> None:
        """Starts over; keep: with the bytes in the file."""
        if not keep:
            self._out.truncate(0)
        self.done = 0
        # blobs are named by SHA-256 of the content for large files, by git's SHA-1 of header and content for others
        git = hashlib.sha1(b"blob %d\0" % self.file.nbytes, usedforsecurity=False)
        self._digest = hashlib.sha256() if len(self.file.blob) == 64 else git

    def add(self, chunk: bytes) -> None:
        self._out.write(chunk)
        self._digest.update(chunk)
        self.done += len(chunk)

    def is_right(self) -> bool:
        return self.done == self.file.nbytes and self._digest.hexdigest() == self.file.blob


def _go_on(listing: Listing, arriving: _Arriving, progress: Callable[[int], None]) -> None:
    """Downloads the missing bytes. TransientError: the connection ended early."""
    file = arriving.file
    with api.stream(listing.repository, listing.commit, file.path, arriving.done) as response:
        if arriving.done and response.status_code != 206:  # it sends the whole file, or the file is shorter
            arriving.restart()
        if response.status_code == 416:
            return
        for chunk in (
            response.iter_bytes()
        ):  # as they arrive: bytes buffered for a whole chunk would be lost with the connection
            if arriving.done + len(chunk) > file.nbytes:
                arriving.restart()
                raise HybridError(
                    f"{listing.repository}: {shown(file.path)} is larger than {size_text(file.nbytes)}, the size "
                    "that the hub states, and was removed. Try again later."
                )
            arriving.add(chunk)
            progress(arriving.done)
    if arriving.done < file.nbytes:
        raise api.TransientError(
            f"{listing.repository}: {shown(file.path)} ended after {size_text(arriving.done)} of "
            f"{size_text(file.nbytes)}. Run the command again; it continues there."
        )


def _link(blob: Path, pointer: Path) -> None:
    """A link, as huggingface_hub makes one; the file itself on systems without links."""
    pointer.parent.mkdir(parents=True, exist_ok=True)
    temporary = pointer.with_name(f".{pointer.name[:100]}.{os.getpid()}.tmp")
    try:
        temporary.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        blob.replace(pointer)
        return
    temporary.replace(pointer)
