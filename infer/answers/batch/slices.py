"""How many tokens of prompts a step reads beside answers: as many as keep it short, from measured times.

A step that reads n tokens of prompts beside answers takes about `step + n * token` seconds: `step` for the answers' own
tokens, `token` for one more token, of a prompt or guessed. Both are measured while answers are sampled, since they
depend on the model, the machine, the depth and other programs. A slower measurement counts at once, a faster one by an
eighth, so streams stall at most once when the machine gets busy. Answers of other models in this process count, too:
their steps and these take turns at the cores.
"""

import threading
from math import inf
from weakref import WeakSet

STEP_SECONDS = 0.2  # of a step beside answers: people notice text that pauses for more than a third of a second
LEAST, FIRST = 8, 32  # tokens of a slice: the minimum; before any measurement
QUICKER = 1 / 8  # weight of a measurement that is faster than the known time
OTHERS_SHARE = 0.5  # of the limit, for a step beside the answers of other models: their own steps come in between

_all: "WeakSet[Slices]" = WeakSet()
_lock = threading.Lock()  # of _all


class Slices:
    """Measures steps, and limits the tokens of prompts in the next one."""

    def __init__(self, most: int, seconds: float = STEP_SECONDS) -> None:
        """most: tokens of a ubatch; seconds: limit of a step beside answers, infinite if nobody watches them."""
        self.most, self.seconds = most, seconds
        self._step: float | None = None
        self._token: float | None = None
        self.is_watched = False  # whether people watch answers that these steps sample
        with _lock:
            _all.add(self)

    @property
    def others_are_watched(self) -> bool:
        """Whether people watch answers of another model in this process."""
        with _lock:
            return any(each.is_watched and each.seconds != inf for each in _all if each is not self)

    @property
    def token_seconds(self) -> float | None:
        """The cost of one more token in a step that reads prompts; None if it is not known yet."""
        return self._token

    @property
    def beside_answers(self) -> int:
        """Limit on tokens of prompts and guessed tokens in a step that also samples answers."""
        if self.seconds == inf:
            return self.most
        return self._tokens_in(self.seconds - (self._step or 0.0))

    @property
    def beside_others(self) -> int:
        """Limit on tokens of prompts in a step that samples no answers; below `most` only while people watch answers of
        another model."""
        return self._tokens_in(self.seconds * OTHERS_SHARE) if self.others_are_watched else self.most

    def _tokens_in(self, left: float) -> int:
        if self._token is None:
            return min(FIRST, self.most)
        return max(min(LEAST, self.most), int(min(self.most, left / self._token)))

    def timed(self, n_prompt: int, n_answers: int, seconds: float, n_guessed: int = 0) -> None:
        """Takes the time of a step with n_prompt tokens of prompts, one token of each of n_answers answers and
        n_guessed guessed tokens.
        """
        if n_prompt == 0 and n_guessed == 0:
            self._step = _known(self._step, seconds)
        elif n_prompt and (n_answers or self.others_are_watched):
            # an unknown `step` counts as free, so tokens seem dearer: rather too few than too many
            step = (self._step or 0.0) if n_answers else 0.0
            self._token = _known(self._token, max(seconds - step, 1e-9) / (n_prompt + n_guessed))


def _known(before: float | None, seconds: float) -> float:
    if before is None or seconds >= before:
        return seconds
    return before + QUICKER * (seconds - before)
