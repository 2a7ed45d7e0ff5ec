"""The common part of `Draft` and `HeadGuesser`: tokens that are guessed one by one, and whether they came true."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np

from hybrid.quant.ggml.errors import HybridError

from ...guessers import Credit, Guess, GuessRequest, Value
from .draft_odds import Odds, PassTimes, best_rate

LEAST_CHANCE = 0.1  # of a guess: below it, its next token is not worth a pass


class Foretold:
    """The guessed next tokens of a text, each with the kind of its probability."""

    foretold: list[tuple[int, int]]

    def compare(self, ids: Sequence[int], odds: Odds) -> None:
        """Compares the guessed tokens with the tokens that came."""
        for token in ids:
            if not self.foretold:
                odds.rested()
                continue
            foretold, kind = self.foretold.pop(0)
            odds.seen(kind, right=token == foretold)
            if token != foretold:
                self.foretold = []


T = TypeVar("T", bound=Foretold)


@dataclass(eq=False)
class Growing(Generic[T]):
    """A guess that grows by one token per pass, to MOST tokens. chance: that all of it is sampled."""

    MOST: ClassVar[int]

    asked: GuessRequest
    track: T
    guess: Guess = field(default_factory=lambda: Guess([], []))
    chance: float = 1.0
    over: bool = False

    @property
    def most(self) -> int:
        return min(self.MOST, self.asked.most)

    @property
    def goes_on(self) -> bool:
        return not self.over and len(self.guess.tokens) < self.most and self.chance > LEAST_CHANCE

    def take(self, logits: np.ndarray, n_vocab: int, odds: Odds, ends: Container[int]) -> None:
        """Adds the most likely token. n_vocab: of the model that verifies it."""
        token, p = self._likeliest(logits, n_vocab)
        if token is None or token in ends:  # after the end of an answer nothing is verified
            self.over = True
            return
        kind = odds.kind(p)
        self.chance *= odds.chance(kind)
        self.guess.tokens.append(token)
        self.guess.chances.append(self.chance)
        self.track.foretold.append((token, kind))

    def _likeliest(self, logits: np.ndarray, n_vocab: int) -> tuple[int | None, float]:
        """The most likely token that the form allows, or None, and its probability."""
        mask = self.asked.mask
        if mask is not None:
            if len(logits) < n_vocab:
                logits = np.concatenate([logits, np.full(n_vocab - len(logits), -np.inf, np.float32)])
            try:
                if self.guess.tokens:
                    mask.accept(self.guess.tokens[-1])
                if mask.ended:
                    return None, 0.0
                logits = mask.masked(logits)
            except HybridError:
                return None, 0.0
        token = int(logits.argmax())
        top = float(logits[token])
        if not np.isfinite(top):
            return None, 0.0
        return token, 1.0 / float(np.exp(logits - top).sum())


class Foreteller:
    """The account of a guesser: how often it is right, the time of its passes, and its credit."""

    def __init__(self, at_start: float) -> None:
        self.odds, self.times, self.credit = Odds(), PassTimes(), Credit(at_start)

    def passed(self, cost: float) -> None:
        """See guessers.Guesser."""
        self.credit.passed(cost)

    def came_true(self, share: float = 1.0) -> None:
        """See guessers.Guesser."""
        self.credit.earn(share)

    def pays(
        self, growing: Sequence[Growing[T]], active: Sequence[Growing[T]], value: Value, spent: float, n: int
    ) -> bool:
        """Whether one to n more passes for the `active` ones are expected to pay."""
        chances = sorted((c for g in growing for c in g.guess.chances), reverse=True)
        now, more = best_rate(chances, value, spent)[0], list(chances)
        one = self.times.seconds(len(active)) or spent
        for i in range(1, n + 1):
            more += [g.chance * self.odds.mean**i for g in active if len(g.guess.tokens) + i <= g.most]
            if best_rate(sorted(more, reverse=True), value, spent + i * one)[0] > now:
                return True
        return False


def keep_best(growing: Sequence[Growing[T]], value: Value, spent: float) -> None:
    """Cuts all guesses to the tokens that are worth verifying."""
    chances = sorted((c for g in growing for c in g.guess.chances), reverse=True)
    n = best_rate(chances, value, spent)[1]
    least = chances[n - 1] if n else 2.0
    for g in growing:
        worth = sum(chance >= least for chance in g.guess.chances)
        g.guess = Guess(g.guess.tokens[:worth], g.guess.chances[:worth])
