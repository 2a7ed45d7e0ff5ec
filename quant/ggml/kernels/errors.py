"""Errors of decoded weights."""

import numpy as np

from .lanes import fast, load32, splat, to_f64
from .lanes_across import lower, total, upper

SHORT = 8  # vectors of 32 weights whose squares are added in f32, before f64 goes on


@fast
def with_squares(v, sums):
    """v f32x32, sums f32x8 -> sums plus the squares of four weights in each lane."""
    squares = v * v
    half = lower(squares) + upper(squares)
    return sums + (lower(half) + upper(half))


@fast
def _error_sums(x, y, rows, k, out):
    finite = True
    for row in range(rows):
        first = row * k
        whole = first + k // 32 * 32
        error = splat(np.float64(0))
        old, new = error, error
        for start in range(first, whole, 32 * SHORT):
            error32 = splat(np.float32(0))
            old32, new32 = error32, error32
            for i in range(start, min(start + 32 * SHORT, whole), 32):
                a, b = load32(x, i), load32(y, i)
                error32, old32, new32 = with_squares(b - a, error32), with_squares(a, old32), with_squares(b, new32)
            error, old, new = error + to_f64(error32), old + to_f64(old32), new + to_f64(new32)
        sums = total(error), total(old), total(new)
        for i in range(whole, first + k):
            a64, b64 = np.float64(x[i]), np.float64(y[i])
            sums = sums[0] + (b64 - a64) ** 2, sums[1] + a64 * a64, sums[2] + b64 * b64
        for i in range(3):
            out[row * 3 + i] = sums[i]
        finite &= abs(sums[0]) + sums[1] + sums[2] < np.inf
    return finite


def error_sums(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> bool:
    """x, y f32 [row, k] -> out f64 [row, 3]: per row the sums of the squares of y - x, of x and of y. All in C order.

    A row is added from left to right in eight chains, 256 weights in f32 and these sums in f64; the chains in pairs.
    False if a sum is infinite or NaN: then a value is, or its square overflows f32.
    """
    return bool(_error_sums(x.reshape(-1), y.reshape(-1), *x.shape, out.reshape(-1)))
