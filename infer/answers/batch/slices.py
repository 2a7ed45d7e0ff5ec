"""How much of a prompt is read in a step beside answers: what keeps the step short, by what steps have taken here.

A step that reads n tokens of prompts beside answers takes about `step + n * token` seconds: `step` is what the answers'
own tokens take, `token` what one more costs, of a prompt or guessed. Both are measured while answers are drawn, since
they depend on the model, the machine, the depth and whoever else computes. A measurement that is slower than known
counts at once, a faster one by an eighth, so that streams stall once at most when the machine gets busy.
"""

from math import inf

STEP_SECONDS = 0.2  # a step beside answers: people see text that pauses for more than a third of a second
LEAST, FIRST = 8, 32  # tokens of a slice, at least; before anything was measured
QUICKER = 1 / 8  # of a measurement that is faster than known counts


class Slices:
    """Measures steps, and says how many tokens of prompts the next one may read."""

    def __init__(self, most: int, seconds: float = STEP_SECONDS) -> None:
        """most: tokens of a ubatch; seconds: of a step beside answers, infinite where nobody watches them."""
        self.most, self.seconds = most, seconds
        self._step: float | None = None
        self._token: float | None = None

    @property
    def token_seconds(self) -> float | None:
        """What one more token costs in a step that reads prompts; None: not known yet."""
        return self._token

    @property
    def beside_answers(self) -> int:
        """Tokens of prompts, and guessed ones, in a step that also draws answers."""
        if self.seconds == inf:
            return self.most
        if self._token is None:
            return min(FIRST, self.most)
        left = self.seconds - (self._step or 0.0)
        return max(min(LEAST, self.most), int(min(self.most, left / self._token)))

    def timed(self, n_prompt: int, n_answers: int, seconds: float, n_guessed: int = 0) -> None:
        """What a step took that read n_prompt tokens of prompts, one token of each of n_answers answers and n_guessed
        more of theirs that were guessed."""
        if n_prompt == 0 and n_guessed == 0:
            self._step = _known(self._step, seconds)
        elif n_prompt and n_answers:
            # a step that is not known yet counts as free, so that its cost goes to the tokens: too few, not too many
            self._token = _known(self._token, max(seconds - (self._step or 0.0), 1e-9) / (n_prompt + n_guessed))


def _known(before: float | None, seconds: float) -> float:
    if before is None or seconds >= before:
        return seconds
    return before + QUICKER * (seconds - before)
