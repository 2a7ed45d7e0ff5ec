"""A text in a model's memory, and the work that is done on it."""

import os
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from .memory.cache import LADDER
from .memory.cache_file import describe_cache
from .memory.hybrid import MOST_PIECES
from .memory.state_file import StateHeader, write_state

if TYPE_CHECKING:
    from .memory import HybridMemory
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
    each: bool = False  # keep a state after every token: for one ubatch, see `Sequence.verify`

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
        self._verified: np.ndarray | None = None  # logits of tokens that may be taken back
        self._verified_end = 0
        self._known = True

    @property
    def id(self) -> int:
        return self.slot

    @property
    def n_past(self) -> int:
        """Tokens that the memory holds."""
        return int(self.model.memory.n_past[self.slot])

    @property
    def room(self) -> int:
        """Tokens that it can still get."""
        return self.model.memory.room(self.slot)

    @property
    def is_shifted(self) -> bool:
        """Whether tokens were taken out of its middle, or moved: the prompt cache does not know it then."""
        return self.model.memory.is_moved(self.slot)

    def _ready(self) -> None:
        if not self._open:
            raise UsageError("this sequence was closed")

    def _has_seen(self, start: int, ids: Seq[int]) -> None:
        """After a run that was to append `ids` to `start` tokens: as many as the memory has seen."""
        have = len(self.tokens) - start  # of earlier runs of the same call
        self.tokens += map(int, ids[have : max(have, self.n_past - start)])
        self._follow_memory()

    def _follow_memory(self) -> None:
        """Keep only the tokens that the memory has seen."""
        del self.tokens[self.n_past :]
        self.logits = None

    def prefill(
        self, ids: Seq[int], progress: TokenProgress | None = None, boundaries: Iterable[int] = ()
    ) -> np.ndarray:
        """Append tokens; returns the logits after the last, f32 [n_vocab].

        boundaries: positions in the whole text that a later text may continue from. With a prompt cache there will be
        checkpoints at them, at the beginning and at the end, and at every multiple of LADDER.
        """
        if not len(ids):
            raise UsageError("there are no tokens to process")
        self._ready()
        start, end = self.n_past, self.n_past + len(ids)
        if self._caches:
            self.model.check([Work(self, ids)])
            self.checkpoint()
            marks = {b for b in boundaries if start < b < end}
            ladder = set(range((start // LADDER + 1) * LADDER, end, LADDER))
            for at in sorted(marks | ladder):
                part = ids[self.n_past - start : at - start]
                self.model.eval([Work(self, part, "none")], _shifted(progress, self.n_past - start, len(ids)))
                self.checkpoint(boundary=at in marks)
        rest = ids[self.n_past - start :]
        result = self.model.eval([Work(self, rest)], _shifted(progress, self.n_past - start, len(ids)))[0]
        assert result.logits is not None
        self.logits = result.logits[-1]
        self.checkpoint()
        return self.logits

    def decode(self, token: int) -> np.ndarray:
        """Append one token; returns the logits after it, f32 [n_vocab]."""
        self.logits = logits = self.model.step(self, token)
        if len(self.tokens) % LADDER == 0:
            self.checkpoint(boundary=False)
        return logits

    def verify(self, ids: Seq[int]) -> np.ndarray:
        """Append tokens that may be wrong, in one pass; returns the logits after each, f32 [n, n_vocab].

        `take_back` follows, before anything else is done with the sequence.
        """
        if not 0 < len(ids) <= min(MOST_PIECES, self.model.engine.n_ubatch):
            raise UsageError(f"{len(ids)} tokens cannot be verified at once, 1 to {MOST_PIECES} can.")
        result = self.model.eval([Work(self, ids, "all", each=True)])[0]
        assert result.logits is not None
        self._verified, self._verified_end = result.logits, len(self.tokens)
        self.logits = result.logits[-1]
        return result.logits

    def take_back(self, n: int) -> None:
        """Forget the last n of the tokens verified, but never the first one: the sequence never had them."""
        rows, self._verified = self._verified, None
        if rows is None or len(self.tokens) != self._verified_end or not 0 <= n < len(rows):
            raise UsageError(f"{n} tokens cannot be taken back: verify some first, and keep one of them.")
        start, kept = len(self.tokens) - len(rows), len(rows) - n
        self.model.engine.settle(self.slot, kept)
        del self.tokens[start + kept :]
        self.logits = rows[kept - 1]
        if (start + kept) // LADDER > start // LADDER:
            self.checkpoint(boundary=False)

    @property
    def _caches(self) -> bool:
        return self.model.cache is not None and self._known

    def checkpoint(self, *, boundary: bool = True) -> None:
        """Remember this place: `resume` and `rewind` of any sequence find it. Does nothing without a prompt cache.
        boundary: later texts may continue from here; False: one of the ladder that bounds how much is processed again.
        """
        self._ready()
        if self._caches and self.tokens and self.model.cache is not None and not self.is_shifted:
            self.model.cache.keep(self.slot, self.tokens, boundary=boundary, logits=self.logits if boundary else None)

    def resume(self, ids: Seq[int]) -> int:
        """Hold as much of the beginning of `ids` as is known, from this or any earlier text, and nothing else.

        Returns how much: `ids` from there on are left to be processed. All of it is known only where the logits after
        it are known too. What the sequence held before stays in the prompt cache.
        """
        self._ready()
        if not len(ids):
            self.clear()
            return 0
        # what was moved is not what the model makes of these tokens
        own = common_beginning(self.tokens[: self.model.memory.computed(self.slot)], ids)
        if own == len(ids) and (own < len(self.tokens) or self.logits is None):
            own -= 1
        if own < len(self.tokens):
            self.checkpoint()
            if self.model.memory.is_recurrent:
                own = 0
        found = self.model.cache.find(ids) if self._caches and self.model.cache is not None else None
        if found is not None and found.position > own:
            assert self.model.cache is not None
            self.model.cache.restore(self.slot, found)
            self.tokens = [int(i) for i in ids[: found.position]]
            point = found.checkpoint
            self.logits = point.logits.copy() if point is not None and point.logits is not None else None
        elif own < len(self.tokens):
            self.model.memory.truncate(self.slot, own)
            self._follow_memory()
        return len(self.tokens)

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
        self.checkpoint()
        self.model.memory.truncate(self.slot, 0)
        self._follow_memory()
        self._known = True

    def fill(self, ids: Seq[int]) -> None:
        """Forget everything and hold `ids` with a memory of random numbers: to measure at a depth without computing it.

        The model's predictions then mean nothing; their speed is as always.
        """
        self._ready()
        if len(ids) > self.model.n_ctx:
            raise UsageError(
                f"{len(ids)} tokens do not fit the context of {self.model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
            )
        self.model.memory.fill(self.slot, len(ids))
        self.tokens, self.logits, self._known = list(ids), None, False

    def rewind(self, n: int) -> int:
        """Go back to the first n tokens, or to the last earlier point the memory still has; returns where it goes on.

        A recurrent state cannot be cut, so models that have one go back to the last checkpoint; behind a shift of the
        context that is one of the text before it.
        """
        self._ready()
        if n >= len(self.tokens):
            return len(self.tokens)
        if self._caches and self.model.memory.is_recurrent:
            return self.resume(self.tokens[: max(n, 0)])
        at = self.model.memory.truncate(self.slot, n)
        self._follow_memory()
        return at

    def shift(self, keep: int, n: int) -> None:
        """Take n tokens behind the first `keep` out of the attention layers; the rest moves up to their positions.

        Keys that RoPE turned are turned back by n positions. Recurrent layers go on from the state they have, which
        has seen what left. The prompt cache keeps what it has of the text and takes no more of it. UsageError when no
        token would be left after those, or the model cannot move keys (learned positions).
        """
        self._ready()
        self._moved(lambda memory: memory.shift(self.slot, keep, n), keep, keep + n)

    def remove(self, start: int, end: int) -> None:
        """Forget tokens start..end and leave their positions empty: later tokens are as they were computed with them.

        StateError where there are recurrent layers, which would remember them. Up to the end it is `rewind`.
        """
        self._ready()
        start = max(0, start)
        if end >= len(self.tokens):
            self.rewind(start)
        elif start < end:
            self._moved(lambda memory: memory.remove(self.slot, start, end), start, end)

    def _moved(self, change: Callable[["HybridMemory"], object], start: int, end: int) -> None:
        """After a change of the memory that takes tokens start..end out of the middle, the same ones go here."""
        before = len(self.tokens)
        try:
            change(self.model.memory)
        finally:
            # an interrupt leaves the tokens before those
            if self.n_past == before - (end - start):
                del self.tokens[start:end]
            elif self.n_past < before:
                self._follow_memory()

    def copy(self) -> "Sequence":
        """Another sequence with the same past, which goes its own way."""
        self._ready()
        other = self.model.sequence()
        other.become(self)
        other.extra = dict(self.extra)
        return other

    def become(self, other: "Sequence") -> None:
        """Hold what `other` holds, in the same memory as long as both do."""
        self._ready()
        self.model.memory.seq_cp(other.slot, self.slot)
        self.tokens = list(other.tokens)
        self.logits = None if other.logits is None else other.logits.copy()
        self._known = other._known

    @property
    def is_computed(self) -> bool:
        """Whether the memory is what the model makes of the tokens: not filled for a measurement, not shifted."""
        return self._known and not self.is_shifted

    @property
    def pending(self) -> list[int]:
        """Tokens that were drawn before the sequence was saved and are not computed yet; StateError when they are not
        tokens of the vocabulary."""
        tokens = self.extra.get("pending", [])
        if not isinstance(tokens, list) or not all(type(t) is int and 0 <= t < self.model.n_vocab for t in tokens):
            raise StateError(
                "the state holds drawn tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
            )
        return tokens

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None, checkpoints: int = 0) -> int:
        """Write tokens, memory and last logits to a state file; returns its size.

        extra        JSON values to get back
        checkpoints  up to so many bytes of the prompt cache, of this and of all other texts, are written too
        """
        self._ready()
        model = self.model
        cached: tuple[list[dict[str, Any]], list[tuple[str, np.ndarray]]] = [], []
        shifted, positions = self.is_shifted, model.memory.positions[self.slot]
        if self._caches and model.cache is not None and checkpoints:
            self.checkpoint()
            # what was shifted has no keys and values for other texts
            cached = describe_cache(model.cache, [] if shifted else self.tokens, checkpoints)
        header = StateHeader(
            model.fingerprint, model.description, len(self.tokens), extra or self.extra, cached[0],
            model.memory.computed(self.slot) if shifted else None,
        )  # fmt: skip
        arrays: list[tuple[str, np.ndarray]] = [("tokens", np.asarray(self.tokens, np.int32))]
        if not positions.plain:
            arrays += [("positions", positions.of(0, self.n_past))]
        if self.logits is not None:
            arrays.append(("logits", self.logits))
        return write_state(path, header, [*arrays, *model.memory.export(self.slot), *cached[1]])

    def close(self, *, remember: bool = True) -> None:
        """Give the slot back. remember: what it held stays in the prompt cache."""
        if self._open:
            if remember:
                self.checkpoint()
            self._open = False
            self.model.memory.release(self.slot)
            self.model._free.append(self.slot)


@contextmanager
def measured(model: "Model", n: int) -> Iterator[list[Sequence]]:
    """n empty sequences for as long as texts are measured, of which the prompt cache keeps nothing: these texts are not
    used again, and the weights may not be those of the file (see sensitivity.py)."""
    seqs: list[Sequence] = []
    try:
        for _ in range(n):
            seqs.append(model.sequence())
        yield seqs
    finally:
        for seq in seqs:
            seq.close(remember=False)


def common_beginning(a: Seq[int] | np.ndarray, b: Seq[int] | np.ndarray) -> int:
    """Length of the beginning that both have."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:n], np.int64) != np.asarray(b[:n], np.int64))
    return int(differ[0]) if len(differ) else n


def _shifted(progress: TokenProgress | None, begun: int, total: int) -> TokenProgress | None:
    """Progress of a part that begins after `begun` of `total` tokens."""
    return None if progress is None else lambda done, _: progress(begun + done, total)
