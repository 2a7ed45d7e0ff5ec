"""Guesses with the model's own head for tokens ahead (multi-token prediction): see engine/head.py.

    if (guesser := head_guesser(model)) is not None:
        model.runner.guessers.helper = guesser

One head guesses several tokens, each from the state that it computed for the one before. It reads every text along from
the model's states. Its guesses are weighed like a draft's: by how often tokens of such a probability came true, and by
the time of its passes and of wider passes of the model.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...engine.head_passes import HeadPasses, HeadSegment
from ...guessers import NO_GUESS, Guess, GuessRequest, TextSlot, Value
from ...model import LoadedModel
from ...runner import Slot
from .draft_odds import may_pay
from .foretelling import Foreteller, Foretold, Growing, keep_best
from .head_texts import HeadText

MOST = 4  # tokens of one guess: with each, the head's own states get worse
AT_START = 4.0  # plain passes that it may lose before it has gained anything
AGAIN = 1.0  # credit at which it tries again: a few guesses, since it has to read some text first
A_FEW = 8  # tokens of a pass that reads no prompt


def head_guesser(model: LoadedModel) -> "HeadGuesser | None":
    """The guesser of a model; None if the model has no such head."""
    head = model.engine.network.head
    return None if head is None else HeadGuesser(model, HeadPasses(model.engine, head))


@dataclass(eq=False)
class HeadTrack(Foretold):
    """A text, and the guessed tokens that may follow."""

    guesser: "HeadGuesser"
    place: TextSlot
    last: int = -1  # the last token of the text
    n: int = 0  # length of the text
    foretold: list[tuple[int, int]] = field(default_factory=list)
    guessed: tuple[int, Guess] | None = None  # length of the text at the last request, and the guess

    def extend(self, ids: Sequence[int]) -> None:
        """See guessers.Track."""
        if len(ids):
            self.last, self.n = ids[-1], self.n + len(ids)
        self.compare(ids, self.guesser.odds)

    def end(self) -> None:
        """See guessers.Track."""


class HeadGuesser(Foreteller):
    """A `Guesser` for a model with a head, and the `Follower` of its runner."""

    def __init__(self, model: LoadedModel, passes: HeadPasses) -> None:
        super().__init__(AT_START)
        self.model, self.passes = model, passes
        self._texts: dict[int, HeadText] = {}
        self._is_resting = False
        self._reading = 0.0  # seconds of reading along that are not charged yet
        self._ends = model.tokenizer.eog
        model.engine.keeps_states = True
        model.runner.follower = self

    # --- as runner.Follower has it ---
    def follow(self, read: Sequence[tuple[Slot, int]]) -> None:
        if self.rests:
            self._texts.clear()
            return
        begin, compiled, n_tok = time.perf_counter(), self.model.compile_seconds, sum(n for _, n in read)
        states = self.model.engine.last_states(n_tok)
        first = 0
        for slot, n in read:
            text = self._texts.get(slot.slot)
            if text is None or text.slot is not slot:
                self._texts[slot.slot] = text = HeadText(self.passes, slot)
            text.read(states[first : first + n])
            first += n
        # a prompt costs the head a small part of the model's time, whatever is guessed then: not charged
        if n_tok <= A_FEW and self.model.compile_seconds == compiled:
            self._reading += time.perf_counter() - begin

    # --- as guessers.Guesser has it ---
    @property
    def rests(self) -> bool:
        self._is_resting = self.credit.left < (AGAIN if self._is_resting else 0.0)
        return self._is_resting

    def begin(self, ids: Sequence[int], place: TextSlot) -> HeadTrack:
        return HeadTrack(self, place, n=len(ids))

    def close(self) -> None:
        self.model.engine.keeps_states, self.model.runner.follower = False, None
        self._texts.clear()

    def guesses(self, asked: Sequence[GuessRequest], value: Value) -> list[Guess]:
        begin, compiled = time.perf_counter(), self.model.compile_seconds
        guessing = [_Guessing(one, one.track) for one in asked if isinstance(one.track, HeadTrack)]
        todo = [g for g in guessing if g.track.guessed is None or g.track.guessed[0] != g.track.n]
        try:
            self._guess([g for g in todo if g.most > 0], value, begin, compiled)
        finally:
            seconds = time.perf_counter() - begin - (self.model.compile_seconds - compiled)
            self.credit.spend((seconds + self._reading) / value.plain)
            self._reading = 0.0
        keep_best(todo, value, seconds)
        for g in todo:
            g.track.guessed = g.track.n, g.guess
        known = {id(g.track): g.track.guessed[1] for g in guessing if g.track.guessed}
        return [known.get(id(one.track), NO_GUESS) for one in asked]

    def _guess(self, guessing: "list[_Guessing]", value: Value, begin: float, compiled: float) -> None:
        """Guesses token after token, for as long as another pass is expected to pay."""
        if not guessing:
            return
        one = [self.times.seconds(n) or 0.0 for n in range(1, len(guessing) + 1)]
        if not may_pay(self.odds.mean, [g.most for g in guessing], value, 0.0, one):
            return
        segments = [(g, s) for g in guessing if (s := self._rest(g)) is not None]
        while segments:
            self._pass([g for g, _ in segments], [s for _, s in segments])
            active = [g for g, _ in segments if g.goes_on]
            spent = time.perf_counter() - begin - (self.model.compile_seconds - compiled)
            if not active or not self.pays(guessing, active, value, spent, 1):
                break
            segments = [(g, g.next_segment()) for g in active]

    def _rest(self, g: "_Guessing") -> HeadSegment | None:
        text = self._texts.get(g.track.place.slot)
        if text is None or text.slot is not g.track.place or len(text.slot.tokens) + 1 != g.track.n:
            return None
        return text.rest_with(g.track.last)

    def _pass(self, guessing: "Sequence[_Guessing]", segments: Sequence[HeadSegment]) -> None:
        """Takes the most likely token after each segment."""
        start, compiled = time.perf_counter(), self.model.compile_seconds
        foretold = self.passes.run(segments)
        if self.model.compile_seconds == compiled and all(len(s.tokens) <= MOST for s in segments):
            self.times.timed(len(segments), time.perf_counter() - start)
        for g, state, logits in zip(guessing, foretold.states, foretold.logits, strict=True):
            g.state = state
            g.take(logits, self.model.n_vocab, self.odds, self._ends)


@dataclass(eq=False)
class _Guessing(Growing[HeadTrack]):
    """A text for which a guess is being made."""

    MOST = MOST

    state: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    def __post_init__(self) -> None:
        if self.track.guessed is None or self.track.guessed[0] != self.track.n:
            self.track.foretold = []

    def next_segment(self) -> HeadSegment:
        """The last guessed token, with the head's own state."""
        return HeadSegment(self.track.place.slot, self.guess.tokens[-1:], self.state[None])
