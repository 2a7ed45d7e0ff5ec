"""The places of a service (llama-server's slots): saves the last text of each to a file, restores it, or forgets it.

Answers are not bound to places here: a restored text is found by its tokens, wherever the next answer is. Files are
this library's (memory/state_file.py) or llama.cpp's (memory/llama_session.py). The service's thread only counts owners
and looks things up; the caller's thread copies, reads and writes.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from ...engine.applied import Applied
from ...memory import held_text
from ...memory.cache import PromptCache
from ...memory.saved_text import read_text
from ...memory.state_file import MAGIC, StateHeader, read_state, write_state
from ..state_files.llama_states import read_sequence, write_sequence
from .service import Service


class PlaceBusyError(UsageError):
    """An answer is being sampled in this place: its text is not complete."""


@dataclass(frozen=True)
class Carried:
    """The size of a saved or restored text."""

    n_tokens: int
    nbytes: int


class Places:
    """The places of a service whose model has a prompt cache, as one owner sees them: without the texts of others.

    Each call waits for the service's thread, so do not call from there.
    """

    def __init__(self, service: Service, owner: bytes = b"", applied: Applied | None = None) -> None:
        """applied: the adapters of the owner's texts; None: the model's own."""
        self.service, self.model, self.owner = service, service.model, owner
        applied = self.model.runner.applied if applied is None else applied
        self._fingerprint = self.model.runner.fingerprint(applied)
        self._description = self.model.runner.description(applied)

    @property
    def cache(self) -> PromptCache:
        if self.model.cache is None:
            raise UsageError("the prompt cache is off: no text is kept in memory.", remedy=Remedy.CHECKPOINTS)
        return self.model.cache

    def save(self, place: int, path: Path, *, llama: bool = False) -> Carried:
        """Writes the last text of a place, up to where it is known. llama: in the format of llama.cpp's servers.

        Raises PlaceBusyError; UsageError if there is no text, or llama.cpp has no such states; StateError if writing
        fails.
        """
        text = self.service.call(lambda: self._held(place)).result()
        try:
            memory = self.model.memory
            if llama:
                size = write_sequence(self.model, text.ids.tolist(), held_text.arrays(memory, text), path)
            else:
                kept = memory.attention.described()
                header = StateHeader(self._fingerprint, self._description, len(text.ids), keys_values=kept)
                arrays = {"tokens": text.ids} | ({} if text.logits is None else {"logits": text.logits})
                size = write_state(path, header, (arrays | held_text.arrays(memory, text)).items())
            return Carried(len(text.ids), size)
        finally:
            self.service.call(lambda: self.model.memory.end_loan(text)).result()

    def restore(self, place: int, path: Path) -> Carried:
        """Reads the text of a file, which becomes the last one of the place.

        Raises PlaceBusyError; UsageError; StateError if the file is damaged, of another model, or too large for the
        cache.
        """
        ids, logits, arrays = self._read(path)
        size = len(ids) * self.model.memory.bytes_kv_per_token + self.model.memory.bytes_state_per_seq
        if size > self.cache.budget:
            raise StateError(
                f"{path.name} needs {size_text(size)} of memory, the limit is {size_text(self.cache.budget)}.",
                remedy=Remedy.CHECKPOINTS,
            )
        text = self.service.call(lambda: self._room(place, ids, logits)).result()
        try:
            held_text.fill(self.model.memory, text, arrays)
        except BaseException:
            self.service.call(lambda: self.model.memory.end_loan(text)).result()
            raise
        self.service.call(lambda: self._add(place, text)).result()
        return Carried(len(ids), path.stat().st_size)

    def erase(self, place: int) -> int:
        """Forgets the last text of a place, except prefixes of other texts; returns how many tokens it had.

        Raises PlaceBusyError.
        """
        return self.service.call(lambda: self._erase(place)).result()

    def _read(self, path: Path) -> tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray]]:
        with path.open("rb") as file:
            ours = file.read(len(MAGIC)) == MAGIC
        if not ours:
            tokens, session = read_sequence(self.model, path)
            return np.asarray(tokens, np.int32), None, session
        with read_state(path) as state:
            state.header.check_model(self._fingerprint, self._description, path)
            saved = read_text(state, self.model.memory, self.model.n_vocab)
            if saved.computed is not None or not saved.tokens:
                what = "tokens left its context" if saved.tokens else "it holds no computed tokens"
                raise StateError(f"{path.name}: {what}, so no other text can go on from it.")
            # copied: the file is closed before they are used
            arrays = {name: array.copy() for name, array in saved.arrays.items()}
            return np.asarray(saved.tokens, np.int32), saved.logits, arrays

    # --- in the service's thread ---
    def _held(self, place: int) -> held_text.HeldText:
        ids = self._text(place)
        text = held_text.hold(self.cache, np.asarray(ids, np.int32), self.owner) if ids else None
        if text is None:
            why = "its text was given up: there was no room for it" if ids else "it has no text yet"
            raise UsageError(f"slot {place}: {why}.")
        return text

    def _text(self, place: int) -> list[int]:
        batcher = self.service.batcher
        if any(job.place == place for job in batcher.running):
            raise PlaceBusyError(f"slot {place} is in use.")
        owner, ids = batcher.texts[place]
        return ids if owner == self.owner else []

    def _room(self, place: int, ids: np.ndarray, logits: np.ndarray | None) -> held_text.HeldText:
        self._text(place)
        return held_text.take(self.cache, ids, logits, self.owner)

    def _add(self, place: int, text: held_text.HeldText) -> None:
        self.service.batcher.texts[place] = self.owner, text.ids.tolist()
        held_text.add(self.cache, text)

    def _erase(self, place: int) -> int:
        ids = self._text(place)
        if ids:
            self.service.forget(ids, self.owner)
            self.service.batcher.texts[place] = self.owner, []
        return len(ids)
