"""A text in a model's memory: append tokens, go back, save and restore."""

import os
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from .engine.pictures import Picture
from .guessers import Guessers
from .memory import PromptCache
from .memory.cache import LADDER, KnownText
from .memory.cache_file import describe_cache, load_cache
from .memory.hybrid import MOST_PIECES
from .memory.picture_tokens import outside
from .memory.prefix_tree import common_beginning
from .memory.saved_text import read_text
from .memory.state_file import StateHeader, read_state, write_state
from .progress import TokenProgress
from .runner import Runner, Slot, Work

if TYPE_CHECKING:
    from .text.tokenizer import Tokenizer


class Sequence(Slot):
    """A text in the model's memory. Use `LoadedModel.sequence`.

    With a prompt cache it leaves checkpoints, and finds the checkpoints of other texts.
    """

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.extra: dict[str, Any] = {}
        self._verified: np.ndarray | None = None  # logits of tokens that may be taken back
        self._verified_end = 0

    @property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer."""
        return self.runner.file.tokenizer

    @property
    def guessers(self) -> Guessers:
        """How tokens are guessed for this model."""
        return self.runner.guessers

    def prefill(
        self,
        ids: Seq[int],
        progress: TokenProgress | None = None,
        boundaries: Iterable[int] = (),
        pictures: Seq[Picture] = (),
    ) -> np.ndarray:
        """Append tokens; returns the logits after the last, f32 [n_vocab].

        pictures: the pictures of tokens below 0 (`Picture.ids`), unless somebody made them known (`Runner.pictures`).

        boundaries: positions in the whole text that a later text may continue from. With a prompt cache, checkpoints
        are made at these, at the beginning and the end, and at every multiple of LADDER.
        """
        if not len(ids):
            raise UsageError("there are no tokens to process")
        self.check_open()
        self.runner.pictures.add(*pictures)
        start, end = self.n_past, self.n_past + len(ids)
        if self._cache is not None:
            self.runner.check([Work(self, ids)])
            self.checkpoint()
            marks = {b for b in boundaries if start < b < end}
            ladder = set(range((start // LADDER + 1) * LADDER, end, LADDER))
            for at in sorted(marks | ladder):
                done = self.n_past - start
                cut = self.runner.cut(ids, done, at - start)
                if not done < cut < len(ids):
                    continue
                part = ids[done:cut]
                self.runner.eval([Work(self, part, "none")], _shifted(progress, self.n_past - start, len(ids)))
                self.checkpoint(boundary=at in marks)
        rest = ids[self.n_past - start :]
        result = self.runner.eval([Work(self, rest)], _shifted(progress, self.n_past - start, len(ids)))[0]
        assert result.logits is not None
        self.logits = result.logits[-1]
        self.checkpoint()
        return self.logits

    def decode(self, token: int) -> np.ndarray:
        """Append one token; returns the logits after it, f32 [n_vocab]."""
        self.logits = logits = self.runner.step(self, token)
        if len(self.tokens) % LADDER == 0:
            self.checkpoint(boundary=False)
        return logits

    def verify(self, ids: Seq[int]) -> np.ndarray:
        """Append tokens that may be wrong, in one pass; returns the logits after each, f32 [n, n_vocab].

        Call `take_back` before anything else is done with the sequence.
        """
        if not 0 < len(ids) <= min(MOST_PIECES, self.runner.n_ubatch):
            raise UsageError(f"{len(ids)} tokens cannot be verified at once, 1 to {MOST_PIECES} can.")
        result = self.runner.eval([Work(self, ids, "all", each=True)])[0]
        assert result.logits is not None
        self.verified(result.logits)
        return result.logits

    def verified(self, rows: np.ndarray) -> None:
        """Note logits of an `eval` with `Work(each=True)` for this sequence, f32 [n, n_vocab], as after `verify`."""
        self._verified, self._verified_end = rows, len(self.tokens)
        self.logits = rows[-1]

    def take_back(self, n: int, *, ladder: bool = True) -> None:
        """Remove the last n of the verified tokens, never the first, as if they had not been appended.

        ladder: make a checkpoint if a multiple of LADDER was passed.
        """
        rows, self._verified = self._verified, None
        if rows is None or len(self.tokens) != self._verified_end or not 0 <= n < len(rows):
            raise UsageError(f"{n} tokens cannot be taken back: verify some first, and keep one of them.")
        start, kept = len(self.tokens) - len(rows), len(rows) - n
        self.runner.settle(self, kept)
        self.logits = rows[kept - 1]
        if ladder and (start + kept) // LADDER > start // LADDER:
            self.checkpoint(boundary=False)

    @property
    def _cache(self) -> PromptCache | None:
        """The prompt cache; None without one, or while the slot holds random numbers."""
        return None if self._filled else self.runner.cache

    def checkpoint(self, *, boundary: bool = True) -> None:
        """Remember this position, for `resume` and `rewind` of any sequence. Does nothing without a prompt cache.

        boundary: later texts may continue from here; False: it only limits how much must be processed again (LADDER).
        """
        self.check_open()
        cache = self._cache
        if cache is not None and self.tokens and not self.is_shifted:
            owner = self.owner if len(self.tokens) > self.applied.start else self.base_owner
            cache.keep(self.slot, self.tokens, boundary=boundary, logits=self.logits if boundary else None, owner=owner)

    def resume(self, ids: Seq[int], *, logits: bool = True) -> int:
        """Hold the longest prefix of `ids` that is known from this or any earlier text, and nothing else.

        Returns its length: `ids[length:]` must still be processed. The prefix can be all of `ids` only where the logits
        after it are known, unless `logits` is False. The earlier content of the sequence stays in the prompt cache.
        """
        self.check_open()
        if not len(ids):
            self.clear()
            return 0
        # tokens that were moved have other keys and values than the model computes for this text
        own = common_beginning(self.tokens[: self.n_computed], ids)
        if self.runner.memory.is_together:
            own = outside(ids, own)
        if own == len(ids) and (own < len(self.tokens) or (logits and self.logits is None)):
            own = self.runner.cut(ids, -1, own - 1)
        if own < len(self.tokens):
            self.checkpoint()
            if self.runner.memory.is_recurrent:
                own = 0
        cache = self._cache
        known = self._known(cache, ids, logits=logits) if cache is not None else None
        if cache is not None and known is not None and known.position > own:
            cache.restore(self.slot, known)
            self.tokens = [int(i) for i in ids[: known.position]]
            point = known.checkpoint
            self.logits = point.logits.copy() if point is not None and point.logits is not None else None
        elif own < len(self.tokens):
            self.truncate(own)
        return len(self.tokens)

    def _known(self, cache: PromptCache, ids: Seq[int], *, logits: bool) -> KnownText | None:
        """The longest known prefix of a text with this sequence's adapters; before they begin it is any base text's."""
        known, start = cache.find(ids, self.owner, logits=logits), self.applied.start
        if start and (known is None or known.position < start):
            before = cache.find(ids[:start], self.base_owner, logits=logits and len(ids) <= start)
            if before is not None and (known is None or before.position > known.position):
                return before
        return known

    def logits_of(self, ids: Seq[int]) -> np.ndarray:
        """Append tokens; returns the logits after each, f32 [n, n_vocab]."""
        result = self.runner.eval([Work(self, ids, "all")])[0]
        if result.logits is None:
            return np.zeros((0, self.runner.n_vocab), np.float32)
        self.logits = result.logits[-1]
        return result.logits

    def clear(self) -> None:
        """Forget all tokens."""
        self.check_open()
        self.checkpoint()
        self.truncate(0)

    def rewind(self, n: int) -> int:
        """Go back to the first n tokens, or to the last earlier position that the memory still has; returns it.

        A recurrent state cannot be cut, so models with recurrent layers go back to the last checkpoint. After a context
        shift that is a checkpoint from before the shift.
        """
        self.check_open()
        if n >= len(self.tokens):
            return len(self.tokens)
        if self._cache is not None and self.runner.memory.is_recurrent:
            return self.resume(self.tokens[: max(n, 0)])
        return self.truncate(n)

    def remove(self, start: int, end: int) -> None:
        """Forget tokens start..end and leave their positions empty. Later tokens are not computed again.

        Raises StateError for recurrent layers, which cannot forget. If nothing follows `end`, this is `rewind`.
        """
        self.check_open()
        start = max(0, start)
        if end >= len(self.tokens):
            self.rewind(start)
        elif start < end:
            self.leave_gap(start, end)

    def copy(self) -> "Sequence":
        """A new sequence with the same tokens, independent from then on."""
        self.check_open()
        other = Sequence(self.runner)
        other.become(self)
        other.extra = dict(self.extra)
        return other

    @property
    def pending(self) -> list[int]:
        """Tokens that were sampled before the sequence was saved and are not computed yet.

        Raises StateError when they are not in the vocabulary.
        """
        tokens = self.extra.get("pending", [])
        if not isinstance(tokens, list) or not all(type(t) is int and 0 <= t < self.runner.n_vocab for t in tokens):
            raise StateError("the state's sampled tokens are not in this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        return tokens

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None, checkpoints: int = 0) -> int:
        """Write tokens, memory and last logits to a state file; returns its size.

        extra        JSON values, restored as `self.extra`
        checkpoints  limit in bytes on checkpoints of the prompt cache, of all texts, that are also written
        """
        self.check_open()
        runner = self.runner
        cached: tuple[list[dict[str, Any]], list[tuple[str, np.ndarray]]] = [], []
        shifted, positions = self.is_shifted, runner.memory.positions[self.slot]
        cache = self._cache
        if cache is not None and checkpoints:
            self.checkpoint()
            # keys and values that were shifted are of no use to other texts
            cached = describe_cache(cache, [] if shifted else self.tokens, checkpoints, self.owner)
        header = StateHeader(
            runner.fingerprint(self.applied), runner.description(self.applied), len(self.tokens), extra or self.extra,
            cached[0], runner.memory.computed(self.slot) if shifted else None, runner.memory.attention.described(),
        )  # fmt: skip
        arrays: list[tuple[str, np.ndarray]] = [("tokens", np.asarray(self.tokens, np.int32))]
        if not positions.plain:
            arrays += [("positions", positions.of(0, self.n_past))]
        if self.logits is not None:
            arrays.append(("logits", self.logits))
        return write_state(path, header, [*arrays, *runner.memory.export(self.slot), *cached[1]])

    def close(self, *, remember: bool = True) -> None:
        """Give the slot back. remember: its content stays in the prompt cache."""
        if self.is_open and remember:
            self.checkpoint()
        super().close()


def restored(runner: Runner, path: str | os.PathLike[str], seq: Sequence | None = None) -> Sequence:
    """See `LoadedModel.restore`."""
    path, applied = Path(path), runner.applied if seq is None else seq.applied
    with read_state(path) as state:
        state.header.check_model(runner.fingerprint(applied), runner.description(applied), path)
        # everything is checked before a slot is taken or the old content of `seq` is touched
        saved = read_text(state, runner.memory, runner.n_vocab)
        target = seq or Sequence(runner)
        try:
            target.load(saved)
            target.extra = dict(saved.extra)
            target.checkpoint()
            if runner.cache is not None:
                load_cache(runner.cache, state, runner.n_vocab, target.owner)
        except BaseException:
            if seq is None:
                target.close(remember=False)
            raise
    return target


def _shifted(progress: TokenProgress | None, begun: int, total: int) -> TokenProgress | None:
    """Progress of a part that begins after `begun` of `total` tokens."""
    return None if progress is None else lambda done, _: progress(begun + done, total)
