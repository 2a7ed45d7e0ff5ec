"""Files of a folder whose headers nobody has read yet: read all in turn, or the files of one text at once.

File names are digests of the prefixes of texts (store_file.py), so the files of a text are found without the others.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from .prefix_tree import Tokens
from .store_file import DIGEST_BYTES, TextDigest


class Unlisted:
    """paths: the files; read: reads the header of one, called by one thread at a time."""

    def __init__(self, paths: list[Path], read: Callable[[Path], None]) -> None:
        self._read = read
        self._left = set(paths)
        self._after: dict[bytes, list[Path]] = defaultdict(list)
        for path in paths:
            self._after[bytes.fromhex(path.name[: 2 * DIGEST_BYTES])].append(path)
        self._lock = threading.Lock()

    def read_all(self, stopped: Callable[[], bool]) -> bool:
        """Read the remaining headers, most recently used files first. False: stopped."""
        with self._lock:
            left = list(self._left)
        for path in sorted(left, key=_used, reverse=True):
            if stopped():
                return False
            self._read_one(path)
        return True

    def look_up(self, key: bytes, ids: Tokens, owner: bytes) -> None:
        """Read the headers of files that end at a prefix of this owner's text."""
        if not self._left:
            return
        digest = TextDigest(key, ids, owner)
        for n in range(1, len(ids) + 1):
            for path in self._after.get(digest.at(n), ()):
                self._read_one(path)

    def _read_one(self, path: Path) -> None:
        with self._lock:  # another thread may have read it meanwhile
            if path in self._left:
                self._read(path)
                self._left.discard(path)


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime
    return 0.0
