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
import time
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


class StoreFolder:
    """Locks the folder. key: of this model. Raises UsageError if it cannot be used, or another process uses it."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path, self.key = path, key
        self.cache, self.slots = path / f"cache-{key.hex()}", path / "slots"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)  # private: it holds people's questions
            self.cache.mkdir(exist_ok=True)
            self.slots.mkdir(exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise UsageError(
                f"{shown(path)}: no states can be kept there: {error.strerror or error}. Choose another folder."
            ) from None
        try:
            flock(self._lock, LOCK_EX | LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            why = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror or error
            raise UsageError(f"{shown(path)}: {why}. End that process, or choose another folder.") from None
        for folder in (self.cache, self.slots):
            remove_unfinished(folder, "*")
        with contextlib.suppress(OSError):
            os.utime(self.cache)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def files(self) -> list[Path]:
        """The files of this key, whole or damaged; other names are ignored."""
        with contextlib.suppress(OSError), os.scandir(self.cache) as found:
            return [Path(each.path) for each in found if _NAMES.fullmatch(each.name)]
        return []

    # --- other keys ---
    def others(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of the folders of other keys, the oldest first."""
        found = []
        with contextlib.suppress(OSError):
            for folder in self.path.iterdir():
                if _KEYS.fullmatch(folder.name) and folder != self.cache and not folder.is_symlink():
                    found.append((*_last_used(folder), folder))
        return sorted(found)

    def remove_other(self, folder: Path) -> None:
        """Remove the folder of another key."""
        assert folder != self.cache and folder.parent == self.path
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
