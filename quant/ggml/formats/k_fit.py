"""What the encoders of the K-quants share: rows of 16 or 32 weights are fitted, then the scales of the rows of a block.

Importance f32 [n, 256] says how much the square of each weight's error matters (the mean square of what it is
multiplied by); without, ggml's reference takes weights of its own. `..kernels` is imported when it is needed, for it
imports numba.
"""

from dataclasses import dataclass

import numpy as np

from .largest import largest

F32 = np.float32


@dataclass(frozen=True)
class Minima:
    """How ggml fits rows of `k` weights as scale * code - minimum, code <= top, scales and minima of <= levels.

    `search` without importance: see `with_minimum`.
    """

    k: int
    top: int
    levels: int
    search: tuple[float, float, int]


def row_weights(x: np.ndarray, importance: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
    """importance * sqrt(mean_square + x^2): large weights count more. mean_square f32 [n, 1]."""
    w = x * x
    w += mean_square
    np.sqrt(w, out=w)
    w *= importance
    return w


def block_weights(x: np.ndarray, importance: np.ndarray, times: int) -> np.ndarray:
    """`row_weights` with `times` the mean square of a block of 256."""
    from ..kernels.rows import row_sums

    return row_weights(x, importance, (row_sums(x, squares=True) * F32(times / 256))[:, None])


def fit_minima(
    x: np.ndarray, importance: np.ndarray | None, how: Minima
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x f32 [n, 256] -> d, dmin f16 [n]; s, m u8 [n, 256 / k]; codes u8 [n, 256]. (d * s) * code - dmin * m."""
    from ..kernels.rows import codes_of, positive, row_sums, with_minimum

    rows = x.reshape(-1, how.k)
    if importance is None:
        w = np.abs(rows)
        if how.k == 32:
            w += np.sqrt(row_sums(rows, squares=True) / F32(32))[:, None]
        found = with_minimum(rows, w, how.top, *how.search, absolute=how.k == 16)
        scales, minima, codes = found[0].reshape(len(x), -1), found[1].reshape(len(x), -1), found[2]
        (d, s), (dmin, m) = _even(scales, how.levels), _even(minima, how.levels)
    else:
        w = block_weights(x, importance, 1 if how.k == 16 else 2).reshape(rows.shape)
        found = with_minimum(rows, w, how.top, -0.9, 0.05, 36)
        scales, minima, codes = found[0].reshape(len(x), -1), found[1].reshape(len(x), -1), found[2]
        of_rows = row_sums(w).reshape(scales.shape)
        (d, s), (dmin, m) = positive(scales, of_rows, how.levels), positive(minima, of_rows, how.levels)
    d16, dmin16 = d.astype("<f2"), dmin.astype("<f2")
    scale, offset = d16.astype(F32)[:, None] * s, dmin16.astype(F32)[:, None] * m
    codes_of(rows, scale.reshape(-1), 0, how.top, codes, offset.reshape(-1))
    return d16, dmin16, s, m, codes.reshape(x.shape)


def _even(values: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """values f32 [n, k] -> largest / levels f32 [n] and the nearest multiples of it, u8 [n, k] <= levels."""
    most = np.maximum(values.max(axis=1), 0)
    inverse = np.where(most > 0, F32(levels) / most, 0).astype(F32)
    # through i32, so that a number below zero wraps around as in C
    q = np.rint(inverse[:, None] * values).astype(np.int32).astype(np.uint8)
    return most / F32(levels), np.minimum(q, levels)


def even_signed(values: np.ndarray, low: int) -> tuple[np.ndarray, np.ndarray]:
    """values f32 [n, k] -> d f16 [n] and multiples of it in low..-low - 1, i32 [n, k]: the largest becomes `low`."""
    most = largest(values)
    inverse = F32(low) / most
    d = (F32(1) / inverse).astype("<f2")
    q = np.clip(np.rint(inverse[:, None] * values), low, -low - 1)
    q[most == 0] = low
    d[most == 0] = 0
    return d, q.astype(np.int32)
