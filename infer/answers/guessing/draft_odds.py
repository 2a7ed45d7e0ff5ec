"""How often a draft is right, and what its passes cost: both measured while it guesses."""

from bisect import bisect
from collections.abc import Sequence

import numpy as np

from ...guessers import Value

# A draft's own probability of its likeliest token, and at first how often such a token is taken to come true. That
# depends on the two models and on how tokens are drawn: at a high temperature the likeliest token is often not drawn.
_BOUNDS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
_AT_FIRST = (0.15, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97)
HOPED = 0.8  # of any token, before there were some, and again where nothing was drafted for long
LEARNED, FORGOTTEN = 1 / 16, 1 / 400  # of an average, with every token that was foretold, with every plain pass
SMOOTHED = 8  # passes in an average of their seconds
MORE = 0.3  # of a pass's seconds per column: what a column costs in widths that were never measured
WORTH = 1.05  # tokens per second that must be expected, beside those without guesses


class Odds:
    """Chances that what a draft foretells is drawn."""

    def __init__(self) -> None:
        self.mean = HOPED  # of a token, whatever its probability
        self._of = list(_AT_FIRST)

    def kind(self, p: float) -> int:
        """Tokens that a draft gives about the same probability."""
        return bisect(_BOUNDS, p)

    def chance(self, kind: int) -> float:
        return self._of[kind]

    def seen(self, kind: int, *, right: bool) -> None:
        """What became of a foretold token, when all before it were right."""
        self.mean += LEARNED * (right - self.mean)
        self._of[kind] += LEARNED * (right - self._of[kind])

    def rested(self) -> None:
        """A token was drawn without a guess: what was learned is worth less by now."""
        self.mean += FORGOTTEN * (HOPED - self.mean)


class PassTimes:
    """Seconds of passes by their number of columns; of what was never measured, on lines through what was."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, float]] = {}  # columns -> number of passes, average
        self.per_token: float | None = None  # of texts that are read

    def timed(self, n: int, seconds: float) -> None:
        """A pass that drafted for n texts."""
        count, mean = self._of.get(n, (0, 0.0))
        count = min(count + 1, SMOOTHED)
        self._of[n] = count, mean + (seconds - mean) / count

    def read(self, n: int, seconds: float) -> None:
        """So many tokens of texts were read."""
        mean = self.per_token
        self.per_token = seconds / n if mean is None else mean + (seconds / n - mean) / 4

    def seconds(self, n: int) -> float | None:
        """Of a pass that drafts for n texts; None: not known yet."""
        if not self._of:
            return None
        widths = sorted(self._of)
        last = self._of[widths[-1]][1]
        if n > widths[-1]:
            return last * (1 + MORE * (n - widths[-1]) / widths[-1])
        return float(np.interp(n, widths, [self._of[width][1] for width in widths]))


def best_rate(chances: Sequence[float], value: Value, spent: float) -> tuple[float, int]:
    """Tokens per second of a step, at most, beside the rate without guesses, and with how many guesses it is reached.

    chances  of the guesses at hand, the best first
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
    """Whether drafting for some texts is to be expected to pay, where a token comes true with the chance `mean`.

    mosts    tokens that may be guessed of each text
    reading  seconds before the first token is drafted
    one      of a pass for the first 1, 2... texts
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
