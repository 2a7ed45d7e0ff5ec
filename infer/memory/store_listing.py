"""Files of a folder that nobody has read the headers of yet: all are read one after another, the files of one text at
once.

Their names are digests of the beginnings of texts (store_file.py), so the files of a text are found without the others.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from .prefix_tree import Tokens
from .store_file import DIGEST_BYTES, TextDigest


class Unlisted:
    """paths: of the files; read: the header of one, called in one thread at a time."""

    def __init__(self, paths: list[Path], read: Callable[[Path], None]) -> None:
        self._read = read
        self._left = set(paths)
        self._after: dict[bytes, list[Path]] = defaultdict(list)
        for path in paths:
            self._after[bytes.fromhex(path.name[: 2 * DIGEST_BYTES])].append(path)
        self._lock = threading.Lock()

    def read_all(self, stopped: Callable[[], bool]) -> bool:
        """Read the rest, the files used last first. False: it was stopped."""
        with self._lock:
            left = list(self._left)
        for path in sorted(left, key=_used, reverse=True):
            if stopped():
                return False
            self._read_one(path)
        return True

    def look_up(self, key: bytes, ids: Tokens, owner: bytes) -> None:
        """Read the files that end with a beginning of this owner's text."""
        if not self._left:
            return
        digest = TextDigest(key, ids, owner)
        for n in range(1, len(ids) + 1):
            for path in self._after.get(digest.at(n), ()):
                self._read_one(path)

    def _read_one(self, path: Path) -> None:
        with self._lock:  # whoever comes second finds it read
            if path in self._left:
                self._read(path)
                self._left.discard(path)


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime
    return 0.0
