"""The folder in which a server stores its cache: for one process at a time, within a budget in bytes.

    lock           held while a process uses the folder
    slots/         state files that clients ask for by name; they do not count
    cache-KEY/     files of one key (store_file.py), and documents: JSON with a checksum

The folders of other keys also count; the least recently used one is removed first.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.replacing import remove_unfinished

from .documents import read_document, write_document
from .store_file import DIGEST_BYTES, VERSION

_NAMES = re.compile(r"[0-9a-f]{32}(-[0-9]{1,10}\.kv|\.state)")
_KEYS = re.compile(r"cache-[0-9a-f]{32}")


def key_of(*what: str) -> bytes:
    """The key of everything that the numbers depend on, which includes the version of the format."""
    return hashlib.blake2b(json.dumps([VERSION, *what]).encode(), digest_size=DIGEST_BYTES).digest()


_open: dict[Path, "list[StoreFolder]"] = {}  # of this process, by real path
_opening = threading.Lock()  # of _open


class KeptElsewhereError(UsageError):
    """This process keeps the texts of the same model in the folder already."""


class StoreFolder:
    """Locks the folder. key: of this model; several models of one process may use a folder together. Raises UsageError
    if it cannot be used, or another process uses it; KeptElsewhereError if this process uses it for the same model.

    own_bytes: set by the owner of this key's files, to the bytes of all of them
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self.path, self.key = path, key
        self.own_bytes: Callable[[], int] = lambda: 0
        self.cache, self.slots = path / f"cache-{key.hex()}", path / "slots"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)  # private: it holds people's questions
            self.cache.mkdir(exist_ok=True)
            self.slots.mkdir(exist_ok=True)
            self._real = path.resolve()
            with _opening:
                self._lock = self._locked()
                _open.setdefault(self._real, []).append(self)
        except OSError as error:
            raise UsageError(
                f"{shown(path)}: no states can be kept there: {error.strerror or error}. Choose another folder."
            ) from None
        for folder in (self.cache, self.slots):
            remove_unfinished(folder, "*")
        with contextlib.suppress(OSError):
            os.utime(self.cache)

    def _locked(self) -> int:
        """The descriptor of the locked file, which all models of this process share."""
        others = _open.get(self._real, ())
        if any(other.key == self.key for other in others):
            raise KeptElsewhereError(
                f"{shown(self.path)}: the texts of this model are kept there for another of its names. Serve it once."
            )
        if others:
            return others[0]._lock
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except OSError as error:
            os.close(lock)
            why = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror or error
            raise UsageError(f"{shown(self.path)}: {why}. End that process, or choose another folder.") from None
        return lock

    def close(self) -> None:
        """Release the lock, if no other model of this process uses the folder."""
        with _opening:
            others = _open[self._real]
            others.remove(self)
            if not others:
                del _open[self._real]
                os.close(self._lock)

    @property
    def beside(self) -> "list[StoreFolder]":
        """The other models of this process that use the folder."""
        with _opening:
            return [other for other in _open.get(self._real, ()) if other is not self]

    def files(self) -> list[Path]:
        """The files of this key, whole or damaged; other names are ignored."""
        with contextlib.suppress(OSError), os.scandir(self.cache) as found:
            return [Path(each.path) for each in found if _NAMES.fullmatch(each.name)]
        return []

    # --- other keys ---
    def others(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of the folders of other keys that this process does not use, the oldest
        first."""
        found, used = [], {self.cache, *(other.cache for other in self.beside)}
        with contextlib.suppress(OSError):
            for folder in self.path.iterdir():
                if _KEYS.fullmatch(folder.name) and folder not in used and not folder.is_symlink():
                    found.append((*_last_used(folder), folder))
        return sorted(found)

    def remove_other(self, folder: Path) -> None:
        """Remove the folder of another key, unless this process uses it now."""
        assert folder != self.cache and folder.parent == self.path
        if any(folder == other.cache for other in self.beside):
            return
        shutil.rmtree(folder, ignore_errors=True)

    # --- documents ---
    def write_json(self, name: str, value: Any) -> None:
        """Store a JSON value under a name that the program chose. After an OSError the older one is still there."""
        # in many small steps: during `dumps` no other Python thread would run
        parts = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(value)
        write_document(self._document(name), "".join(parts).encode("utf-8", "surrogatepass"))

    def read_json(self, name: str) -> Any:
        """The value stored under a name, or None. Raises StateError if it is damaged."""
        return read_document(self._document(name))

    def _document(self, name: str) -> Path:
        assert re.fullmatch(r"[a-z]+", name), "names are the program's own, never a client's"
        return self.cache / f"{name}.json"


def _last_used(folder: Path) -> tuple[float, int]:
    """When anything in the folder was last used, and the bytes of all files."""
    used, size = folder.stat().st_mtime, 0
    for each in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = each.stat(follow_symlinks=False)
            used, size = max(used, status.st_mtime), size + status.st_size
    return used, size


def now() -> float:
    """The time in seconds, comparable with file times."""
    return time.time()
