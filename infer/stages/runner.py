"""Runner of a model in stages: several passes are under way, and what a lost stage held is taken up again: from what it
has kept of the prompt cache, and by reading what came behind that."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hybrid.quant.ggml.errors import LostStageError

from ..loading.model_file import ModelFile
from ..program.threads import Stop
from ..progress import TokenProgress
from ..runner import Part, Runner, Slot, Split, Work
from .engine import StagedEngine
from .keeping import KeptCache

MOST_LOSSES = 3  # of the same work: something else is wrong then
# What sequences held: tokens, logits, and whether the model makes the same of these tokens again.
_Held = dict[Slot, tuple[list[int], np.ndarray | None, bool]]


class _NothingToTakeUpError(LostStageError):
    pass


class StagedRunner(Runner):
    """said: gets a line when a stage was lost, and another one when all are there again."""

    engine: StagedEngine
    cache: KeptCache | None

    def __init__(
        self, engine: StagedEngine, file: ModelFile, cache: KeptCache | None, said: Callable[[str], None]
    ) -> None:
        super().__init__(engine, file, cache)
        self.said = said
        self._callers: Stop | None = None  # while what was lost is read again, which nobody stops

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
        held: _Held = {}
        lost: LostStageError | None = None
        with self.engine.with_stop():
            for _ in range(1 + MOST_LOSSES):
                try:
                    if lost is not None:
                        self._take_up(lost, held)
                    return super()._eval(works, progress, split, likelihood=likelihood, hidden=hidden)
                except LostStageError as error:
                    if isinstance(error, _NothingToTakeUpError):
                        break
                    held = held or self._held()
                    lost = error
        assert lost is not None
        raise lost

    def step(self, seq: Slot, token: int) -> np.ndarray:
        """As `Runner.step`."""
        (rows,) = self._eval([Work(seq, [token])], None, "simple")
        assert rows is not None
        return rows[0]

    def _held(self) -> _Held:
        return {slot: (list(slot.tokens), slot.logits, slot.is_computed) for slot in self.slots if slot.is_open}

    def _take_up(self, error: LostStageError, held: _Held) -> None:
        """All stages again, with what they have kept of the prompt cache; sequences are as they were before `error`.

        Interrupted: a stop was set while a worker was waited for, and nothing has changed. _NothingToTakeUpError: a
        sequence held what is not what the model makes of its tokens, and cannot be made again.
        """
        self.said(f"{error} Waiting for one in its place.")
        self.engine.reopen()
        # Sequences are now shorter than their owners think, until all is read: who gives up a step waits for that.
        self._callers = self.engine.stop
        try:
            with self.engine.stopped_by(Stop()):
                self._read_again(error, held)
        finally:
            self._callers = None
        for slot, (_, logits, _) in held.items():
            slot.logits = logits

    def _read_again(self, error: LostStageError, held: _Held) -> None:
        if self.cache is not None:
            self.cache.take_up()
        for slot in held:
            slot.follow_memory()
        if not all(computed for _, _, computed in held.values()):
            raise _NothingToTakeUpError(str(error))
        works = [self._rest(slot, tokens) for slot, (tokens, _, _) in held.items() if tokens]
        n, total = sum(len(w.ids) for w in works), sum(len(tokens) for tokens, _, _ in held.values())
        self.said(f"All stages are there. Reading {n} of {total} tokens again.")
        super()._eval([w for w in works if w.ids], None, "simple")

    def stop(self) -> None:
        """As `Runner.stop`; while what was lost is read again it ends what comes then."""
        if (callers := self._callers) is not None:
            callers.set()
        else:
            super().stop()

    def _rest(self, slot: Slot, tokens: list[int]) -> Work:
        """What of a slot is to be read again, behind the last checkpoint that is left."""
        if self.cache is not None and (known := self.cache.find(tokens)) is not None:
            self.cache.restore(slot.slot, known)
            slot.tokens = tokens[: known.position]
        return Work(slot, tokens[slot.n_past :], "none")
