"""A thread that writes a service's prompt cache to disk, with documents: JSON that other modules maintain.

    saver = Saver(service, store)
    saver.close(seconds=5)   # after service.close(): writes the rest, as far as the time allows

It looks for something new several times a second, so a killed process loses little.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError
from hybrid.quant.ggml.installed import installed_version

from ...faults import SidePath
from ...kernels.emit.isa import host
from ...memory.cache_store import CacheStore, StoredPiece
from ...memory.store_folder import StoreFolder, key_of
from ...model import LoadedModel
from .service import ClosedError, Service

SAVING = SidePath("saving of texts")

POLL_SECONDS = 0.2
DOCUMENT_SECONDS = 2.0  # between two checks of the documents
DOCUMENT_SHARE = 20  # or this many times the duration of the last check


@dataclass(frozen=True)
class Document:
    """version: changes whenever the document does; value: its JSON. Both may be called from any thread."""

    version: Callable[[], object]
    value: Callable[[], Any]


def open_store(model: LoadedModel, path: Path, budget: int, warn: Callable[[str], None]) -> CacheStore:
    """The texts of this model in a folder; close its `folder` last. Raises UsageError if they cannot be kept there."""
    cache = model.cache
    check_budget(0 if cache is None else cache.budget)
    assert cache is not None
    folder = StoreFolder(path, model_key(model))
    try:
        return CacheStore(cache, folder, budget, model.n_vocab, warn)
    except BaseException:
        folder.close()
        raise


def check_budget(budget: int) -> None:
    """Raises UsageError if a model with this budget of its prompt cache cannot keep texts on disk."""
    if not budget:
        raise UsageError("texts on disk need the prompt cache in memory, which is off.", remedy=Remedy.CHECKPOINTS)


def model_key(model: LoadedModel) -> bytes:
    """16 bytes that stand for everything on which keys, values and states depend."""
    described = model.memory.attention.described()
    basis = [] if described is None else [json.dumps(described)]
    return key_of(
        model.file.fingerprint, model.kv_type, *basis, model.precision, host().name, installed_version("hybrid-lm")
    )


class Saver:
    """documents: by name, letters only; `StoreFolder.read_json` reads an earlier process's."""

    def __init__(self, service: Service, store: CacheStore, documents: Mapping[str, Document] | None = None) -> None:
        self.service, self.store, self.documents = service, store, dict(documents or {})
        self._written: dict[str, object] = {name: each.version() for name, each in self.documents.items()}
        self._look_at = 0.0
        self._clock = -1
        self._held: StoredPiece | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hybrid-saver", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """After the service was closed: writes the rest, most valuable first, and ends the thread."""
        until = time.monotonic() + seconds
        self._stop.set()
        self._thread.join()
        if self._held is not None:
            self.store.release(self._held, written=False)
            self._held = None
        SAVING.do(lambda: self._write_the_rest(until))

    def _write_the_rest(self, until: float) -> None:
        with suppress(HybridError):
            self._write_documents()
            while time.monotonic() < until and (piece := self.store.next_piece()) is not None:
                self.store.release(piece, written=self.store.write(piece))
        self.store.files.touch()

    def _run(self) -> None:
        if sys.platform == "linux":  # where threads have priorities
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        goes_on = True
        while goes_on and not SAVING.is_off and not self._stop.wait(POLL_SECONDS):
            goes_on = SAVING.run(self._save, lambda: True)
        if SAVING.is_off:
            self.store.files.warn("nothing more is saved: the log names the fault")

    def _save(self) -> bool:
        """Writes new texts and documents. Returns False if the service has closed."""
        try:
            self._write_documents()
            self._write_pieces()
        except ClosedError:
            return False
        return True

    def _call(self, function: Callable[[], Any]) -> Any:
        return self.service.call(function).result()

    def _write_pieces(self) -> None:
        clock = self.store.cache.clock
        if self.store.files.failing or (clock == self._clock and not self.store.files.behind):
            return
        written = self._held is None  # a piece left over from a fault is given back unwritten
        while not self._stop.is_set():
            self._held = self._call(partial(self._next, self._held, written=written))
            if self._held is None:
                break
            written = self.store.write(self._held)
        self.store.files.touch()
        self._clock = clock

    def _next(self, done: StoredPiece | None, *, written: bool) -> StoredPiece | None:
        if done is not None:
            self._held = None
            self.store.release(done, written=written)
        return self.store.next_piece()

    def _write_documents(self) -> None:
        begin = time.monotonic()
        if not self._stop.is_set() and begin < self._look_at:
            return
        for name, document in self.documents.items():
            version = document.version()
            if version != self._written[name] and self.store.files.write_json(name, document.value()):
                self._written[name] = version
        seconds = time.monotonic() - begin
        self._look_at = begin + max(DOCUMENT_SECONDS, DOCUMENT_SHARE * seconds)
