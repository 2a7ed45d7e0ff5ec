"""How often a draft is right, and the cost of its passes: both measured while it guesses."""

from bisect import bisect
from collections.abc import Sequence

import numpy as np

from ...guessers import Value

# Bounds of a draft's probability for its most likely token, and the initial chances that such a token is sampled. These
# depend on the two models and on the samplers: at a high temperature the most likely token is often not sampled.
_BOUNDS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
_AT_FIRST = (0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97)
HOPED = 0.8  # initial chance of any token, to which it returns while nothing is drafted
LEARNED, FORGOTTEN = 1 / 16, 1 / 400  # weights in an average: of each guessed token, of each plain pass
SMOOTHED = 8  # passes in an average of their seconds
MORE = 0.3  # of a pass's seconds per column: cost of a column in widths that were never measured
WORTH = 1.05  # tokens per second that must be expected, relative to those without guesses


class Odds:
    """Chances that a draft's guesses are sampled."""

    def __init__(self) -> None:
        self.mean = HOPED  # of a token, whatever its probability
        self._of = list(_AT_FIRST)

    def kind(self, p: float) -> int:
        """The class of tokens to which a draft gives about this probability."""
        return bisect(_BOUNDS, p)

    def chance(self, kind: int) -> float:
        return self._of[kind]

    def seen(self, kind: int, *, right: bool) -> None:
        """Learns whether a guessed token was right, if all before it were."""
        self.mean += LEARNED * (right - self.mean)
        self._of[kind] += LEARNED * (right - self._of[kind])

    def rested(self) -> None:
        """Notes that a token was sampled without a guess: the average moves back to HOPED."""
        self.mean += FORGOTTEN * (HOPED - self.mean)


class PassTimes:
    """Seconds of passes by number of columns; unknown widths are interpolated."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, float]] = {}  # columns -> number of passes, average
        self.per_token: float | None = None  # seconds per token, where texts are read

    def timed(self, n: int, seconds: float) -> None:
        """Takes the time of a pass that drafted for n texts."""
        count, mean = self._of.get(n, (0, 0.0))
        count = min(count + 1, SMOOTHED)
        self._of[n] = count, mean + (seconds - mean) / count

    def read(self, n: int, seconds: float) -> None:
        """Takes the time of reading n tokens of texts."""
        mean = self.per_token
        self.per_token = seconds / n if mean is None else mean + (seconds / n - mean) / 4

    def seconds(self, n: int) -> float | None:
        """Seconds of a pass that drafts for n texts; None if not known yet."""
        if not self._of:
            return None
        widths = sorted(self._of)
        last = self._of[widths[-1]][1]
        if n > widths[-1]:
            return last * (1 + MORE * (n - widths[-1]) / widths[-1])
        return float(np.interp(n, widths, [self._of[width][1] for width in widths]))


def best_rate(chances: Sequence[float], value: Value, spent: float) -> tuple[float, int]:
    """The best tokens per second of a step, relative to the rate without guesses, and its number of guesses.

    chances  of the available guesses, the best first
    spent    seconds that guessing took
    """
    plain = value.n_answers / value.plain
    tokens = float(value.n_answers)
    best, best_n = tokens / (value.plain + spent), 0
    for n, chance in enumerate(chances, 1):
        tokens += chance
        rate = tokens / (value.seconds(n) + spent)
        if rate > best:
            best, best_n = rate, n
    return best / plain, best_n


def may_pay(mean: float, mosts: Sequence[int], value: Value, reading: float, one: Sequence[float]) -> bool:
    """Whether drafting for some texts is expected to pay, if a token comes true with the chance `mean`.

    mosts    limits on the guessed tokens of each text
    reading  seconds before the first token is drafted
    one      seconds of a pass for the first 1, 2... texts
    """
    chances: list[float] = []
    spent = reading
    for depth in range(1, max(mosts) + 1):
        n = sum(most >= depth for most in mosts)
        spent += one[n - 1]
        chances += [mean**depth] * n
        if best_rate(chances, value, spent)[0] > WORTH:
            return True
        if mean**depth < 0.1:
            break
    return False
