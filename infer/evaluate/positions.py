"""Perplexity by the number of preceding tokens: how much a model gains from long contexts."""

from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from .windows import WindowSums


@dataclass(frozen=True)
class PositionBucket:
    """Perplexity of the tokens with first .. end - 1 tokens before them, over all chunks."""

    first: int
    end: int
    ppl: float
    stderr: float
    """Standard error of `ppl`, as in `PerplexityResult`."""
    mean_nll: float
    """Nats per token."""
    n_scored: int


class Positions:
    """Sums over chunks of n_ctx tokens by position in the chunk, f64. The widths of n_buckets buckets differ by at most
    1."""

    def __init__(self, n_ctx: int, n_buckets: int) -> None:
        if not 1 <= n_buckets < n_ctx:
            raise UsageError(f"{n_buckets} buckets: chunks of {n_ctx} tokens can have 1 to {n_ctx - 1}.")
        self._sums = np.zeros((2, n_ctx - 1))
        self._edges = [i * (n_ctx - 1) // n_buckets for i in range(n_buckets + 1)]
        self._n_chunks = 0

    def add(self, nll: np.ndarray) -> None:
        """Add a chunk: negative log-likelihoods of all its tokens but the first, f64 [n_ctx - 1]."""
        self._sums += nll, nll * nll
        self._n_chunks += 1

    def buckets(self) -> tuple[PositionBucket, ...]:
        """All buckets, in order. None of them is empty."""
        found = []
        for begin, end in zip(self._edges[:-1], self._edges[1:], strict=True):
            total, squares = self._sums[:, begin:end].sum(axis=1).tolist()
            n = (end - begin) * self._n_chunks
            of = WindowSums(total, squares, n)
            found.append(PositionBucket(begin + 1, end + 1, of.ppl, of.stderr, of.mean_nll, n))
        return tuple(found)
