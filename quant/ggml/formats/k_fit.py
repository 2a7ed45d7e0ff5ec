"""What the encoders of the K-quants share: rows of 16 or 32 weights are fitted, then the scales of the rows of a block.

Importance f32 [n, 256] says how much the square of each weight's error matters (the mean square of its input);
without, ggml's reference makes its own weights. `..kernels` is imported when it is needed, for it imports numba.
"""

from dataclasses import dataclass

import numpy as np

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


def block_weights(x: np.ndarray, importance: np.ndarray, times: int) -> np.ndarray:
    """`row_weights` with `times` the mean square of a block of 256."""
    from ..kernels.columns import row_sums, row_weights

    return row_weights(x, importance, row_sums(x, squares=True) * F32(times / 256))


def fit_minima(
    x: np.ndarray, importance: np.ndarray | None, how: Minima
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x f32 [n, 256] -> d, dmin f32 [n] of f16; s, m i32 [n * 256 / k]; codes u8 [n * 256].

    Weights are about (d * s) * code - dmin * m; codes are to be chosen again for that.
    """
    from ..kernels.columns import row_sums
    from ..kernels.k_encoders import even
    from ..kernels.minimum import own_weights, with_minimum
    from ..kernels.symmetric import positive

    rows, groups = x.reshape(-1, how.k), 256 // how.k
    if importance is None:
        w = own_weights(rows)
        scales, minima, codes = with_minimum(rows, w, how.top, *how.search, absolute=how.k == 16)
        d, dmin = np.empty((2, len(x)), F32)
        s, m = np.empty((2, len(rows)), np.int32)
        even(scales, groups, how.levels, d, s)
        even(minima, groups, how.levels, dmin, m)
        return d, dmin, s, m, codes.reshape(-1)
    w = block_weights(x, importance, 1 if how.k == 16 else 2).reshape(rows.shape)
    scales, minima, codes = with_minimum(rows, w, how.top, -0.9, 0.05, 36)
    of_rows = row_sums(w).reshape(-1, groups)
    d, s8 = positive(scales.reshape(-1, groups), of_rows, how.levels)
    dmin, m8 = positive(minima.reshape(-1, groups), of_rows, how.levels)
    d, dmin = (v.astype("<f2").astype(F32) for v in (d, dmin))
    s, m = (q.reshape(-1).astype(np.int32) for q in (s8, m8))
    return d, dmin, s, m, codes.reshape(-1)
