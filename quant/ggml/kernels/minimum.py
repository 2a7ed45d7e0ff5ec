"""Codes, scales and minima for x = scale * code - minimum: the search behind Q2_K, Q4_K, Q5_K, Q4_1 and Q5_1.

ggml's make_qkx2_quants and make_qkx3_quants; shapes as in `columns`.
"""

import numpy as np

from .columns import clamped, columns, flat, put, put_lanes
from .lanes import N, fast, load, magnitude, nearest, root, select, splat, store
from .lanes_across import any_set


@fast
def _with_minimum(x, w, rows, k, top, factors, absolute, scales, minima, codes):
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    qs, tried = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one, high = splat(np.float32(0)), splat(np.float32(1)), splat(np.float32(top))
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        columns(w, row, rows, k, ws)
        least = load(xs, 0)
        most = least
        sum_w = load(ws, 0)
        sum_x = sum_w * least
        for i in range(1, k):
            v, weight = load(xs, i * N), load(ws, i * N)
            least = select(v < least, v, least)
            most = select(v > most, v, most)
            sum_w = sum_w + weight
            sum_x = sum_x + weight * v
        least = select(least > zero, zero, least)
        flat, flat_least = most == least, least
        iscale = high / (most - least)
        scale = one / iscale
        best = zero
        for i in range(k):
            v, weight = load(xs, i * N), load(ws, i * N)
            code = clamped(nearest(iscale * (v - least)), zero, high)
            store(qs, i * N, code)
            error = scale * code + least - v
            best = best + weight * (magnitude(error) if absolute else error * error)
        for t in range(len(factors)):
            iscale = splat(factors[t]) / (most - least)
            sum_l = zero
            sum_l2 = zero
            sum_xl = zero
            for i in range(k):
                v, weight = load(xs, i * N), load(ws, i * N)
                code = clamped(nearest(iscale * (v - least)), zero, high)
                store(tried, i * N, code)
                weighted = weight * code
                sum_l = sum_l + weighted
                sum_l2 = sum_l2 + weighted * code
                sum_xl = sum_xl + weighted * v
            det = sum_w * sum_l2 - sum_l * sum_l
            new_scale = (sum_w * sum_xl - sum_x * sum_l) / det
            new_least = (sum_l2 * sum_x - sum_l * sum_xl) / det
            above = new_least > zero
            new_scale = select(above, sum_xl / sum_l2, new_scale)
            new_least = select(above, zero, new_least)
            total = zero
            for i in range(k):
                error = new_scale * load(tried, i * N) + new_least - load(xs, i * N)
                total = total + load(ws, i * N) * (magnitude(error) if absolute else error * error)
            better = (det > zero) & (total < best)
            if any_set(better):
                for i in range(k):
                    store(qs, i * N, select(better, load(tried, i * N), load(qs, i * N)))
                best = select(better, total, best)
                scale = select(better, new_scale, scale)
                # the next tries begin from this minimum
                least = select(better, new_least, least)
        for i in range(k):
            store(qs, i * N, select(flat, zero, load(qs, i * N)))
        put(qs, row, rows, k, codes)
        put_lanes(select(flat, zero, scale), row, rows, scales)
        # times -1, not from 0: the minimum of a row without any is -0, which Q4_1 stores
        put_lanes(splat(np.float32(-1)) * select(flat, flat_least, least), row, rows, minima)


def with_minimum(
    x: np.ndarray, w: np.ndarray, top: int, first: float, step: float, tries: int, *, absolute: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales and minima f32 [row] and codes for x = scale * code - minimum, 0 <= code <= top, minimum >= 0.

    Tries code ranges of top + first + i * step, i = 0..tries, each with the best line through its codes. `absolute`:
    weight magnitudes of errors, not squares.
    """
    factors = np.float32(first) + np.float32(step) * np.arange(tries + 1, dtype=np.float32) + np.float32(top)
    scales, minima = np.empty((2, len(x)), np.float32)
    codes = np.empty(x.shape, np.uint8)
    _with_minimum(flat(x), flat(w), *x.shape, top, factors, absolute, scales, minima, codes.reshape(-1))
    return scales, minima, codes


@fast
def _own_weights(x, k, out):
    rows = len(x) // k
    xs = np.empty(k * N, np.float32)
    sizes = np.zeros(N, np.float32)
    for row in range(0, rows, N):
        if k == 32:
            columns(x, row, rows, k, xs)
            squares = splat(np.float32(0))
            for i in range(k):
                v = load(xs, i * N)
                squares = squares + v * v
            store(sizes, 0, root(squares / np.float32(32)))
        for j in range(min(N, rows - row)):
            for i in range((row + j) * k, (row + j + 1) * k, N):
                store(out, i, magnitude(load(x, i)) + sizes[j])


def own_weights(x: np.ndarray) -> np.ndarray:
    """ggml's weights without importance, f32 [row, k]: |x|, in rows of 32 plus the root of their mean square."""
    out = np.empty_like(x)
    _own_weights(flat(x), x.shape[1], out.reshape(-1))
    return out
