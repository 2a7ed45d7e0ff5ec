"""A text in a model's memory: what it is given, where it goes back to, and the file it is kept in."""

import os
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from .guessers import Guessers
from .memory import PromptCache
from .memory.cache import LADDER
from .memory.cache_file import describe_cache, load_cache
from .memory.hybrid import MOST_PIECES
from .memory.prefix_tree import common_beginning
from .memory.saved_text import read_text
from .memory.state_file import StateHeader, read_state, write_state
from .progress import TokenProgress
from .runner import Runner, Slot, Work

if TYPE_CHECKING:
    from .text.tokenizer import Tokenizer


class Sequence(Slot):
    """A text in the model's memory. Use `LoadedModel.sequence`.

    With a prompt cache it leaves checkpoints on its way, and finds those of other texts.
    """

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.extra: dict[str, Any] = {}
        self._verified: np.ndarray | None = None  # logits of tokens that may be taken back
        self._verified_end = 0

    @property
    def tokenizer(self) -> "Tokenizer":
        """The model's."""
        return self.runner.file.tokenizer

    @property
    def guessers(self) -> Guessers:
        """The model's: how tokens are guessed."""
        return self.runner.guessers

    def prefill(
        self, ids: Seq[int], progress: TokenProgress | None = None, boundaries: Iterable[int] = ()
    ) -> np.ndarray:
        """Append tokens; returns the logits after the last, f32 [n_vocab].

        boundaries: positions in the whole text that a later text may continue from. With a prompt cache there will be
        checkpoints at them, at the beginning and at the end, and at every multiple of LADDER.
        """
        if not len(ids):
            raise UsageError("there are no tokens to process")
        self.check_open()
        start, end = self.n_past, self.n_past + len(ids)
        if self._cache is not None:
            self.runner.check([Work(self, ids)])
            self.checkpoint()
            marks = {b for b in boundaries if start < b < end}
            ladder = set(range((start // LADDER + 1) * LADDER, end, LADDER))
            for at in sorted(marks | ladder):
                part = ids[self.n_past - start : at - start]
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

        `take_back` follows, before anything else is done with the sequence.
        """
        if not 0 < len(ids) <= min(MOST_PIECES, self.runner.n_ubatch):
            raise UsageError(f"{len(ids)} tokens cannot be verified at once, 1 to {MOST_PIECES} can.")
        result = self.runner.eval([Work(self, ids, "all", each=True)])[0]
        assert result.logits is not None
        self.verified(result.logits)
        return result.logits

    def verified(self, rows: np.ndarray) -> None:
        """After an `eval` with a work of this sequence that wants the logits after `each` of its tokens, f32
        [n, n_vocab]: as after `verify`."""
        self._verified, self._verified_end = rows, len(self.tokens)
        self.logits = rows[-1]

    def take_back(self, n: int, *, ladder: bool = True) -> None:
        """Forget the last n of the tokens verified, but never the first one: the sequence never had them.

        ladder: leave a checkpoint where there is to be one, see `prefill`.
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
        """The prompt cache, unless what is here must not get into it."""
        return None if self._filled else self.runner.cache

    def checkpoint(self, *, boundary: bool = True) -> None:
        """Remember this place: `resume` and `rewind` of any sequence find it. Does nothing without a prompt cache.
        boundary: later texts may continue from here; False: one of the ladder that bounds how much is processed again.
        """
        self.check_open()
        cache = self._cache
        if cache is not None and self.tokens and not self.is_shifted:
            cache.keep(
                self.slot, self.tokens, boundary=boundary, logits=self.logits if boundary else None, owner=self.owner
            )

    def resume(self, ids: Seq[int], *, logits: bool = True) -> int:
        """Hold as much of the beginning of `ids` as is known, from this or any earlier text, and nothing else.

        Returns how much: `ids` from there on are left to be processed. All of it is known only where the logits after
        it are known too, unless nobody wants these `logits`. What the sequence held before stays in the prompt cache.
        """
        self.check_open()
        if not len(ids):
            self.clear()
            return 0
        # what was moved is not what the model makes of these tokens
        own = common_beginning(self.tokens[: self.n_computed], ids)
        if own == len(ids) and (own < len(self.tokens) or (logits and self.logits is None)):
            own -= 1
        if own < len(self.tokens):
            self.checkpoint()
            if self.runner.memory.is_recurrent:
                own = 0
        cache = self._cache
        known = cache.find(ids, self.owner, logits=logits) if cache is not None else None
        if cache is not None and known is not None and known.position > own:
            cache.restore(self.slot, known)
            self.tokens = [int(i) for i in ids[: known.position]]
            point = known.checkpoint
            self.logits = point.logits.copy() if point is not None and point.logits is not None else None
        elif own < len(self.tokens):
            self.truncate(own)
        return len(self.tokens)

    def logits_of(self, ids: Seq[int]) -> np.ndarray:
        """Append tokens; returns the logits after each, f32 [n, n_vocab]."""
        result = self.runner.eval([Work(self, ids, "all")])[0]
        if result.logits is None:
            return np.zeros((0, self.runner.n_vocab), np.float32)
        self.logits = result.logits[-1]
        return result.logits

    def clear(self) -> None:
        """Forget everything."""
        self.check_open()
        self.checkpoint()
        self.truncate(0)

    def rewind(self, n: int) -> int:
        """Go back to the first n tokens, or to the last earlier point the memory still has; returns where it goes on.

        A recurrent state cannot be cut, so models that have one go back to the last checkpoint; behind a shift of the
        context that is one of the text before it.
        """
        self.check_open()
        if n >= len(self.tokens):
            return len(self.tokens)
        if self._cache is not None and self.runner.memory.is_recurrent:
            return self.resume(self.tokens[: max(n, 0)])
        return self.truncate(n)

    def remove(self, start: int, end: int) -> None:
        """Forget tokens start..end and leave their positions empty: later tokens are as they were computed with them.

        StateError where there are recurrent layers, which would remember them. Up to the end it is `rewind`.
        """
        self.check_open()
        start = max(0, start)
        if end >= len(self.tokens):
            self.rewind(start)
        elif start < end:
            self.leave_gap(start, end)

    def copy(self) -> "Sequence":
        """Another sequence with the same past, which goes its own way."""
        self.check_open()
        other = Sequence(self.runner)
        other.owner = self.owner
        other.become(self)
        other.extra = dict(self.extra)
        return other

    @property
    def pending(self) -> list[int]:
        """Tokens that were drawn before the sequence was saved and are not computed yet; StateError when they are not
        tokens of the vocabulary."""
        tokens = self.extra.get("pending", [])
        if not isinstance(tokens, list) or not all(type(t) is int and 0 <= t < self.runner.n_vocab for t in tokens):
            raise StateError(
                "the state holds drawn tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
            )
        return tokens

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None, checkpoints: int = 0) -> int:
        """Write tokens, memory and last logits to a state file; returns its size.

        extra        JSON values to get back
        checkpoints  up to so many bytes of the prompt cache, of this and of all other texts, are written too
        """
        self.check_open()
        runner = self.runner
        cached: tuple[list[dict[str, Any]], list[tuple[str, np.ndarray]]] = [], []
        shifted, positions = self.is_shifted, runner.memory.positions[self.slot]
        cache = self._cache
        if cache is not None and checkpoints:
            self.checkpoint()
            # what was shifted has no keys and values for other texts
            cached = describe_cache(cache, [] if shifted else self.tokens, checkpoints, self.owner)
        header = StateHeader(
            runner.file.fingerprint, runner.file.description, len(self.tokens), extra or self.extra, cached[0],
            runner.memory.computed(self.slot) if shifted else None,
        )  # fmt: skip
        arrays: list[tuple[str, np.ndarray]] = [("tokens", np.asarray(self.tokens, np.int32))]
        if not positions.plain:
            arrays += [("positions", positions.of(0, self.n_past))]
        if self.logits is not None:
            arrays.append(("logits", self.logits))
        return write_state(path, header, [*arrays, *runner.memory.export(self.slot), *cached[1]])

    def close(self, *, remember: bool = True) -> None:
        """Give the slot back. remember: what it held stays in the prompt cache."""
        if self.is_open and remember:
            self.checkpoint()
        super().close()


def restored(runner: Runner, path: str | os.PathLike[str], seq: Sequence | None = None) -> Sequence:
    """See `LoadedModel.restore`."""
    path = Path(path)
    with read_state(path) as state:
        state.header.check_model(runner.file.fingerprint, runner.file.description, path)
        # everything is checked before a slot is taken or the old content of `seq` is touched
        saved = read_text(state, runner.memory, runner.n_vocab)
        target = seq or Sequence(runner)
        try:
            target.load(saved)
            target.extra = dict(saved.extra)
            target.checkpoint()
            if runner.cache is not None:
                load_cache(runner.cache, state, runner.n_vocab)
        except BaseException:
            if seq is None:
                target.close(remember=False)
            raise
    return target


def _shifted(progress: TokenProgress | None, begun: int, total: int) -> TokenProgress | None:
    """Progress of a part that begins after `begun` of `total` tokens."""
    return None if progress is None else lambda done, _: progress(begun + done, total)
