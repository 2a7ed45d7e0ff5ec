"""Logprobs of the tokens of prompts, from the logits before them."""

from collections.abc import Sequence

import numpy as np

from hybrid.quant.ggml.errors import HybridError

from .drawing import TokenLogprobs, token_logprobs

MOST_BYTES = 32 << 20  # of logits in one step; their logprobs take less than 0.1 s, in which nobody can cancel


def most_rows(n_vocab: int) -> int:
    """Limit on the tokens of prompts whose logits a step returns."""
    return max(1, MOST_BYTES // (4 * n_vocab))


def logprobs_of(ids: Sequence[int], rows: np.ndarray, n_top: int) -> list[TokenLogprobs | None]:
    """Logprobs of tokens (of pictures: None), and of the n_top most likely tokens at each position.

    rows: the logits before each token, f32 [n, n_vocab]

    Raises HybridError if they hold NaN.
    """
    if np.isnan(rows).any():
        raise HybridError("the logits of the prompt hold NaN: the model's weights are damaged, or overflow.")
    return [token_logprobs(row, token, n_top) if token >= 0 else None for token, row in zip(ids, rows, strict=True)]
