"""Runner of a model in stages: several passes are under way, and what a lost stage held is read again."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hybrid.quant.ggml.errors import LostStageError

from ..loading.model_file import ModelFile
from ..memory import PromptCache
from ..progress import TokenProgress
from ..runner import Part, Runner, Slot, Split, Work
from .engine import StagedEngine

MOST_LOSSES = 3  # of the same work: something else is wrong then
# What sequences held: tokens, logits, and whether the model makes the same of these tokens again.
_Held = dict[Slot, tuple[list[int], np.ndarray | None, bool]]


class StagedRunner(Runner):
    """said: gets one line when a stage was lost."""

    engine: StagedEngine

    def __init__(
        self, engine: StagedEngine, file: ModelFile, cache: PromptCache | None, said: Callable[[str], None]
    ) -> None:
        super().__init__(engine, file, cache)
        self.said = said

    def _ubatch(self, works: Sequence[Work]) -> int:
        if any(w.each for w in works):
            return self.n_ubatch
        return self.engine.piece(sum(len(w.ids) for w in works))

    def _passes(
        self, works: Sequence[Work], plan: Sequence[Sequence[Part]], *, likelihood: bool, hidden: bool
    ) -> Iterator[np.ndarray | None]:
        before = [len(w.seq.tokens) for w in works]
        ubatches = ([part.segment for part in parts] for parts in plan)
        try:
            yield from self.engine.passes(ubatches, likelihood=likelihood, hidden=hidden)
        finally:
            for w, start in zip(works, before, strict=True):
                w.seq.has_seen(start, w.ids)

    def _eval(
        self,
        works: list[Work],
        progress: TokenProgress | None,
        split: Split,
        *,
        likelihood: bool = False,
        hidden: bool = False,
    ) -> list[np.ndarray | None]:
        held: _Held | None = None
        losses = 0
        while True:
            try:
                if held is not None:
                    self._read_again(held)
                return super()._eval(works, progress, split, likelihood=likelihood, hidden=hidden)
            except LostStageError as error:
                losses += 1
                if losses > MOST_LOSSES:
                    raise
                held = self._held() if held is None else held
                self._reopen(error, held)

    def step(self, seq: Slot, token: int) -> np.ndarray:
        """As `Runner.step`."""
        (rows,) = self._eval([Work(seq, [token])], None, "simple")
        assert rows is not None
        return rows[0]

    def _held(self) -> _Held:
        return {slot: (list(slot.tokens), slot.logits, slot.is_computed) for slot in self.slots if slot.is_open}

    def _reopen(self, error: LostStageError, held: _Held) -> None:
        """All stages, with nothing in their memory; what the prompt cache had is gone. LostStageError: a sequence held
        what is not what the model makes of its tokens, and cannot be made again."""
        self.said(f"{error} Reading {sum(len(tokens) for tokens, _, _ in held.values())} tokens again.")
        if self.cache is not None:
            self.cache.clear()
        self.engine.reopen()
        for slot in held:
            slot.follow_memory()
        if not all(computed for _, _, computed in held.values()):
            raise error

    def _read_again(self, held: _Held) -> None:
        works = [Work(slot, tokens, "none") for slot, (tokens, _, _) in held.items() if tokens and not slot.n_past]
        super()._eval(works, None, "simple")
        for slot, (_, logits, _) in held.items():
            slot.logits = logits
