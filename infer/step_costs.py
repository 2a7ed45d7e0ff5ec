"""What steps of a batch cost by their columns, measured while they run: how many guessed tokens pay beside answers.

All tokens of a step are columns of the same products, whoever's they are. While those wait for the weights, a few more
cost little; once they wait for arithmetic, a column costs what an answer costs, and no guess pays. A step that reads
prompts waits for arithmetic in any case: there a guess pays where what it saves later is dearer than one more token of
a prompt.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from .guessers import AT_MOST, AT_START, SHARE, Value

UNKNOWN = 0.35  # of a step: assumed cost of one more column until a wider step was measured
DEAR = 1.4  # how often what guesses cost beyond the plain step must be worth it: measurements are noisy
ALONE = 1.05  # margin on the measured seconds of a step of one answer
LEAST_GAIN = 1.05  # tokens per second that must be expected of a step, beside those of a plain one
CHEAPEST = 0.05  # of an answer's share of a step: what a column costs at least, in widths that were never measured
REACH = 4  # columns beyond the widest step that was measured: the next program may be much dearer
FORGET = 1000  # steps after which a width that did not occur again is measured anew


@dataclass
class _Width:
    """Steps of so many columns: how many, their average seconds, and the number of the last one."""

    n: int = 0
    seconds: float = 0.0
    last: int = 0


class StepCosts:
    """Measures steps of a batch, and says how many guesses the next one may carry.

    Guessing must not cost more than it gains. It has `credit`, in plain steps: AT_START, SHARE of one for every plain
    step, for every guess that comes true its answer's share (AT_MOST in all), less what steps with guesses cost beyond
    plain ones. Without credit there are no guesses.
    """

    def __init__(self) -> None:
        self.credit = AT_START
        self._widths: dict[int, _Width] = {}
        self._programs: set[Hashable] = set()  # that have run
        self._n_steps = 0

    # --- what happened ---
    def timed(self, n_answers: int, n_guessed: int, seconds: float, program: Hashable, n_helped: int = 0) -> float:
        """What a step without prompts took. program: which one ran; the first run of each does not count.

        n_helped: of its guesses, those of what guesses beside the model. Their part of what the step took beyond a
        plain one is returned, in plain steps, and not charged.
        """
        if program not in self._programs:
            self._programs.add(program)
            return 0.0
        self._n_steps += 1
        width = self._widths.setdefault(n_answers + n_guessed, _Width())
        width.n, width.last = width.n + 1, self._n_steps
        width.seconds += (seconds - width.seconds) / min(width.n, 8)
        if self._n_steps % 128 == 0:
            self._widths = {n: w for n, w in self._widths.items() if w.last > self._n_steps - FORGET}
        if not n_guessed:
            self._earn(SHARE)
        elif self.is_ready(n_answers):
            beyond = max(0.0, seconds / self._widths[n_answers].seconds - 1)
            helped = beyond * n_helped / n_guessed
            self.credit -= beyond - helped
            return helped
        return 0.0

    def beside_prompts(self, n_answers: int, n_guessed: int, token_seconds: float) -> None:
        """A step that read prompts carried guesses, of which each cost about so much."""
        if self.is_ready(n_answers):
            self.credit -= n_guessed * token_seconds / self._widths[n_answers].seconds

    def came_true(self, n: int, n_answers: int) -> None:
        """So many guessed tokens were drawn, in a step of n_answers answers."""
        self._earn(n / n_answers)

    def _earn(self, steps: float) -> None:
        self.credit = min(AT_MOST, self.credit + steps)

    # --- what pays ---
    def is_ready(self, n_answers: int) -> bool:
        """Whether plain steps of so many answers have been measured."""
        return n_answers in self._widths and self._widths[n_answers].n > 1

    def plain_seconds(self, n_answers: int) -> float:
        """Seconds of a step of n_answers answers without guesses, once it is ready."""
        return self._widths[n_answers].seconds

    def may_pay(self, n_answers: int, most: int, token_seconds: float | None = None) -> bool:
        """Whether up to `most` guesses can be worth their columns, if all are right; token_seconds: see `worth`."""
        if most < 1 or self.credit <= 0 or not self.is_ready(n_answers):
            return False
        return self.worth(n_answers, np.ones(most), token_seconds) > 0

    def worth(self, n_answers: int, chances: np.ndarray, token_seconds: float | None = None) -> int:
        """How many guesses a step should carry, of those that come true with these chances, f64, the best first.

        token_seconds: what one more column costs in a step that reads prompts; None: it reads none.
        """
        plain = self.plain_seconds(n_answers)
        if token_seconds is not None:
            return int(np.count_nonzero(chances * plain / n_answers > DEAR * token_seconds))
        chances = chances[: max(self._widths) + REACH - n_answers]
        tokens = 1 + np.cumsum(chances) / n_answers
        gain = tokens / (1 + DEAR * (self.seconds(n_answers, len(chances)) / plain - 1))
        best = int(gain.argmax())
        return best + 1 if gain[best] > LEAST_GAIN else 0

    def value(self, n_answers: int, n_before: int, most: int) -> Value:
        """What up to `most` guesses are worth beside n_before that the step carries already."""
        plain = self.plain_seconds(n_answers)
        seconds = np.concatenate([[plain], self.seconds(n_answers, n_before + most)])
        if n_answers == 1:  # its steps vary less, and whoever guesses counts what that takes
            beyond = np.maximum(0.0, ALONE * seconds[n_before:] - seconds[n_before])
        else:
            # wider than a few columns beyond what was measured: the next program may be much dearer
            seconds[max(self._widths) + REACH - n_answers + 1 :] *= 2
            beyond = DEAR * (seconds[n_before:] - seconds[n_before])
        return Value(n_answers, plain, lambda n: plain + float(beyond[min(n, most)]))

    def seconds(self, n_answers: int, most: int) -> np.ndarray:
        """Of steps with 1 to `most` columns beyond those of n_answers answers, f64 [most]: measured, or on lines
        through the nearest ones that were; never less than of a plain one."""
        plain = self.plain_seconds(n_answers)
        known = sorted((n, w.seconds) for n, w in self._widths.items() if n >= n_answers)
        last, seconds = known[-1]
        share = plain / n_answers
        slope = max(CHEAPEST * share, (seconds - plain) / (last - n_answers)) if last > n_answers else UNKNOWN * share
        end = n_answers + most
        if end > last:
            known.append((end, seconds + slope * (end - last)))
        widths, times = zip(*known, strict=True)
        costs: np.ndarray = np.maximum(plain, np.interp(np.arange(n_answers + 1, end + 1), widths, times))
        return costs
