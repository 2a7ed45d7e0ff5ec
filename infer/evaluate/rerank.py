"""Reranking: scores that say how well documents answer a query.

    pairs = reranker.pairs("What is SSM?", documents)   # the tokens
    reading = reranker.begin(pairs)
    while not reading.done:
        reading.step(64)                                # at most 64 tokens, if the model can stop within a text
    reading.scores()                                    # f64 [n]: log odds; `relevance` makes 0 to 1 of them

A score has the same bits whatever documents are read with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hybrid.quant.ggml.errors import FormatError

from ..loading.options import DEFAULT_UBATCH
from ..progress import TokenProgress

ANSWERS = ("yes", "no")
RERANKERS = (
    "an encoder with a classification head (bge-reranker and other cross-encoders) or with a vector of every token "
    "(ColBERT), or Qwen3-Reranker"
)


def ranks(labels: Sequence[str]) -> bool:
    """Whether the labels of a head say how well a document answers a query: one label, or yes and no."""
    return len(labels) == 1 or tuple(labels) == ANSWERS


def ranking(logits: np.ndarray) -> np.ndarray:
    """Log odds [n] from the logits [n, labels] of labels that rank."""
    return logits[:, 0] - logits[:, 1] if logits.shape[1] > 1 else logits[:, 0]


@dataclass(frozen=True)
class Pairs:
    """The tokens of a query with each document.

    shared     the tokens that all pairs begin with
    rest       the other tokens of each pair
    truncated  indexes of the documents that have lost tokens at their end
    seconds    for encoders: the index in each pair at which its document begins
    """

    shared: list[int]
    rest: list[list[int]]
    truncated: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Tokens of all pairs, each counted whole."""
        return len(self.shared) * len(self.rest) + sum(map(len, self.rest))

    @property
    def n_processed(self) -> int:
        """Tokens that go through the model: the shared ones once."""
        return len(self.shared) + sum(map(len, self.rest))

    @property
    def longest(self) -> int:
        """Tokens of the longest pair."""
        return len(self.shared) + max(map(len, self.rest), default=0)


class ScoreReading(Protocol):
    """The reading of some pairs. Only the thread that runs the model may use it."""

    pairs: Pairs
    n_read: int
    """Tokens that went through the model so far."""

    @property
    def done(self) -> bool:
        """Whether all pairs are read."""

    @property
    def between(self) -> bool:
        """Whether it holds no sequence, so that other texts may be read now."""

    def step(self, most: int) -> tuple[int, float]:
        """Read at most `most` more tokens; returns how many, and the seconds without compiling."""

    def close(self) -> None:
        """Close the sequence in use."""

    def scores(self) -> np.ndarray:
        """The scores, f64 [n], after all pairs are read. FormatError: they are not finite."""


class Reranker(Protocol):
    """Scores documents for a query."""

    n_ctx: int

    def pairs(
        self, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
    ) -> Pairs:
        """The tokens of the query with each document. UsageError: one does not fit, and truncate is False."""

    def begin(self, pairs: Pairs) -> ScoreReading:
        """Begins to read pairs."""

    def relevance(self, scores: np.ndarray) -> np.ndarray:
        """Scores as clients expect them, at most 1."""


class ByLogOdds:
    """The part of a `Reranker` whose scores are log odds."""

    def relevance(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities."""
        return relevance(scores)


def scores(
    reranker: Reranker, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
) -> np.ndarray:
    """The score of each document, f64 [n]: log odds that it answers the query.

    instruction  the demand on a document, for models that read one; None: as the model was trained
    """
    if not documents:
        return np.zeros(0)
    return read(reranker.begin(reranker.pairs(query, documents, instruction=instruction, truncate=truncate)))


def read(reading: ScoreReading, progress: TokenProgress | None = None) -> np.ndarray:
    """The scores of a reading that nothing else waits for. progress(tokens done, tokens in all)."""
    total = reading.pairs.n_processed
    try:
        while not reading.done:
            reading.step(DEFAULT_UBATCH)
            if progress:  # shared tokens may be read more than once
                progress(min(reading.n_read, total), total)
        return reading.scores()
    finally:
        reading.close()


def relevance(scores: np.ndarray) -> np.ndarray:
    """Scores from 0 to 1: the sigmoid of log odds."""
    return 0.5 * (1 + np.tanh(0.5 * scores))


def finite(scores: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    """The scores as an array. FormatError, with the model's name: one is NaN or infinite."""
    values = np.array(scores, np.float64)
    if not np.isfinite(values).all():
        raise FormatError(f"{name}: the score of a document is not finite: the weights are damaged.")
    return values
