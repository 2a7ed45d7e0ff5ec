"""Measures the cost of a batch's steps by their number of columns, to decide how many guessed tokens pay.

Every token of a step is a column of the same products. While the products are bound by memory bandwidth, a few more
columns cost little; once they are bound by arithmetic, a guess costs as much as an answer's token and does not pay. A
step that reads prompts is always bound by arithmetic: there a guess pays if it saves more later than one more prompt
token costs.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from .guessers import AT_MOST, AT_START, SHARE, Value

UNKNOWN = 0.35  # assumed cost of one more column, as a share of an answer's share, until a wider step was measured
DEAR = 1.4  # factor on the cost of guesses beyond the plain step, because measurements are noisy
ALONE = 1.05  # factor on the measured seconds of a step of one answer
LEAST_GAIN = 1.05  # least ratio of expected tokens per second, with guesses to without, for guesses to pay
CHEAPEST = 0.05  # least assumed cost of a column in widths never measured, as a share of an answer's share
REACH = 4  # columns beyond the widest measured step that guesses may use: the next program may be much dearer
FORGET = 1000  # steps after which a width that did not occur again is forgotten


@dataclass
class _Width:
    """Measurements of steps of one width: their count, running average of seconds, and the number of the last step."""

    n: int = 0
    seconds: float = 0.0
    last: int = 0


class StepCosts:
    """Measures steps of a batch, and says how many guesses the next one may carry.

    Guessing must not cost more than it gains. `credit`, in plain steps, starts at AT_START, grows by SHARE for every
    plain step and by 1 / n_answers for every guess that comes true (to at most AT_MOST), and shrinks by the extra cost
    of steps with guesses. Without credit there are no guesses.

    gained  seconds that guesses have saved so far, minus their cost and the time to make programs for them
    """

    def __init__(self) -> None:
        self.credit = AT_START
        self.gained = 0.0
        self._widths: dict[int, _Width] = {}
        self._programs: set[Hashable] = set()  # that have run
        self._n_steps = 0

    # --- measurements ---
    def timed(self, n_answers: int, n_guessed: int, seconds: float, program: Hashable, n_helped: int = 0) -> float:
        """Record a step that read no prompts. program: the one that ran; its first run does not count.

        n_helped: how many of the guesses came from a draft model or head. Their part of the step's extra cost is
        returned, in plain steps, instead of being charged to `credit`.
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
            self.gained -= (beyond - helped) * self.plain_seconds(n_answers)
            return helped
        return 0.0

    def beside_prompts(self, n_answers: int, n_guessed: int, token_seconds: float) -> None:
        """Charge the guesses of a step that read prompts, at `token_seconds` each."""
        if self.is_ready(n_answers):
            self.credit -= n_guessed * token_seconds / self._widths[n_answers].seconds
            self.gained -= n_guessed * token_seconds

    def came_true(self, n: int, n_answers: int) -> None:
        """Credit n guessed tokens that came true in a step of n_answers answers."""
        self._earn(n / n_answers)
        if self.is_ready(n_answers):
            self.gained += n / n_answers * self.plain_seconds(n_answers)

    def unseen(self, n: int) -> None:
        """Credit n plain steps that were not measured."""
        self._earn(SHARE * n)

    def invest(self, seconds: float) -> None:
        """Book the time that programs for wider steps took: it is no loss of guessing, so `credit` stays."""
        self.gained -= seconds

    def _earn(self, steps: float) -> None:
        self.credit = min(AT_MOST, self.credit + steps)

    # --- decisions ---
    def is_ready(self, n_answers: int) -> bool:
        """Whether at least two plain steps of n_answers answers have been measured."""
        return n_answers in self._widths and self._widths[n_answers].n > 1

    def plain_seconds(self, n_answers: int) -> float:
        """Seconds of a step of n_answers answers without guesses, once it is ready."""
        return self._widths[n_answers].seconds

    def may_guess(self, n_answers: int) -> bool:
        """Whether there is credit for guesses, and a plain step to weigh them against."""
        return self.credit > 0 and self.is_ready(n_answers)

    def may_pay(self, n_answers: int, most: int, token_seconds: float | None = None) -> bool:
        """Whether up to `most` guesses can be worth their columns, if all are right; token_seconds: see `worth`."""
        if most < 1 or not self.may_guess(n_answers):
            return False
        return self.worth(n_answers, np.ones(most), token_seconds) > 0

    def worth(self, n_answers: int, chances: np.ndarray, token_seconds: float | None = None) -> int:
        """How many guesses a step should carry. chances: of each guess to come true, f64, highest first.

        token_seconds: cost of one more column in a step that reads prompts; None: it reads no prompts.
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
        """Cost of up to `most` guesses in a step that already carries n_before guesses."""
        plain = self.plain_seconds(n_answers)
        seconds = np.concatenate([[plain], self.seconds(n_answers, n_before + most)])
        if n_answers == 1:  # its steps vary less, and the guesser counts its own cost
            beyond = np.maximum(0.0, ALONE * seconds[n_before:] - seconds[n_before])
        else:
            # more than REACH columns beyond the widest measured step
            seconds[max(self._widths) + REACH - n_answers + 1 :] *= 2
            beyond = DEAR * (seconds[n_before:] - seconds[n_before])
        return Value(n_answers, plain, lambda n: plain + float(beyond[min(n, most)]))

    def seconds(self, n_answers: int, most: int) -> np.ndarray:
        """Seconds of steps with 1 to `most` columns more than n_answers answers, f64 [most].

        Measured, or interpolated linearly between measured widths; not less than a plain step takes.
        """
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
