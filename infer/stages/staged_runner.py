"""Runner of a model in stages. Several passes are under way at a time. After a stage was lost, texts are restored: from
its files of the prompt cache, and by reading the tokens after the last checkpoint again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from weakref import WeakSet

import numpy as np

from hybrid.quant.ggml.errors import LostStageError

from ..loading.model_file import ModelFile
from ..program.threads import Stop
from ..progress import TokenProgress
from ..runner import Begun, Plan, Result, Runner, Slot, Split, Work, gathered
from .staged_cache import StagedCache
from .staged_engine import Passes, StagedEngine

MOST_LOSSES = 3  # losses of stages during one call; after more, something else is wrong
# Contents of sequences: tokens, logits, and whether reading these tokens again gives the same memory.
_Held = dict[Slot, tuple[list[int], np.ndarray | None, bool]]


class _NothingToTakeUpError(LostStageError):
    pass


class StagedRunner(Runner):
    """said: gets a message when a stage was lost, and when all are there again."""

    engine: StagedEngine
    cache: StagedCache | None

    def __init__(
        self, engine: StagedEngine, file: ModelFile, cache: StagedCache | None, said: Callable[[str], None]
    ) -> None:
        super().__init__(engine, file, cache)
        self.said = said
        self.begun: WeakSet[BegunInStages] = WeakSet()  # all without results yet, and maybe some others
        self._callers: Stop | None = None  # the caller's Stop, while lost texts are read again, which cannot be stopped

    def _ubatch(self, works: Sequence[Work]) -> int:
        if any(w.each for w in works):
            return self.n_ubatch
        return self.engine.piece(sum(len(w.ids) for w in works))

    @property
    def depth(self) -> int:
        """As `Runner.depth`: one for each stage."""
        return self.engine.depth

    @property
    def recovers(self) -> bool:
        """False: the memory of the stages cannot be recounted here."""
        return False

    def _passes(
        self, works: Sequence[Work], plan: Plan, *, likelihood: bool, hidden: bool
    ) -> Iterator[np.ndarray | None]:
        return self.noted(works, self.ordered(plan, likelihood=likelihood, hidden=hidden))

    def ordered(self, plan: Plan, *, likelihood: bool = False, hidden: bool = False) -> Passes:
        """The passes of a plan, not yet ordered."""
        ubatches = ([part.segment for part in parts] for parts in plan)
        return self.engine.passes(ubatches, likelihood=likelihood, hidden=hidden)

    def noted(self, works: Sequence[Work], passes: Passes) -> Iterator[np.ndarray | None]:
        """Yields the values of `passes`. At the end, also after an error, the slots have noted the tokens that they
        got."""
        before = [len(w.seq.tokens) for w in works]
        try:
            yield from passes
        finally:
            for w, start in zip(works, before, strict=True):
                w.seq.has_seen(start, w.ids)

    def begin(self, works: Sequence[Work]) -> "BegunInStages":
        """As `Runner.begin`."""
        self.check(works)
        plan = self._plan(works, "simple")
        begun = BegunInStages(self, works, plan, self.ordered(plan))
        self.begun.add(begun)
        return begun

    def _eval(
        self,
        works: list[Work],
        progress: TokenProgress | None,
        split: Split,
        *,
        likelihood: bool = False,
        hidden: bool = False,
    ) -> list[np.ndarray | None]:
        return self.recovering(
            lambda: super(StagedRunner, self)._eval(works, progress, split, likelihood=likelihood, hidden=hidden)
        )

    def recovering(self, compute: Callable[[], list[np.ndarray | None]]) -> list[np.ndarray | None]:
        """Return `compute()`, called again after stages were lost. On errors it must leave its sequences unchanged."""
        held: _Held = {}
        lost: LostStageError | None = None
        with self.engine.with_stop():
            for _ in range(1 + MOST_LOSSES):
                try:
                    if lost is not None:
                        self._take_up(lost, held)
                    return compute()
                except LostStageError as error:
                    for begun in self.begun:
                        begun.give_up()
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
        logits: np.ndarray = rows[0]
        return logits

    def _held(self) -> _Held:
        return {slot: (list(slot.tokens), slot.logits, slot.is_computed) for slot in self.slots if slot.is_open}

    def _take_up(self, error: LostStageError, held: _Held) -> None:
        """Open all stages again and restore all sequences to their state before `error`.

        Raises Interrupted, with nothing changed, if a stop is set while waiting for a worker. Raises
        _NothingToTakeUpError if the memory of a sequence cannot be computed from its tokens (shifted or random).
        """
        self.said(f"{error} Waiting for one in its place.")
        self.engine.reopen()
        # Until all tokens are read, sequences are shorter than their owners think: a stop waits for the end.
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
        """As `Runner.stop`. While lost texts are read again, the stop comes after that."""
        if (callers := self._callers) is not None:
            callers.set()
        else:
            super().stop()

    def _rest(self, slot: Slot, tokens: list[int]) -> Work:
        """Restore a slot from the last checkpoint that is left; returns the work that reads the remaining tokens."""
        if self.cache is not None and (known := self.cache.find(tokens, slot.owner)) is not None:
            self.cache.restore(slot.slot, known)
            slot.tokens = tokens[: known.position]
        return Work(slot, tokens[slot.n_past :], "none")


class BegunInStages(Begun):
    """A `Begun` whose works the stages compute."""

    def __init__(self, runner: StagedRunner, works: Sequence[Work], plan: Plan, passes: Passes) -> None:
        super().__init__(runner, works)
        self._staged, self._plan = runner, plan
        self._passes: Passes | None = passes
        with suppress(LostStageError):  # `results` recovers
            passes.order()
            return
        self._passes = None

    def results(self) -> list[Result]:
        self._staged.begun.discard(self)
        return [Result(rows, None) for rows in self._staged.recovering(self._compute)]

    def _compute(self) -> list[np.ndarray | None]:
        passes, self._passes = self._passes, None
        passes = self._staged.ordered(self._plan) if passes is None else passes
        return gathered(self.works, self._plan, self._staged.noted(self.works, passes))

    def give_up(self) -> None:
        if self._passes is not None:
            self._passes.go_back()
            self._passes = None
