"""How likely a text is: what `Model.score` returns."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """ln p of each token that was scored, given all before it.

    tokens    ids
    pieces    their texts, as far as they are whole characters
    logprobs  of each token
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """ln p of all tokens together."""
        return math.fsum(self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp of the mean of -ln p; NaN of no tokens."""
        return math.exp(-self.total / len(self.logprobs)) if self.logprobs else math.nan

    def __len__(self) -> int:
        return len(self.tokens)
