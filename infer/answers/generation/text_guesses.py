"""Guesses for one answer that is drawn by itself: what the text said before, or what a `Guesser` says."""

from collections.abc import Sequence

from ...engine.pass_costs import MARGIN, PassCosts
from ...guessers import Asked, Guessers, Place, Value
from .drawing import Drawing
from .speculate import NGramSpeculator

NOISE = 1.05  # what passes are taken to cost, of what was measured: a helper counts what it takes itself


class TextGuesses:
    """What may follow a text, and the account of whoever guessed it."""

    def __init__(self, ids: Sequence[int], costs: PassCosts, guessers: Guessers, place: Place) -> None:
        """ids: what was read so far, at `place`."""
        self._costs = costs
        self._ngrams = NGramSpeculator(ids, costs) if guessers.ngrams else None
        self._helper = guessers.helper
        self._track = self._helper.begin(ids, place) if self._helper is not None else None
        self._is_helped = False  # whether the last guess is the helper's

    def extend(self, token: int) -> None:
        """It was drawn."""
        if self._ngrams is not None:
            self._ngrams.extend([token])
        if self._track is not None:
            self._track.extend([token])

    def came_true(self) -> None:
        """The token that was drawn last was guessed."""
        if self._is_helped and self._helper is not None:
            self._helper.came_true()
        else:
            self._costs.came_true()

    def guess(self, room: int, drawing: Drawing) -> list[int]:
        """Tokens that may come next, at most `room`; empty where a guess would not pay."""
        self._is_helped = False
        if drawing.is_forced or room <= 0:
            return []
        guess = self._ngrams.guess(room) if self._ngrams is not None else []
        return guess or self._helped(room, drawing)

    def _helped(self, room: int, drawing: Drawing) -> list[int]:
        helper, track = self._helper, self._track
        if helper is None or track is None or helper.rests or not self._costs.ready:
            return []
        plain = self._costs.plain_seconds
        value = Value(1, plain, lambda n: plain * max(1.0, NOISE / MARGIN * self._costs.cost(n + 1)))
        mask = None if drawing.constraint is None else drawing.constraint.copy()
        [guess] = helper.guesses([Asked(track, room, mask)], value)
        self._is_helped = bool(guess.tokens)
        return guess.tokens[:room]

    def timed(self, width: int, seconds: float) -> None:
        """A pass of the last token and `width` - 1 more took so long."""
        helped = self._is_helped and width > 1
        beyond = self._costs.timed(width, seconds, charged=not helped)
        if self._helper is not None and (helped or width == 1):
            self._helper.passed(beyond if helped else 0.0)

    def end(self) -> None:
        """The answer is over."""
        if self._track is not None:
            self._track.end()
            self._track = None
