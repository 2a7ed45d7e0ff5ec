"""The files of a prompt cache on disk, within a budget: adding, using and removing them, and failures of the disk."""

import contextlib
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import StateError, shown

from .attention import ArrayLayout
from .prefix_tree import Tokens
from .store_file import UNFINISHED, FileHeader, layout_bytes, read_arrays, read_header, write_file
from .store_folder import StoreFolder, now
from .store_index import StoreIndex
from .store_listing import Unlisted

RETRY_SECONDS = (10.0, 300.0)  # pause after the first failure, and the longest pause


class StoreFiles:
    """The files of one key in `folder`; all keys together take at most `budget` bytes.

    Only one thread may write (`make_room`, `add`, `touch`, documents); the other methods may be called from any. Files
    of earlier processes are known after `list_all`. Until then only documents are written and only damaged files
    removed: which files others need, and the total size, is not known.

    layout  (dtype, shape) of the arrays of a file
    warn    called with one line per problem
    """

    def __init__(
        self,
        folder: StoreFolder,
        budget: int,
        n_vocab: int,
        layout: Callable[[FileHeader], ArrayLayout],
        warn: Callable[[str], None],
        *,
        recurrent: bool,
    ) -> None:
        self.folder, self.budget, self.warn, self._layout = folder, budget, warn, layout
        self.index = StoreIndex(folder.key, recurrent=recurrent)
        folder.own_bytes = lambda: self.index.nbytes
        self.n_failures, self._retry_at = 0, 0.0  # since the last successful write
        self._used: deque[str] = deque()
        self._others: list[tuple[float, int, Path]] = []
        self._n_vocab = n_vocab
        self.listed = False
        self._listing = threading.Lock()  # guards `listed` and `_forgotten`
        self._forgotten: list[tuple[Tokens, bool, bytes]] = []  # texts to forget when all files are known
        self._damaged: list[str] = []
        with contextlib.suppress(OSError):
            (folder.cache / UNFINISHED).unlink(missing_ok=True)
        self._unlisted = Unlisted(folder.files(), self._read_header)

    @property
    def nbytes(self) -> int:
        """Bytes on the disk, of all keys."""
        beside = self.folder.beside
        used = {other.cache for other in beside}
        others = sum(size for _, size, path in self._others if path not in used)
        return self.index.nbytes + others + sum(other.own_bytes() for other in beside)

    @property
    def behind(self) -> bool:
        """Whether a write failed and none has succeeded since."""
        return self.n_failures > 0

    @property
    def failing(self) -> bool:
        """Whether nothing may be written now: a write failed lately, or not all files are known yet."""
        return not self.listed or self._waits

    @property
    def _waits(self) -> bool:
        """Whether a write failed lately; the next is tried later."""
        return now() < self._retry_at

    # --- writing ---
    def add(self, header: FileHeader, arrays: Iterable[np.ndarray]) -> None:
        """Write a file. Raises OSError; report it to `failed`."""
        self.index.add(write_file(self.folder.cache, self.folder.key, header, arrays))

    def written(self) -> None:
        """Note that a write succeeded."""
        self.n_failures, self._retry_at = 0, 0.0

    def failed(self, error: OSError) -> None:
        """Note a failed write and wait before the next; warns only once until a write succeeds."""
        least, most = RETRY_SECONDS
        if not self.n_failures:
            self.warn(
                f"{shown(self.folder.path)} cannot be written: {error.strerror or error}. Writing is "
                "tried again later; answers go on."
            )
        self._retry_at = now() + min(most, least * 2**self.n_failures)
        self.n_failures = min(self.n_failures + 1, 16)

    def make_room(self, size: int, worth_it: float, last: bytes) -> bool:
        """Remove files until `size` more bytes fit. False: the files to remove are worth more.

        last: the digest that the new file follows.
        """
        if self.nbytes + size > self.budget:
            for name in self.index.useless(last):
                self._remove(name)
        while self.nbytes + size > self.budget and self._others:
            self.folder.remove_other(self._others.pop(0)[2])
        removed = True
        while self.nbytes + size > self.budget and removed:
            removed = False
            for least, name in self.index.least_worth(now()):
                if self.nbytes + size <= self.budget or least >= worth_it:
                    break
                for each in self.index.take_out(name, last):
                    self._remove(each)
                    removed = True
        return self.nbytes + size <= self.budget

    def touch(self) -> None:
        """Set the times of recently used files, for the next process."""
        names = set()
        while self._used:
            names.add(self._used.popleft())
        for name in names:
            with contextlib.suppress(OSError):
                os.utime(self.folder.cache / name)

    def write_json(self, name: str, value: Any) -> bool:
        """Store a document (see `StoreFolder`). False: it could not be written."""
        if self._waits:
            return False
        try:
            self.folder.write_json(name, value)
        except OSError as error:
            self.failed(error)
            return False
        self.written()
        return True

    def read_json(self, name: str) -> Any:
        """The stored document; None if it is missing, or damaged (with a warning)."""
        try:
            return self.folder.read_json(name)
        except StateError as error:
            self.warn(f"{shown(self.folder.path)}: {error}")
            return None

    # --- reading and giving up ---
    def read(self, header: FileHeader) -> dict[str, np.ndarray]:
        """The arrays of a file, read-only. Raises StateError if they are damaged, or OSError; see `give_up`."""
        return dict(read_arrays(self.folder.cache / header.name, header, self._layout(header)))

    def forget(self, ids: Tokens, *, onward: bool = False, owner: bytes = b"") -> None:
        """Remove a text of this owner, but keep tokens shared with others; onward: remove its continuations.

        Before all files are known, the shared tokens are unknown: the text is then removed once they are.
        """
        with self._listing:
            if not self.listed:
                self._forgotten.append((ids, onward, owner))
                return
        self._forget(ids, onward, owner)

    def _forget(self, ids: Tokens, onward: bool, owner: bytes) -> None:
        for name in self.index.take_out_text(ids, onward=onward, owner=owner):
            self._remove(name)

    def _remove(self, name: str) -> None:
        self.index.remove(name)
        with contextlib.suppress(OSError):
            (self.folder.cache / name).unlink(missing_ok=True)

    def give_up(self, name: str, error: Exception) -> None:
        """Remove a file that could not be read, and warn unless it was removed meanwhile."""
        gone = isinstance(error, FileNotFoundError)  # removed meanwhile, to make room
        self._remove(name)
        if not gone:
            why = f"{name}: {error.strerror or error}." if isinstance(error, OSError) else error
            self.warn(f"{shown(self.folder.path)}: {why} The text is processed again.")

    def use(self, names: list[str]) -> None:
        """Note that these files are used now."""
        self.index.use(names, now())
        self._used.extend(names)

    # --- files of earlier processes ---
    def look_up(self, ids: Tokens, owner: bytes = b"") -> None:
        """Read the headers of this text's files, whole pieces and states, before all files are known."""
        self._unlisted.look_up(self.folder.key, ids, owner)

    def list_all(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Read all headers. Ends early when stopped, unless a text is to be forgotten for good."""
        others = self.folder.others()
        if not self._unlisted.read_all(lambda: stopped() and not self._forgotten):
            return
        if self._damaged:
            more = f" ({len(self._damaged)} files)" if len(self._damaged) > 1 else ""
            self.warn(f"{shown(self.folder.path)}: {self._damaged[0]} It was removed{more}.")
        for name in self.index.useless():
            self._remove(name)
        self._others = others
        self.make_room(0, math.inf, b"")
        with self._listing:
            for text in self._forgotten:
                self._forget(*text)
            self._forgotten.clear()
            self.listed = True

    def _read_header(self, path: Path) -> None:
        try:
            header = read_header(path, self.folder.key, self._n_vocab)
            if header.nbytes != layout_bytes(self._layout(header)):
                raise StateError(f"{path.name} is damaged: it holds {header.nbytes} bytes of arrays.")
            self.index.add(header)
        except (StateError, OSError) as error:
            self._damaged.append(str(error))
            self._remove(path.name)
