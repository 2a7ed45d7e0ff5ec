"""Scores of texts: the result of `Model.score`."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """ln p of each scored token, given all tokens before it.

    tokens    ids
    pieces    their texts, where these are whole characters
    logprobs  ln p of each token
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum of ln p."""
        return math.fsum(self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp(-mean of ln p); NaN without tokens."""
        return math.exp(-self.total / len(self.logprobs)) if self.logprobs else math.nan

    def __len__(self) -> int:
        return len(self.tokens)
