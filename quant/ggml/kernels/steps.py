"""Scales for x = scale * (one of 16 unequal steps), and the steps: IQ4_NL and IQ4_XS.

ggml's quantize_row_iq4_nl_impl; shapes as in `columns`.
"""

import numpy as np

from .columns import TINY, columns, first_largest, flat, put_lanes
from .lanes import N, fast, load, select, splat


@fast
def _step_sums(xs, ws, k, inverse, values, middles):
    sumqx = splat(np.float32(0))
    sumq2 = sumqx
    for i in range(k):
        x = load(xs, i * N)
        y = inverse * x
        q = splat(values[0])
        for c in range(15):
            q = select(y >= splat(middles[c]), splat(values[c + 1]), q)
        weighted = load(ws, i * N) * q
        sumqx = sumqx + weighted * x
        sumq2 = sumq2 + weighted * q
    return sumqx, sumq2


@fast
def _steps(x, w, rows, k, values, middles, tries, scales):
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one = splat(np.float32(0)), splat(np.float32(1))
    first = splat(np.float32(values[0]))
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        columns(w, row, rows, k, ws)
        largest, size = first_largest(xs, k)
        sumqx, sumq2 = _step_sums(xs, ws, k, one / ((zero - largest) / first), values, middles)
        scale = select(sumq2 > zero, sumqx / sumq2, zero)
        best = scale * sumqx
        for t in range(-tries, tries + 1):
            inverse = (splat(np.float32(t)) + first) / largest
            sumqx, sumq2 = _step_sums(xs, ws, k, inverse, values, middles)
            better = (sumq2 > zero) & (sumqx * sumqx > best * sumq2)
            scale = select(better, sumqx / sumq2, scale)
            best = select(better, scale * sumqx, best)
        put_lanes(select(size < splat(TINY), zero, scale), row, rows, scales)


@fast
def _nearest_steps(x, rows, k, inverse, middles, codes):
    for row in range(rows):
        factor = inverse[row]
        for i in range(row * k, row * k + k):
            y = factor * x[i]
            code = 0
            for c in range(15):
                code += y >= middles[c]
            codes[i] = code


def steps(x: np.ndarray, w: np.ndarray, values: np.ndarray, tries: int) -> np.ndarray:
    """Scales f32 [row] for x = scale * (one of 16 increasing values). 2 * tries + 2 tries."""
    values = values.astype(np.float32)
    scales = np.empty(len(x), np.float32)
    _steps(flat(x), flat(w), *x.shape, values, (values[1:] + values[:-1]) / 2, tries, scales)
    return scales


def nearest_steps(x: np.ndarray, inverse: np.ndarray, values: np.ndarray) -> np.ndarray:
    """u8 [row, k]: which of 16 increasing values is nearest to x times the row's `inverse`; in the middle the upper
    one."""
    values = values.astype(np.float32)
    codes = np.empty(x.shape, np.uint8)
    _nearest_steps(flat(x), *x.shape, flat(inverse), (values[1:] + values[:-1]) / 2, codes.reshape(-1))
    return codes
