"""A text in a model's memory, and the work that is done on it."""

import os
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..quant.ggml.errors import StateError, UsageError
from .memory.state_file import StateHeader, write_state

if TYPE_CHECKING:
    from .model import Model

Output = Literal["last", "all", "none"]
TokenProgress = Callable[[int, int], None]  # tokens done, tokens in all


@dataclass(frozen=True)
class Work:
    """Tokens to append to a sequence, and which of them want a result."""

    seq: "Sequence"
    ids: Seq[int]
    output: "Output | slice" = "last"
    targets: Seq[int] | None = None  # per output: the token whose -log p is wanted instead of the logits

    def outputs(self) -> range:
        n = len(self.ids)
        if isinstance(self.output, slice):
            return range(*self.output.indices(n))
        return {"last": range(n - 1, n), "all": range(n), "none": range(0)}[self.output]


@dataclass(frozen=True)
class Result:
    """logits f32 [n_out, n_vocab], or nll f64 [n_out] when targets were given."""

    logits: np.ndarray | None
    nll: np.ndarray | None


class Sequence:
    """A text in the model's memory. Use `Model.sequence`."""

    def __init__(self, model: "Model", slot: int) -> None:
        self.model, self.slot = model, slot
        self.tokens: list[int] = []
        self.logits: np.ndarray | None = None
        self.extra: dict[str, Any] = {}
        self._open = True

    @property
    def id(self) -> int:
        return self.slot

    @property
    def n_past(self) -> int:
        """Tokens that the memory holds."""
        return int(self.model.memory.n_past[self.slot])

    def _ready(self) -> None:
        if not self._open:
            raise UsageError("this sequence was closed")

    def _has_seen(self, start: int, ids: Seq[int]) -> None:
        """After a run that was to append `ids` to `start` tokens: as many as the memory has seen."""
        self.tokens[start:] = (int(i) for i in ids[: max(0, self.n_past - start)])
        self._follow_memory()

    def _follow_memory(self) -> None:
        """Keep only the tokens that the memory has seen."""
        del self.tokens[self.n_past :]
        self.logits = None

    def prefill(self, ids: Seq[int], progress: TokenProgress | None = None) -> np.ndarray:
        """Append tokens; returns the logits after the last, f32 [n_vocab]."""
        if not len(ids):
            raise UsageError("there are no tokens to process")
        result = self.model.eval([Work(self, ids)], progress)[0]
        assert result.logits is not None
        self.logits = result.logits[-1]
        return self.logits

    def decode(self, token: int) -> np.ndarray:
        """Append one token; returns the logits after it, f32 [n_vocab]."""
        self.logits = logits = self.model.step(self, token)
        return logits

    def logits_of(self, ids: Seq[int]) -> np.ndarray:
        """Append tokens; returns the logits after each, f32 [n, n_vocab]."""
        result = self.model.eval([Work(self, ids, "all")])[0]
        if result.logits is None:
            return np.zeros((0, self.model.n_vocab), np.float32)
        self.logits = result.logits[-1]
        return result.logits

    def clear(self) -> None:
        """Forget everything."""
        self._ready()
        self.model.memory.seq_rm(self.slot, 0)
        self._follow_memory()

    def fill(self, ids: Seq[int]) -> None:
        """Forget everything and hold `ids` with a memory of random numbers: to measure at a depth without computing it.

        What the model predicts then means nothing, and how fast it does is as always.
        """
        self._ready()
        if len(ids) > self.model.n_ctx:
            raise UsageError(
                f"{len(ids)} tokens do not fit the context of {self.model.n_ctx}. Use a larger context (-c)."
            )
        self.model.memory.fill(self.slot, len(ids))
        self.tokens, self.logits = list(ids), None

    def rewind(self, n: int) -> int:
        """Go back to the first n tokens, or to the last earlier point the memory still has; returns where it goes on.

        A recurrent state cannot be cut, so for models that have one the point is n only if nothing follows it.
        """
        self._ready()
        if n >= len(self.tokens):
            return len(self.tokens)
        at = self.model.memory.seq_rm(self.slot, n)
        self._follow_memory()
        return at

    def copy(self) -> "Sequence":
        """Another sequence with the same past, which goes its own way."""
        self._ready()
        other = self.model.sequence()
        self.model.memory.seq_cp(self.slot, other.slot)
        other.tokens = list(self.tokens)
        other.logits = None if self.logits is None else self.logits.copy()
        other.extra = dict(self.extra)
        return other

    @property
    def pending(self) -> list[int]:
        """Tokens that were drawn before the sequence was saved and not yet computed; StateError when they are none."""
        tokens = self.extra.get("pending", [])
        if not isinstance(tokens, list) or not all(type(t) is int and 0 <= t < self.model.n_vocab for t in tokens):
            raise StateError("the state holds drawn tokens that are not of this vocabulary. Start without it.")
        return tokens

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> int:
        """Write tokens, memory and last logits to a state file; returns its size. `extra`: JSON values to get back."""
        self._ready()
        model = self.model
        header = StateHeader(model.fingerprint, model.description, len(self.tokens), extra or self.extra)
        arrays = [("tokens", np.asarray(self.tokens, np.int32))]
        if self.logits is not None:
            arrays.append(("logits", self.logits))
        return write_state(path, header, [*arrays, *model.memory.export(self.slot)])

    def close(self) -> None:
        """Give the slot back."""
        if self._open:
            self._open = False
            self.model.memory.n_past[self.slot] = 0
            self.model._free.append(self.slot)
