"""Decays of lightning attention, as a tensor of every layer that has it: no checkpoint contains them."""

import numpy as np

from .family import Row

MAX_RATE = 8.0  # -log2 of the last head's slope


def slopes(n_head: int) -> np.ndarray:
    """ALiBi's slopes, f64 [head]; of a number of heads that is no power of two, the next lower power's, and after them
    every other one of the next higher power's. arXiv:2108.12409"""
    low = 1 << (n_head.bit_length() - 1)
    of_low, of_high = (2.0 ** (-MAX_RATE * np.arange(1, n + 1) / n) for n in (low, 2 * low))
    return np.concatenate([of_low, of_high[::2][: n_head - low]])


def decay_row(blk: str, rates: np.ndarray) -> Row:
    """rates: negative logarithms of a state's decay per token, [head]."""
    return Row(blk + "ssm_a", rates.shape, (), constant=-rates.astype(np.float32))
