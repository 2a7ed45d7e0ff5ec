"""What guesses tokens beside a model: a smaller model, a head of its own. What generation and batches ask of it.

A guess changes nothing but speed: the model verifies it (`Sequence.verify`, `Work(each=True)`), and a token counts when
the sampler draws it from the model's own logits. So a guesser may be wrong, see less of a text, round otherwise or
forget; it must not cost more than it gains. What it costs is its own affair: it measures its passes, is told what
passes with its guesses took, and guesses nothing where that does not pay.

    track = guesser.begin(ids, seq)                     # a text, when its prompt was read
    track.extend([token])                               # every token that is drawn, guessed or not
    [guess] = guesser.guesses([Asked(track, 8)], value) # what follows the last one; of all texts of a batch in one call
    guesser.passed(cost)                                # what the pass took beyond a plain one
    guesser.came_true()                                 # for every guessed token that is drawn
    track.end()                                         # its memory may serve the next text that begins alike

Guesses that a text itself gives (n-grams) are older and apart: see answers/generation/speculate.py. They come first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

AT_START, AT_MOST, SHARE = 1.0, 8.0, 0.01  # of a credit, see `Credit`


class Guess(NamedTuple):
    """Tokens that may come next, and for each the chance that it is drawn, which takes all before it: it never rises.

    Batches verify the likeliest of all answers first.
    """

    tokens: list[int]
    chances: list[float]


NO_GUESS = Guess([], [])


class TextSlot(Protocol):
    """Where the model has a text: a slot of its memory (runner.Slot)."""

    slot: int
    tokens: list[int]


class Track(Protocol):
    """One text that a guesser follows."""

    def extend(self, ids: Sequence[int]) -> None:
        """The text goes on with tokens that were drawn. Costs next to nothing: what is to be computed waits until a
        guess is asked for."""

    def end(self) -> None:
        """The text is over; no call follows."""


class GuessRequest(NamedTuple):
    """A track of which a guess of up to `most` tokens is wanted, at least 1.

    masked: sets the logits of tokens that cannot come next to -inf, f32 [n_vocab]; None: all can. It is called for the
    first token of the guess, and then with each token that was taken, for the one after it: see `Mask`.
    """

    track: Track
    most: int
    mask: "Mask | None" = None


class Mask(Protocol):
    """The form of an answer, as far as a guess is concerned. A copy: the guess may go anywhere."""

    def masked(self, logits: np.ndarray) -> np.ndarray: ...
    def accept(self, token: int) -> None: ...
    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True)
class Value:
    """What the model's next step costs, as it was measured on this machine: what guesses are weighed against.

    n_answers  that are drawn in it
    plain      seconds that it takes without guesses
    seconds    of a step with n guessed tokens, n >= 1, with a margin for what was measured badly
    """

    n_answers: int
    plain: float
    seconds: Callable[[int], float]


class Guesser(Protocol):
    """One for a loaded model; everything happens in the thread that runs the model, never beside a pass of it."""

    @property
    def rests(self) -> bool:
        """Whether it will not guess now, because that did not pay: to be asked first, costs nothing."""

    def begin(self, ids: Sequence[int], place: TextSlot) -> Track | None:
        """A text that begins with `ids`, which the model has read, at `place`; None: it follows as many as it can."""

    def guesses(self, asked: Sequence[GuessRequest], value: Value) -> list[Guess]:
        """What may follow each text, empty where that does not pay. Interrupted as a pass of the model is."""

    def passed(self, cost: float) -> None:
        """A pass of the model took so much more than a plain one, in plain ones, because of its guesses; 0: it was
        plain."""

    def came_true(self, share: float = 1.0) -> None:
        """A guessed token was drawn, which has saved this share of a plain pass (of a batch: one answer's)."""

    def close(self) -> None:
        """Gives its memory back."""


@dataclass
class Credit:
    """What a guesser may lose yet, in plain passes of the model: AT_START, SHARE of a pass for each that goes by, what
    came true (AT_MOST in all), less what guessing cost. So a text of which nothing comes true is 1 % slower at most,
    beside the first attempts."""

    left: float = AT_START
    total_gain: float = field(default=0.0)  # all that came true, less all that it cost

    def earn(self, passes: float) -> None:
        self.total_gain += passes
        self.left = min(AT_MOST, self.left + passes)

    def spend(self, passes: float) -> None:
        self.total_gain -= passes
        self.left -= passes

    def invest(self, passes: float) -> None:
        """Spend of what was gained, not of what may be lost yet."""
        self.total_gain -= passes

    def passed(self, cost: float) -> None:
        """See Guesser."""
        if cost > 0:
            self.spend(cost)
        else:
            self.left = min(AT_MOST, self.left + SHARE)


@dataclass
class Guessers:
    """How tokens are guessed where an answer is drawn with guesses (`speculate`).

    ngrams  from what the text said before
    helper  where the text gives nothing
    """

    ngrams: bool = True
    helper: Guesser | None = None


__all__ = ["NO_GUESS", "Credit", "Guess", "GuessRequest", "Guesser", "Guessers", "Mask", "Track", "Value"]
