"""Tokens through a loaded network, for those who hold a slot of its memory: what Model and Sequence stand on.

A `Slot` is a text in the memory. `Work` says which tokens it gets and what is wanted of them; `Runner.eval` cuts works
into ubatches and keeps what a slot knows of itself true, whatever interrupts a run. One thread at a time uses a runner
and all of its slots; `stop` and `Stop.set` may be called from any.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from .engine.engine import Engine
from .engine.op_times import OpTime
from .engine.ubatch import Segment
from .faults import SidePath
from .guessers import Guessers
from .loading.model_file import ModelFile
from .memory import PromptCache, moves
from .memory.recount import recount
from .memory.saved_text import SavedText
from .memory.splits import SPLITS
from .program.threads import Stop
from .progress import TokenProgress
from .step_costs import StepCosts

FOLLOWING = SidePath("what reads along to guess tokens")

Output = Literal["last", "all", "none"]
Split = Literal["simple", "equal", "seq"]


class Slot:
    """A text in one slot of the memory: the tokens that the memory has seen, and the logits after them if known.

    slot   its number, which is its row in the tables of the memory
    owner  of its text, which the prompt cache gives and takes as this owner's (memory/prefix_tree.py)
    """

    def __init__(self, runner: "Runner") -> None:
        self.runner, self.slot = runner, runner.take()
        self.tokens: list[int] = []
        self.owner = b""
        self.logits: np.ndarray | None = None
        self.is_open = True
        self._filled = False  # with random numbers
        runner.slots.add(self)

    @property
    def id(self) -> int:
        return self.slot

    @property
    def n_past(self) -> int:
        """Tokens that the memory holds."""
        return int(self.runner.memory.n_past[self.slot])

    @property
    def room(self) -> int:
        """Tokens that it can still get."""
        return self.runner.memory.room(self.slot)

    @property
    def is_shifted(self) -> bool:
        """Whether tokens were taken out of its middle, or moved: the prompt cache does not know it then."""
        return self.runner.memory.is_moved(self.slot)

    @property
    def is_computed(self) -> bool:
        """Whether the memory is what the model makes of the tokens: not filled for a measurement, not shifted."""
        return not self._filled and not self.is_shifted

    @property
    def n_computed(self) -> int:
        """Tokens at its beginning for which the memory is what the model makes of them."""
        return 0 if self._filled else self.runner.memory.computed(self.slot)

    def check_open(self) -> None:
        """UsageError once it is closed."""
        if not self.is_open:
            raise UsageError("this sequence was closed")

    def has_seen(self, start: int, ids: Sequence[int]) -> None:
        """After a run that was to append `ids` to `start` tokens: take note of as many as the memory has seen."""
        have = len(self.tokens) - start  # of earlier runs of the same call
        self.tokens += map(int, ids[have : max(have, self.n_past - start)])
        self.follow_memory()

    def follow_memory(self) -> None:
        """Keep only the tokens that the memory has seen."""
        del self.tokens[self.n_past :]
        self.logits = None

    def truncate(self, n: int) -> int:
        """Keep the first n tokens, or of a recurrent model none; returns how many are left."""
        self.check_open()
        left = self.runner.memory.truncate(self.slot, n)
        self.follow_memory()
        if not left:
            self._filled = False
        return left

    def shift(self, keep: int, n: int) -> None:
        """Take n tokens behind the first `keep` out of the attention layers; the rest moves up to their positions.

        Keys that RoPE turned are turned back by n positions. Recurrent layers go on from the state they have, which
        has seen what left. The prompt cache keeps what it has of the text and takes no more of it. UsageError when no
        token would be left behind those, or the model cannot move keys (learned positions).
        """
        self._take_out(lambda: moves.shift(self.runner.memory, self.slot, keep, n), keep, keep + n)

    def leave_gap(self, start: int, end: int) -> None:
        """Forget tokens start..end, which are not the last ones, and leave their positions empty.

        StateError where there are recurrent layers, which would remember them.
        """
        self._take_out(lambda: moves.remove(self.runner.memory, self.slot, start, end), start, end)

    def _take_out(self, change: Callable[[], object], start: int, end: int) -> None:
        """A change of the memory that takes tokens start..end out of the middle: the same ones go here."""
        self.check_open()
        before = len(self.tokens)
        try:
            change()
        finally:
            # an interrupt leaves the tokens before those
            if self.n_past == before - (end - start):
                del self.tokens[start:end]
            elif self.n_past < before:
                self.follow_memory()

    def fill(self, ids: Sequence[int]) -> None:
        """Forget everything and hold `ids` with a memory of random numbers: to measure at a depth without computing it.

        The model's predictions then mean nothing; their speed is as always.
        """
        self.check_open()
        if len(ids) > self.runner.n_ctx:
            raise UsageError(
                f"{len(ids)} tokens do not fit the context of {self.runner.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
            )
        self.runner.memory.fill(self.slot, len(ids))
        self.tokens, self.logits, self._filled = list(ids), None, True

    def load(self, saved: SavedText) -> None:
        """Hold what was saved, in place of everything."""
        self.check_open()
        saved.load(self.runner.memory, self.slot)
        self.tokens, self.logits, self._filled = list(saved.tokens), saved.logits, False

    def become(self, other: "Slot") -> None:
        """Hold what `other` holds, in the same memory as long as both do."""
        self.check_open()
        self.runner.memory.seq_cp(other.slot, self.slot)
        self.tokens = list(other.tokens)
        self.logits = None if other.logits is None else other.logits.copy()
        self._filled = other._filled

    def close(self) -> None:
        """Give the slot back."""
        if self.is_open:
            self.is_open = False
            self.runner.give_back(self.slot)


@dataclass(frozen=True)
class Work:
    """Tokens to append to a sequence, and which of them want a result."""

    seq: Slot
    ids: Sequence[int]
    output: Output | slice = "last"
    targets: Sequence[int] | None = None  # per output: the token whose -log p is wanted instead of the logits
    each: bool = False  # keep a state after every token: for one ubatch, see `Runner.settle`

    @property
    def is_step(self) -> bool:
        """Whether it is what `Runner.step` does."""
        return len(self.ids) == 1 and self.output == "last" and self.targets is None and not self.each

    def outputs(self) -> range:
        n = len(self.ids)
        if isinstance(self.output, slice):
            return range(*self.output.indices(n))
        return {"last": range(n - 1, n), "all": range(n), "none": range(0)}[self.output]


@dataclass(frozen=True, eq=False)
class Result:
    """logits f32 [n_out, n_vocab], or nll f64 [n_out] when targets were given."""

    logits: np.ndarray | None
    nll: np.ndarray | None


class Follower(Protocol):
    """Who reads along what slots are given."""

    def follow(self, read: Sequence[tuple[Slot, int]]) -> None:
        """After a pass: these slots have so many tokens more, in the order of the pass. `Engine.last_states` has their
        states, until the next pass."""


class UbatchPart(NamedTuple):
    """Of a work what goes through the layers in one ubatch."""

    place: int  # of the work among those of the call
    segment: Segment


Plan = Sequence[Sequence[UbatchPart]]  # of ubatches


class Begun:
    """Works that were begun, see `Runner.begin`. Until their results are there nobody else uses their slots."""

    def __init__(self, runner: "Runner", works: Sequence[Work]) -> None:
        self.runner, self.works = runner, works

    def results(self) -> list[Result]:
        """As `Runner.eval`, also in what it raises."""
        if len(self.works) == 1 and (one := self.works[0]).is_step:
            return [Result(self.runner.step(one.seq, one.ids[0])[None], None)]
        return self.runner.eval(self.works)

    def give_up(self) -> None:
        """The slots are as they were before; `results` begins anew."""


class Runner:
    """One loaded network with its memory: who has which slot, and every way of giving a slot tokens.

    cache  what earlier texts left behind, None: nothing is kept
    """

    def __init__(self, engine: Engine, file: ModelFile, cache: PromptCache | None = None) -> None:
        self.engine, self.file, self.cache = engine, file, cache
        self.memory = engine.memory
        self.n_ctx, self.n_vocab, self.n_ubatch = engine.n_ctx, engine.n_vocab, engine.n_ubatch
        self.n_seq_max = engine.memory.n_seq_max
        self.kv_type = engine.memory.attention.kind.name
        self.costs = StepCosts()  # of passes with guesses
        self.guessers = Guessers()
        self.follower: Follower | None = None
        self._free = list(range(self.n_seq_max))[::-1]
        self.slots: WeakSet[Slot] = WeakSet()  # those that are open, and maybe some that were closed

    # --- slots ---
    @property
    def n_free(self) -> int:
        """Slots that nobody has."""
        return len(self._free)

    def take(self) -> int:
        """The number of an empty slot, which is the caller's until it is given back. UsageError: none is left."""
        if not self._free:
            raise UsageError(
                f"all {self.n_seq_max} sequences are in use. Close one, or load the model with a larger n_seq_max."
            )
        slot = self._free.pop()
        self.memory.release(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """Forget the contents of the slot; somebody else may take it. The cache's part of them counts from now on."""
        self.memory.release(slot)
        self._free.append(slot)
        if self.cache is not None:
            self.cache.trim()

    @property
    def recovers(self) -> bool:
        """Whether there is a `recover`."""
        return True

    def recover(self, lost: Iterable[Slot]) -> list[Slot]:
        """After a fault of the program, wherever it was: the slots `lost` are closed, whatever they held, and the books
        of the memory are true again.

        Returns other slots whose books did not agree: they are closed, too. The rest is unchanged.
        """
        for slot in lost:
            slot.is_open = False
        held = {slot.slot: slot for slot in self.slots if slot.is_open}
        astray = {number for number, slot in held.items() if len(slot.tokens) != slot.n_past}
        empty = {number for number in range(self.n_seq_max) if number not in held}
        unsound = [held[number] for number in (*astray, *recount(self.memory, self.cache, empty | astray))]
        for slot in unsound:
            slot.is_open = False
        self._free = [
            number for number in range(self.n_seq_max)[::-1] if number not in held or not held[number].is_open
        ]
        return unsound

    # --- running ---
    def check(self, works: Sequence[Work]) -> None:
        """UsageError when `eval` of these would be refused."""
        if len({w.seq.slot for w in works}) != len(works):
            raise UsageError("a sequence was given twice in one call. Give each sequence its tokens at once.")
        if len({w.targets is None for w in works if w.outputs()}) > 1:
            raise UsageError("some works have targets and some have none. Evaluate them in two calls.")
        for w in works:
            w.seq.check_open()
            ids = np.asarray(w.ids, dtype=np.int64)
            if ids.size and not (ids.min() >= 0 and ids.max() < self.n_vocab):
                bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
                raise UsageError(f"token {bad} is not of this model's vocabulary of {self.n_vocab}.")
            if len(w.ids) > w.seq.room:
                raise UsageError(
                    f"{self.memory.size_of(w.seq.slot, len(w.ids))} do not fit the context of {self.n_ctx}.",
                    remedy=Remedy.LARGER_CONTEXT,
                )
            if w.targets is not None and len(w.targets) != len(w.outputs()):
                raise UsageError(f"{len(w.targets)} targets for {len(w.outputs())} outputs.")

    def eval(
        self, works: Iterable[Work], progress: TokenProgress | None = None, split: Split = "simple"
    ) -> list[Result]:
        """See `LoadedModel.eval`."""
        works = list(works)
        likelihood = any(w.targets is not None for w in works)
        values = self._eval(works, progress, split, likelihood=likelihood)
        return [Result(None, rows) if likelihood else Result(rows, None) for rows in values]

    @property
    def depth(self) -> int:
        """How many works that were begun are computed at a time."""
        return 1

    def begin(self, works: Sequence[Work]) -> Begun:
        """`eval` that does not wait, of works without targets: what it raises comes from here or from `results`."""
        return Begun(self, works)

    def hidden_states(self, works: Iterable[Work], progress: TokenProgress | None = None) -> list[np.ndarray]:
        """`eval` that stops before the head: what logits are made of, f32 [n_out, n_embd] of every work.

        The last norm has divided it by what the model divides its logits by (`Scales.logits`).
        """
        empty = np.zeros((0, self.engine.hparams.n_embd), np.float32)
        values = self._eval(list(works), progress, "simple", hidden=True)
        return [empty if rows is None else rows for rows in values]

    def _eval(
        self,
        works: list[Work],
        progress: TokenProgress | None,
        split: Split,
        *,
        likelihood: bool = False,
        hidden: bool = False,
    ) -> list[np.ndarray | None]:
        """What the outputs of every work give, None: there are none."""
        self.check(works)
        with self.engine.with_stop():
            plan = self._plan(works, split)
            return gathered(works, plan, self._passes(works, plan, likelihood=likelihood, hidden=hidden), progress)

    def _plan(self, works: Sequence[Work], split: Split) -> Plan:
        """What goes through the layers together, one ubatch after the other."""
        return [
            [UbatchPart(i, _segment(works[i], begin, end)) for i, begin, end in pieces]
            for pieces in SPLITS[split]([len(w.ids) for w in works], self._ubatch(works))
        ]

    def _ubatch(self, works: Sequence[Work]) -> int:
        """Tokens of an ubatch of these, at most."""
        return self.n_ubatch

    def _passes(
        self, works: Sequence[Work], plan: Plan, *, likelihood: bool, hidden: bool
    ) -> Iterator[np.ndarray | None]:
        """What the outputs of one ubatch after the other give."""
        for parts in plan:
            yield self._pass(works, parts, likelihood=likelihood, hidden=hidden)

    def _pass(
        self, works: Sequence[Work], parts: Sequence[UbatchPart], *, likelihood: bool, hidden: bool
    ) -> np.ndarray | None:
        """One ubatch; the slots have noted what they got, whatever interrupted it."""
        before = [len(works[part.place].seq.tokens) for part in parts]
        try:
            values = self.engine.run([part.segment for part in parts], likelihood=likelihood, hidden=hidden)
        finally:
            # the memory itself says what it has seen
            for (place, segment), start in zip(parts, before, strict=True):
                works[place].seq.has_seen(start, segment.tokens)
        self._tell_follower([(works[place].seq, len(segment.tokens)) for place, segment in parts])
        return values

    def _tell_follower(self, read: Sequence[tuple[Slot, int]]) -> None:
        if (follower := self.follower) is not None:
            FOLLOWING.do(lambda: follower.follow(read))

    def step(self, seq: Slot, token: int) -> np.ndarray:
        """`eval` of one token: the logits after it, f32 [n_vocab]."""
        if not (0 <= token < self.n_vocab and seq.n_past < self.n_ctx):
            self.check([Work(seq, [token])])
        seq.check_open()
        try:
            logits = self.engine.step(seq.slot, token)
        finally:
            seq.has_seen(len(seq.tokens), (token,))
        self._tell_follower([(seq, 1)])
        return logits

    def settle(self, seq: Slot, n: int) -> None:
        """After a work that left a state at `each` token: the sequence keeps the first n of these tokens, at least 1.

        Which logits are the last is for the caller to note.
        """
        self.engine.settle(seq.slot, n)
        seq.follow_memory()

    def profile(self, works: Iterable[Work]) -> list[OpTime]:
        """See `LoadedModel.profile`."""
        works = list(works)
        self.check(works)
        start = [len(w.seq.tokens) for w in works]
        try:
            with self.engine.with_stop():
                return self.engine.profile([_segment(w, 0, len(w.ids)) for w in works])
        finally:
            for w, n in zip(works, start, strict=True):
                w.seq.has_seen(n, w.ids)

    # --- stopping ---
    def stopped_by(self, stop: Stop) -> AbstractContextManager[None]:
        """See `LoadedModel.stopped_by`."""
        return self.engine.stopped_by(stop)

    def stop(self) -> None:
        """See `LoadedModel.stop`."""
        if (current := self.engine.stop) is not None:
            current.set()

    def close(self) -> None:
        """Ends the threads."""
        if self.guessers.helper is not None:
            self.guessers.helper.close()
            self.guessers.helper = None
        self.engine.close()


def _segment(work: Work, begin: int, end: int) -> Segment:
    """Tokens begin..end of a work."""
    every = work.outputs()
    part = slice(bisect_left(every, begin), bisect_left(every, end))
    targets = None if work.targets is None else work.targets[part]
    return Segment(work.seq.slot, work.ids[begin:end], [o - begin for o in every[part]], targets, work.each)


def gathered(
    works: Sequence[Work], plan: Plan, passes: Iterable[np.ndarray | None], progress: TokenProgress | None = None
) -> list[np.ndarray | None]:
    """What the outputs of every work give, from what ubatches give."""
    rows: list[list[np.ndarray]] = [[] for _ in works]
    total, done = sum(len(w.ids) for w in works), 0
    for values, parts in zip(passes, plan, strict=True):
        first = 0
        for place, segment in parts:
            if n := len(segment.outputs):
                assert values is not None
                rows[place].append(values[first : first + n])
                first += n
        done += sum(len(part.segment.tokens) for part in parts)
        if progress:
            progress(done, total)
    return [np.concatenate(some) if len(some) > 1 else some[0] if some else None for some in rows]
