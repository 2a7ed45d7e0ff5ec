"""Guesses for several answers of a batch: how many of a step's columns each answer gets."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...step_costs import StepCosts
from ..guessing.ngrams import MOST, NGrams

LONGEST = 1 << 15  # tokens at the end of a prompt that are searched; each takes some 400 bytes
MOST_BYTES = 256 << 20  # of the states that guesses leave; MOST guesses in any case
POOR = 7  # steps without guesses after guesses that could not pay
TOO_SHORT = 3e-4  # seconds of a step, per answer: Python takes longer for a pass with guesses
IDLE = 255  # steps without guesses after one that was too short
# Python takes LOOK seconds to look for the guess of an answer and to learn the cost of a step. A small model's step is
# short: after a step without a guess nobody looks for some steps, until LOOK is at most LOOK_SHARE of their time.
LOOK, LOOK_SHARE, MOST_UNSEEN = 1e-4, 0.004, 15


class AnswerText(NGrams):
    """A prompt and its answer while it is sampled; not processed before a guess is needed."""

    def __init__(self, prompt: Sequence[int], drawn: Sequence[int]) -> None:
        """drawn: the sampled tokens; the list grows."""
        super().__init__(())
        self._prompt: Sequence[int] = prompt
        self._drawn, self._n_drawn = drawn, 0

    def foretold(self, room: int) -> list[int]:
        """See NGrams."""
        if room <= 0:
            return []
        self.extend(self._prompt[-LONGEST:])
        self.extend(self._drawn[self._n_drawn :])
        self._prompt, self._n_drawn = (), len(self._drawn)
        self.look()
        return super().foretold(room)


class BatchGuesses:
    """Guesses for all answers of a batch. most: guessed tokens of a step."""

    def __init__(self, costs: StepCosts, most: int) -> None:
        self.costs, self.most = costs, most
        self._n_rests = 0  # next steps in which nobody looks for guesses

    def rests(self) -> bool:
        """Whether to guess nothing in the next step. Call it once per step."""
        self._n_rests -= (rests := self._n_rests > 0)
        return rests

    def guesses(
        self,
        texts: Sequence[tuple[AnswerText, int]],
        n_answers: int,
        room: int,
        token_seconds: float | None = None,
    ) -> list[list[int]]:
        """Guesses for each text, often empty, for a step that samples n_answers answers.

        texts          each with its limit on guessed tokens
        room           free columns
        token_seconds  cost of a column in a step that also reads prompts
        """
        if not self.costs.may_guess(n_answers):
            self._n_rests = POOR if self.costs.is_ready(n_answers) else 0
            return [[] for _ in texts]
        if self.costs.plain_seconds(n_answers) < TOO_SHORT * len(texts):
            self._n_rests = IDLE
            return [[] for _ in texts]
        room = min(room, self.most)
        known = [text.foretold(min(room, most)) for text, most in texts]
        if not any(known):
            self._n_rests = self._unseen(len(texts), n_answers)
            return known
        if not self.costs.may_pay(n_answers, min(room, MOST * len(texts)), token_seconds):
            self._n_rests = POOR
            return [[] for _ in texts]
        # the token after a wrong one is never right, so that chances fall along a guess, and the best come first
        chances = [(text.likely ** (j + 1), i) for i, (text, _) in enumerate(texts) for j in range(len(known[i]))]
        if not chances:
            return known
        chances.sort(key=lambda pair: -pair[0])
        del chances[room:]
        n = self.costs.worth(n_answers, np.array([chance for chance, _ in chances]), token_seconds)
        if not n:
            self._n_rests = self._unseen(len(texts), n_answers)
        counts = Counter(i for _, i in chances[:n])
        return [guess[: counts[i]] for i, guess in enumerate(known)]

    def _unseen(self, n_texts: int, n_answers: int) -> int:
        """How many steps follow in which nobody looks."""
        return min(MOST_UNSEEN, int(LOOK * n_texts / (LOOK_SHARE * self.costs.plain_seconds(n_answers))))
