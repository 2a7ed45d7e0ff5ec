"""Runs tokens through a loaded network: the layer below LoadedModel and Sequence.

A `Slot` is a text in the memory. A `Work` says which tokens a slot gets and which results are wanted. `Runner.eval`
cuts works into ubatches and keeps a slot's token list true, whatever interrupts a run. Only one thread at a time may
use a runner and its slots; `stop` and `Stop.set` may be called from any thread.
"""

import hashlib
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from .engine.applied import Applied
from .engine.engine import Engine
from .engine.op_times import OpTime
from .engine.pictures import Pictures
from .engine.ubatch import Segment
from .faults import SidePath
from .guessers import Guessers
from .loading.model_file import ModelFile
from .memory import PromptCache, moves
from .memory.picture_tokens import are_known, has_pictures, outside, whole
from .memory.pins import OWNER_BYTES, PARTY_BYTES
from .memory.recount import recount
from .memory.saved_text import SavedText
from .memory.splits import SPLITS, split_whole
from .memory.splits import Plan as Splitting
from .program.threads import Stop
from .progress import TokenProgress
from .step_costs import StepCosts

FOLLOWING = SidePath("what reads along to guess tokens")

MOST_OWNERS = 10_000  # that are remembered as owners of texts with adapters
Output = Literal["last", "all", "none"]
Split = Literal["simple", "equal", "seq"]


class Slot:
    """A text in one slot of the memory: the tokens that the memory has seen, and the logits after them if known.

    slot   its number: its row in the tables of the memory
    applied     the adapters that its tokens are read with: see `use`
    owner       of the text: the prompt cache shares it only with texts of the same owner (memory/prefix_tree.py)
    base_owner  of its tokens before `applied.start`, which are read without adapters
    """

    def __init__(self, runner: "Runner") -> None:
        self.runner, self.slot = runner, runner.take()
        self.tokens: list[int] = []
        self.applied: Applied = runner.applied
        self.use(runner.applied)
        self.logits: np.ndarray | None = None
        self.is_open = True
        self._filled = False  # with random numbers
        runner.slots.add(self)

    @property
    def id(self) -> int:
        return self.slot

    @property
    def n_past(self) -> int:
        """Number of tokens that the memory holds."""
        return int(self.runner.memory.n_past[self.slot])

    @property
    def room(self) -> int:
        """Number of tokens that can still be appended."""
        return self.runner.memory.room(self.slot)

    @property
    def is_shifted(self) -> bool:
        """Whether tokens were taken out of the middle, or moved: the prompt cache then does not keep the text."""
        return self.runner.memory.is_moved(self.slot)

    @property
    def is_computed(self) -> bool:
        """Whether the model has computed the memory for these tokens: not filled for a measurement, not shifted."""
        return not self._filled and not self.is_shifted

    @property
    def n_computed(self) -> int:
        """Length of the prefix whose memory the model has computed for these tokens."""
        return 0 if self._filled else self.runner.memory.computed(self.slot)

    def check_open(self) -> None:
        """Raise UsageError if it is closed."""
        if not self.is_open:
            raise UsageError("this sequence was closed")

    def use(self, applied: Applied, owner: bytes = b"") -> None:
        """Read the text, which is empty, with these adapters, for this owner.

        Raises UsageError if the model has no such adapter.
        """
        if self.tokens and applied != self.applied:
            raise UsageError("this sequence has read tokens with other adapters. Use an empty one.")
        if applied and applied.scales[-1][0] >= len(self.runner.file.adapters):
            number, n = applied.scales[-1][0], len(self.runner.file.adapters)
            raise UsageError(f"there is no adapter {number}: {n} are loaded.")
        self.applied, self.base_owner, self.owner = applied, owner, self.runner.owner_with(owner, applied)

    def has_seen(self, start: int, ids: Sequence[int]) -> None:
        """After a run that was to append `ids` to `start` tokens, add to `tokens` as many as the memory has seen."""
        have = len(self.tokens) - start  # of earlier runs of the same call
        self.tokens += map(int, ids[have : max(have, self.n_past - start)])
        self.follow_memory()

    def follow_memory(self) -> None:
        """Drop the tokens that the memory has not seen, and the logits."""
        del self.tokens[self.n_past :]
        self.logits = None

    def truncate(self, n: int) -> int:
        """Keep the first n tokens, with recurrent layers none; returns how many are left.

        A picture whose tokens see each other leaves whole.
        """
        self.check_open()
        n = outside(self.tokens, n) if self.runner.memory.is_together else n
        left = self.runner.memory.truncate(self.slot, n)
        self.follow_memory()
        if not left:
            self._filled = False
        return left

    def shift(self, keep: int, n: int) -> None:
        """Remove the n tokens after the first `keep` from the attention layers; later tokens move down n positions.

        Keys rotated by RoPE are rotated back by n positions. Recurrent layers go on from their state, which has seen
        the removed tokens. The prompt cache keeps the checkpoints of the text and takes no more. A picture leaves whole
        or not at all. Raises UsageError when no token would be left after the removed ones, or the model cannot move
        keys (learned positions).
        """
        if (end := keep + n) < len(self.tokens):
            keep, end = whole(self.tokens, keep, end)
            n = end - keep
        self._take_out(lambda: moves.shift(self.runner.memory, self.slot, keep, n), keep, keep + n)

    def leave_gap(self, start: int, end: int) -> None:
        """Forget tokens start..end, which are not the last ones, and leave their positions empty.

        Raises StateError for recurrent layers, which cannot forget.
        """
        self._take_out(lambda: moves.remove(self.runner.memory, self.slot, start, end), start, end)

    def _take_out(self, change: Callable[[], object], start: int, end: int) -> None:
        """Run `change`, which takes tokens start..end out of the memory's middle, and remove them from `tokens`."""
        self.check_open()
        before = len(self.tokens)
        try:
            change()
        finally:
            # an interrupted change leaves only the tokens before `start`
            if self.n_past == before - (end - start):
                del self.tokens[start:end]
                if (begin := self.applied.start) > start:
                    self.applied = replace(self.applied, start=max(start, begin - (end - start)))
            elif self.n_past < before:
                self.follow_memory()

    def fill(self, ids: Sequence[int]) -> None:
        """Hold only `ids`, with a memory of random numbers: to measure speed at a depth without computing it.

        The model's predictions then mean nothing; their speed is unchanged.
        """
        self.check_open()
        if len(ids) > self.runner.n_ctx:
            raise UsageError(
                f"{len(ids)} tokens do not fit the context of {self.runner.n_ctx}.", remedy=Remedy.LARGER_CONTEXT
            )
        self.runner.memory.fill(self.slot, len(ids))
        self.tokens, self.logits, self._filled = list(ids), None, True

    def load(self, saved: SavedText) -> None:
        """Replace the content with a saved text."""
        self.check_open()
        saved.load(self.runner.memory, self.slot)
        self.tokens, self.logits, self._filled = list(saved.tokens), saved.logits, False

    def become(self, other: "Slot") -> None:
        """Hold the content of `other`. The two share its memory."""
        self.check_open()
        self.runner.memory.seq_cp(other.slot, self.slot)
        self.tokens = list(other.tokens)
        self.logits = None if other.logits is None else other.logits.copy()
        self._filled = other._filled
        self.applied, self.owner, self.base_owner = other.applied, other.owner, other.base_owner

    def close(self) -> None:
        """Give the slot back."""
        if self.is_open:
            self.is_open = False
            self.runner.give_back(self.slot)


@dataclass(frozen=True)
class Work:
    """Tokens to append to a sequence, and for which of them a result is wanted."""

    seq: Slot
    ids: Sequence[int]
    output: Output | slice = "last"
    targets: Sequence[int] | None = None  # per output: the token whose -log p is wanted instead of the logits
    each: bool = False  # keep a state after every token, see `Runner.settle`; only if all fit one ubatch

    @property
    def is_step(self) -> bool:
        """Whether `Runner.step` can do it."""
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
    """Is told which tokens slots were given."""

    def follow(self, read: Sequence[tuple[Slot, int]]) -> None:
        """Called after a pass. read: slots and their numbers of new tokens, in the order of the pass.

        `Engine.last_states` has the states of these tokens until the next pass.
        """


class UbatchPart(NamedTuple):
    """The part of a work that is in one ubatch."""

    place: int  # index of the work in the call
    segment: Segment


Plan = Sequence[Sequence[UbatchPart]]  # the parts of each ubatch


class Begun:
    """Works that were begun, see `Runner.begin`. Nobody else may use their slots until their results are there."""

    def __init__(self, runner: "Runner", works: Sequence[Work]) -> None:
        self.runner, self.works = runner, works

    def results(self) -> list[Result]:
        """Wait for the results. Returns and raises as `Runner.eval`."""
        if len(self.works) == 1 and (one := self.works[0]).is_step:
            return [Result(self.runner.step(one.seq, one.ids[0])[None], None)]
        return self.runner.eval(self.works)

    def give_up(self) -> None:
        """Take the slots back to their state before `begin`; `results` then starts again."""


class Runner:
    """One loaded network with its memory: hands out slots, and appends tokens to them.

    cache  checkpoints of earlier texts; None: nothing is kept
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
        self.pictures = Pictures()
        self._family_lock = threading.Lock()
        self.families: dict[bytes, set[bytes]] = {}  # of owners, see `owner_with`
        self.apply({i: adapter.scale for i, adapter in enumerate(file.adapters)})
        self._free = list(range(self.n_seq_max))[::-1]
        self.slots: WeakSet[Slot] = WeakSet()  # all open slots, and maybe some closed ones

    # --- adapters ---
    def apply(self, scales: Mapping[int, float]) -> None:
        """Set `applied`, the adapters of slots that choose no others. Activated ones are left out: they begin at a
        token of a text, which its caller finds."""
        own = self.file.adapters
        self.applied = Applied.of({i: scale for i, scale in scales.items() if not own[i].invocation})

    def fingerprint(self, applied: Applied) -> str:
        """Identifies the weights that a text with these adapters is read with."""
        return self.file.fingerprint_with(applied.scales, applied.start)

    def description(self, applied: Applied) -> str:
        """The model's name with these adapters."""
        return self.file.description_with(applied.scales)

    def owner_with(self, owner: bytes, applied: Applied) -> bytes:
        """The owner, for the prompt cache, of an owner's texts with these adapters: keys and states of other adapters
        are of no use to them. `families` has all such owners of an owner, as long as they have texts."""
        if not applied:
            return owner
        said = hashlib.blake2b(owner + self.fingerprint(applied).encode(), digest_size=OWNER_BYTES - PARTY_BYTES)
        made = owner.ljust(PARTY_BYTES, b"\0")[:PARTY_BYTES] + said.digest()
        with self._family_lock:
            if sum(map(len, self.families.values())) > MOST_OWNERS:
                known = set(self.cache.tree.roots) if self.cache is not None else set()
                self.families = {one: kept for one, all_ in self.families.items() if (kept := all_ & known)}
            self.families.setdefault(owner, set()).add(made)
        return made

    # --- slots ---
    @property
    def n_free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def take(self) -> int:
        """Reserve an empty slot until `give_back`; returns its number. Raises UsageError if no slot is free."""
        if not self._free:
            raise UsageError(
                f"all {self.n_seq_max} sequences are in use. Close one, or load the model with a larger n_seq_max."
            )
        slot = self._free.pop()
        self.memory.release(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """Forget the content of the slot and free it. From now on, memory that the cache shares with it counts against
        the cache's budget."""
        self.memory.release(slot)
        self._free.append(slot)
        if self.cache is not None:
            self.cache.trim()

    @property
    def recovers(self) -> bool:
        """Whether `recover` can be used."""
        return True

    def recover(self, lost: Iterable[Slot]) -> list[Slot]:
        """After a fault anywhere in the program, close the slots `lost` and correct the bookkeeping of the memory.

        Returns the other slots whose bookkeeping was inconsistent; they are closed also. All other slots are unchanged.
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
        """Raise the UsageError that `eval` of these works would raise."""
        if len({w.seq.slot for w in works}) != len(works):
            raise UsageError("a sequence was given twice in one call. Give each sequence its tokens at once.")
        if len({w.targets is None for w in works if w.outputs()}) > 1:
            raise UsageError("some works have targets and some have none. Evaluate them in two calls.")
        for w in works:
            w.seq.check_open()
            ids = np.asarray(w.ids, dtype=np.int64)
            if not are_known(ids, self.n_vocab):
                raise UsageError(f"token {ids.max()} is outside this model's vocabulary of {self.n_vocab}.")
            if has_pictures(ids):
                self.check_pictures(w.seq.tokens, w.ids)
                if w.each:
                    raise UsageError("tokens of a picture cannot be taken back one by one.")
            if len(w.ids) > w.seq.room:
                raise UsageError(
                    f"{self.memory.size_of(w.seq.slot, len(w.ids))} do not fit the context of {self.n_ctx}.",
                    remedy=Remedy.LARGER_CONTEXT,
                )
            if w.targets is not None and len(w.targets) != len(w.outputs()):
                raise UsageError(f"{len(w.targets)} targets for {len(w.outputs())} outputs.")

    def check_pictures(self, before: Sequence[int], ids: Sequence[int]) -> None:
        """Raise the UsageError of pictures among `ids`, which follow `before`, that cannot be read."""
        for shown in self.pictures.shown(before, ids):
            self.engine.check_picture(shown)

    def cut(self, ids: Sequence[int], first: int, end: int) -> int:
        """The end of a part of `ids` from `first` on, near `end`: where the model reads pictures whole, before or after
        one."""
        if not self.memory.is_together:
            return end
        before = outside(ids, end)
        return before if before > first or end <= first else whole(ids, first, end)[1]

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
        """How many calls of `begin` are computed at the same time."""
        return 1

    def begin(self, works: Sequence[Work]) -> Begun:
        """Start `eval` of works without targets, without waiting. Errors are raised here or by `results`."""
        return Begun(self, works)

    def hidden_states(self, works: Iterable[Work], progress: TokenProgress | None = None) -> list[np.ndarray]:
        """`eval` that stops before the head: the head's inputs, f32 [n_out, n_embd] for every work.

        They are divided by `Scales.logits` already, which the last norm does for the logits.
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
        """The values of every work's outputs; None for a work without outputs."""
        self.check(works)
        with self.engine.with_stop():
            plan = self._plan(works, split)
            return gathered(works, plan, self._passes(works, plan, likelihood=likelihood, hidden=hidden), progress)

    def _plan(self, works: Sequence[Work], split: Split) -> Plan:
        """Cut works into ubatches."""
        plan: Splitting = SPLITS[split]([len(w.ids) for w in works], self._ubatch(works))
        if self.memory.is_together and any(has_pictures(w.ids) for w in works):
            plan = split_whole([np.asarray(w.ids, np.int64) for w in works], self._ubatch(works))
        return [[UbatchPart(i, self._segment(works[i], begin, end)) for i, begin, end in pieces] for pieces in plan]

    def _segment(self, work: Work, begin: int, end: int) -> Segment:
        """Tokens begin..end of a work."""
        segment = _segment(work, begin, end)
        if not has_pictures(segment.tokens):
            return segment
        before = [*work.seq.tokens, *work.ids[:begin]]
        return replace(segment, pictures=self.pictures.shown(before, segment.tokens))

    def _ubatch(self, works: Sequence[Work]) -> int:
        """Limit on the tokens of an ubatch for these works."""
        return self.n_ubatch

    def _passes(
        self, works: Sequence[Work], plan: Plan, *, likelihood: bool, hidden: bool
    ) -> Iterator[np.ndarray | None]:
        """Run one ubatch after the other; yields the values of the outputs of each."""
        for parts in plan:
            yield self._pass(works, parts, likelihood=likelihood, hidden=hidden)

    def _pass(
        self, works: Sequence[Work], parts: Sequence[UbatchPart], *, likelihood: bool, hidden: bool
    ) -> np.ndarray | None:
        """Run one ubatch. Whatever interrupts it, the slots have noted the tokens that they got."""
        before = [len(works[part.place].seq.tokens) for part in parts]
        try:
            values = self.engine.run([part.segment for part in parts], likelihood=likelihood, hidden=hidden)
        finally:
            # the memory itself says how many tokens it has seen
            for (place, segment), start in zip(parts, before, strict=True):
                works[place].seq.has_seen(start, segment.tokens)
        self._tell_follower([(works[place].seq, len(segment.tokens)) for place, segment in parts])
        return values

    def _tell_follower(self, read: Sequence[tuple[Slot, int]]) -> None:
        if (follower := self.follower) is not None:
            FOLLOWING.do(lambda: follower.follow(read))

    def step(self, seq: Slot, token: int) -> np.ndarray:
        """See `LoadedModel.step`."""
        if not (0 <= token < self.n_vocab and seq.n_past < self.n_ctx):
            self.check([Work(seq, [token])])
        seq.check_open()
        try:
            logits = self.engine.step(seq.slot, token, seq.applied)
        finally:
            seq.has_seen(len(seq.tokens), (token,))
        self._tell_follower([(seq, 1)])
        return logits

    def settle(self, seq: Slot, n: int) -> None:
        """After a work with `each`, keep only the first n of its tokens, at least 1. The caller sets `seq.logits`."""
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
        """End the threads."""
        if self.guessers.helper is not None:
            self.guessers.helper.close()
            self.guessers.helper = None
        self.engine.close()


def _segment(work: Work, begin: int, end: int) -> Segment:
    """Tokens begin..end of a work."""
    every = work.outputs()
    part = slice(bisect_left(every, begin), bisect_left(every, end))
    targets = None if work.targets is None else work.targets[part]
    return Segment(
        work.seq.slot, work.ids[begin:end], [o - begin for o in every[part]], targets, work.each,
        applied=work.seq.applied,
    )  # fmt: skip


def gathered(
    works: Sequence[Work], plan: Plan, passes: Iterable[np.ndarray | None], progress: TokenProgress | None = None
) -> list[np.ndarray | None]:
    """The values of every work's outputs (None: no outputs), collected from the values of the ubatches."""
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
