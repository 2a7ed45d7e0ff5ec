"""The interface of guessers: a draft model, or a head of the model, guesses tokens for speculative decoding.

A guess changes only speed: the model verifies it (`Sequence.verify`, `Work(each=True)`), and a guessed token counts
only if it is sampled from the model's own logits. So a guesser may be wrong, see less of a text, round
differently or forget; it must not cost more than it gains. A guesser accounts for its own cost: it measures its passes,
is told the cost of passes with its guesses, and guesses nothing where that does not pay.

    track = guesser.begin(ids, seq)                            # a text, after its prompt was read
    track.extend([token])                                      # every token that is sampled, guessed or not
    [guess] = guesser.guesses([GuessRequest(track, 8)], value) # the next tokens; all texts of a batch in one call
    guesser.passed(cost)                                       # what the pass took beyond a plain one
    guesser.came_true()                                        # for every guessed token that is sampled
    track.end()                                                # its memory may serve a next text with the same prefix

Guesses from the text itself (n-grams) are separate and tried first: see answers/guessing/ngrams.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

AT_START, AT_MOST, SHARE = 1.0, 8.0, 0.01  # see `Credit`


class Guess(NamedTuple):
    """Tokens that may come next. chances: for each, the probability that it and all tokens before it are sampled; so
    they never rise.

    A batch verifies the most likely guesses of all its answers first.
    """

    tokens: list[int]
    chances: list[float]


NO_GUESS = Guess([], [])


class TextSlot(Protocol):
    """The slot of the model's memory that holds a text (runner.Slot)."""

    slot: int
    tokens: list[int]


class Track(Protocol):
    """One text that a guesser follows."""

    def extend(self, ids: Sequence[int]) -> None:
        """Append sampled tokens. Costs next to nothing: nothing is computed before a guess is requested."""

    def end(self) -> None:
        """The text is over; no call follows."""


class GuessRequest(NamedTuple):
    """Asks for a guess of 1 to `most` tokens for a track. mask: which tokens can come next; None: all can."""

    track: Track
    most: int
    mask: "Mask | None" = None


class Mask(Protocol):
    """The grammar that constrains an answer, as a copy that follows the guess.

    masked  sets the logits, f32 [n_vocab], of tokens that cannot come next to -inf
    accept  is called with each guessed token, before `masked` for the next one
    """

    def masked(self, logits: np.ndarray) -> np.ndarray: ...
    def accept(self, token: int) -> None: ...
    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True)
class Value:
    """Measured cost of the model's next step, to weigh guesses against.

    n_answers  answers that get a token in the step
    plain      seconds without guesses
    seconds    seconds(n): with n guessed tokens, n >= 1, with a margin for inexact measurements
    """

    n_answers: int
    plain: float
    seconds: Callable[[int], float]


class Guesser(Protocol):
    """One per loaded model. All calls come from the thread that runs the model, never during a pass of it."""

    @property
    def rests(self) -> bool:
        """Whether it does not guess now, because that did not pay. Costs nothing; ask this first."""

    def begin(self, ids: Sequence[int], place: TextSlot) -> Track | None:
        """Follow a text whose prompt `ids` the model has read at `place`. None: it follows no more texts at a time."""

    def guesses(self, asked: Sequence[GuessRequest], value: Value) -> list[Guess]:
        """The guess for each request, empty where guessing does not pay. Raises Interrupted as a pass of the model."""

    def passed(self, cost: float) -> None:
        """A pass of the model has run. cost: what its guesses added, in plain passes; 0: it had no guesses."""

    def came_true(self, share: float = 1.0) -> None:
        """A guessed token was sampled. share: the part of a plain pass that this saved (in a batch: one answer's)."""

    def close(self) -> None:
        """Free its memory."""


@dataclass
class Credit:
    """The cost that a guesser may still lose, in plain passes of the model.

    Starts at AT_START, grows by SHARE with each plain pass and by the passes that guesses saved (to at most AT_MOST),
    and shrinks by the cost of guessing. So a text of which no guess comes true is at most 1 % slower, apart from the
    first attempts.
    """

    left: float = AT_START
    total_gain: float = field(default=0.0)  # all that guesses saved, less all that they cost

    def earn(self, passes: float) -> None:
        self.total_gain += passes
        self.left = min(AT_MOST, self.left + passes)

    def spend(self, passes: float) -> None:
        self.total_gain -= passes
        self.left -= passes

    def invest(self, passes: float) -> None:
        """Book a cost on `total_gain` alone, not on `left`."""
        self.total_gain -= passes

    def passed(self, cost: float) -> None:
        """See `Guesser.passed`."""
        if cost > 0:
            self.spend(cost)
        else:
            self.left = min(AT_MOST, self.left + SHARE)


@dataclass
class Guessers:
    """How tokens are guessed for answers with `speculate`.

    ngrams  from repeated n-grams of the text
    helper  guesses where n-grams give nothing
    """

    ngrams: bool = True
    helper: Guesser | None = None


__all__ = ["NO_GUESS", "Credit", "Guess", "GuessRequest", "Guesser", "Guessers", "Mask", "Track", "Value"]
