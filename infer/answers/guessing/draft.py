"""Guesses of a smaller model with the same vocabulary (speculative decoding: arXiv:2211.17192, arXiv:2302.01318).

    model.runner.guessers.helper = Draft(LoadedModel.load("small.gguf"), model)

The draft gives its most likely token, then the next, while that is expected to pay: by how often tokens of such a
probability came true, and by the time of its passes and of wider passes of the model. In a batch, one pass of the draft
serves all answers for which it pays.

It reads a text only for its first guess, and at first only the text's last tokens: reading may cost as much as the
guesses have gained so far. So a long prompt with a short answer costs next to nothing, and the first token is not
delayed.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from ...guessers import NO_GUESS, Guess, GuessRequest, TextSlot, Value
from ...model import LoadedModel
from ...runner import Slot, Work
from .draft_lane import Lane
from .draft_odds import may_pay
from .foretelling import Foreteller, Foretold, Growing, keep_best

SEQUENCES = 2  # of the draft, per text: with recurrent layers it drafts in a copy
INVESTED, REINVESTED = 1.5, 0.5  # limits on reading: plain passes at any time, and share of the gains so far
AT_START = 3.0  # plain passes that a draft may lose before it has gained anything
AHEAD = 3  # passes to look ahead: the model's passes do not cost more in proportion
FIRST_READ = 64  # tokens, before the cost of reading is known
PAUSE, MOST_PAUSE = 8, 256  # passes of the model without guesses, after one was found not to pay


@dataclass(eq=False)
class DraftTrack(Foretold):
    """A text, and the guessed tokens that may follow."""

    draft: "Draft"
    lane: Lane
    ids: list[int]
    foretold: list[tuple[int, int]] = field(default_factory=list)
    last: tuple[int, Guess] | None = None  # length of the text at the last request, and the guess

    def extend(self, ids: Sequence[int]) -> None:
        """See guessers.Track."""
        self.ids += ids
        self.compare(ids, self.draft.odds)

    def end(self) -> None:
        """See guessers.Track."""
        self.lane.is_free = True


class Draft(Foreteller):
    """A `Guesser` for `main`, in whose threads it runs; it closes `model`, the draft.

    model: has SEQUENCES sequences for each text that is followed at a time, and the same vocabulary: see
    draft_loading.py.
    """

    def __init__(self, model: LoadedModel, main: LoadedModel) -> None:
        super().__init__(AT_START)
        self.model, self.main = model, main
        self._lanes: list[Lane] = []
        self._invested = 0.0  # seconds of reading that earlier gains pay
        self._pause, self._next_pause = 0, PAUSE  # passes until guessing is considered again
        self._n_tokens = min(model.n_vocab, main.n_vocab)
        self._ends = main.tokenizer.eog
        model.engine.expects_few = True  # after a guess it reads a few tokens at once
        if model.n_threads == main.n_threads:
            model.engine.run_in_threads_of(main.engine)

    # --- as guessers.Guesser has it ---
    @property
    def rests(self) -> bool:
        return self._pause > 0 or self.credit.left <= 0

    def begin(self, ids: Sequence[int], place: TextSlot) -> DraftTrack | None:
        lane = self._lane(ids)
        if lane is None:
            return None
        lane.is_free = False
        lane.follow(ids, anew=True)
        return DraftTrack(self, lane, list(ids))

    def passed(self, cost: float) -> None:
        self._pause -= self._pause > 0
        super().passed(cost)

    def close(self) -> None:
        self.model.close()

    def guesses(self, asked: Sequence[GuessRequest], value: Value) -> list[Guess]:
        begin, compiled = time.perf_counter(), self.model.compile_seconds
        drafting = [_Drafting(one, one.track) for one in asked if isinstance(one.track, DraftTrack)]
        known = {id(d.track): d.track.last[1] for d in drafting if d.track.last and d.track.last[0] == len(d.track.ids)}
        todo = [d for d in drafting if id(d.track) not in known]
        try:
            with self._stopped_as_main():
                self._draft(self._worth_reading(todo, value), value, begin, compiled)
        finally:
            seconds = time.perf_counter() - begin - (self.model.compile_seconds - compiled)
            invested, self._invested = min(seconds, self._invested), 0.0
            self.credit.spend((seconds - invested) / value.plain)
            self.credit.invest(invested / value.plain)
        keep_best(todo, value, seconds)
        for d in todo:
            d.track.last = len(d.track.ids), d.guess
            known[id(d.track)] = d.guess
        return [known.get(id(one.track), NO_GUESS) for one in asked]

    # --- texts ---
    def _lane(self, ids: Sequence[int]) -> Lane | None:
        """The free lane that has most of a text, or a new one, or None."""
        free = [lane for lane in self._lanes if lane.is_free]
        best = max(free, key=lambda lane: lane.common(ids), default=None)
        if (best is None or not best.common(ids)) and self.model.n_free >= SEQUENCES:
            best = Lane(self.model.runner)
            self._lanes.append(best)
        return best

    def _worth_reading(self, drafting: "list[_Drafting]", value: Value) -> "list[_Drafting]":
        """The texts for which drafting is expected to pay; decides how much of them is read."""
        ready = [d for d in drafting if d.most > 0 and self._settle(d, value)]
        if not ready:
            return []
        assumed = value.plain * self.model.n_bytes / max(1, self.main.n_bytes)
        one = [self.times.seconds(n) or assumed for n in range(1, len(ready) + 1)]
        n_read = sum(max(0, d.lane.n_behind(d.track.ids) - 2) for d in ready)
        # the tokens stay read: a long text is not charged to this guess alone
        reading = 0.0 if n_read > FIRST_READ else n_read * (self.times.per_token or 0.0)
        if may_pay(self.odds.mean, [d.most for d in ready], value, reading, one):
            self._next_pause = PAUSE
            return ready
        self._pause, self._next_pause = self._next_pause, min(MOST_PAUSE, 2 * self._next_pause)
        return []

    def _settle(self, d: "_Drafting", value: Value) -> bool:
        """Decides how much of a text is read before its next token is guessed. False: there is no room for guesses."""
        lane, ids = d.lane, d.track.ids
        lane.follow(ids)
        n, half = lane.n_behind(ids), self.model.n_ctx // 2
        most = self._affordable(value)
        if n + d.most > lane.room or (n > most and n > FIRST_READ):
            lane.begin_late(ids, min(half, most))
        elif lane.n_skipped and len(ids) <= half and len(ids) * (self.times.per_token or 0.0) < self._gains(value):
            lane.begin_late(ids, len(ids))
        return lane.room > d.most

    def _affordable(self, value: Value) -> int:
        """Tokens of a text that may be read at once."""
        if self.times.per_token is None:
            return FIRST_READ
        seconds = INVESTED * value.plain + self._gains(value)
        return max(FIRST_READ // 4, int(seconds / self.times.per_token))

    def _gains(self, value: Value) -> float:
        """Seconds of earlier gains that reading may take."""
        return REINVESTED * max(0.0, self.credit.total_gain) * value.plain

    # --- passes ---
    def _stopped_as_main(self) -> AbstractContextManager[None]:
        stop = self.main.engine.stop
        return nullcontext() if stop is None else self.model.stopped_by(stop)

    def _draft(self, drafting: "list[_Drafting]", value: Value, begin: float, compiled: float) -> None:
        """Guesses token after token, for as long as another pass is expected to pay."""
        if not drafting:
            return
        rows, reading = self._read(drafting), time.perf_counter() - begin
        self._invested = max(0.0, reading - INVESTED * value.plain)
        self._take(drafting, rows)
        # the tokens stay read: a long text is not charged to this guess alone
        begin = max(begin, time.perf_counter() - 2 * value.plain)
        while active := [d for d in drafting if d.goes_on]:
            spent = time.perf_counter() - begin - (self.model.compile_seconds - compiled)
            if not self.pays(drafting, active, value, spent, AHEAD):
                break
            self._take(active, self._pass(active))

    def _read(self, drafting: "list[_Drafting]") -> list[np.ndarray]:
        """Reads the unread parts of the texts; returns the logits after their ends, each f32 [n_vocab]."""
        start, compiled = time.perf_counter(), self.model.compile_seconds
        works = [self._work(d) for d in drafting]
        results = self.model.eval(works)
        seconds = time.perf_counter() - start - (self.model.compile_seconds - compiled)
        n = sum(len(work.ids) for work in works)
        if n > FIRST_READ // 2 and self.model.compile_seconds == compiled:
            self.times.read(n, seconds)
        rows = []
        for d, result in zip(drafting, results, strict=True):
            d.lane.has_read()
            assert result.logits is not None
            rows.append(result.logits[-1])
        return rows

    def _work(self, d: "_Drafting") -> Work:
        slot, ids = d.lane.unread(d.track.ids)
        return Work(slot, [token if 0 <= token < self.model.n_vocab else 0 for token in ids])

    def _pass(self, drafting: "list[_Drafting]") -> list[np.ndarray]:
        """The logits after the last guessed tokens."""
        start, compiled = time.perf_counter(), self.model.compile_seconds
        for d in drafting:
            d.slot = d.slot or d.lane.drafting()
        if len(drafting) == 1:
            slot = drafting[0].slot
            assert slot is not None
            rows = [self.model.runner.step(slot, drafting[0].guess.tokens[-1])]
        else:
            works = [Work(d.slot, d.guess.tokens[-1:]) for d in drafting if d.slot is not None]
            rows = [result.logits[-1] for result in self.model.eval(works) if result.logits is not None]
        if self.model.compile_seconds == compiled:
            self.times.timed(len(drafting), time.perf_counter() - start)
        return rows

    def _take(self, drafting: "Sequence[_Drafting]", rows: Sequence[np.ndarray]) -> None:
        """Adds the most likely token to each guess."""
        for d, logits in zip(drafting, rows, strict=True):
            d.take(logits[: self._n_tokens], self.main.n_vocab, self.odds, self._ends)


@dataclass(eq=False)
class _Drafting(Growing[DraftTrack]):
    """A text for which a guess is being made."""

    MOST = 8

    slot: Slot | None = None

    def __post_init__(self) -> None:
        self.track.foretold = []

    @property
    def lane(self) -> Lane:
        return self.track.lane
