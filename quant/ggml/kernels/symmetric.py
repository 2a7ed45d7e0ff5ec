"""Codes and scales for x = scale * code: the searches behind Q3_K, Q6_K, Q4_0, Q5_0 and the scales of scales.

ggml's make_qx_quants, make_q3_quants and make_qp_quants; shapes as in `columns`.
"""

import numpy as np

from .columns import TINY, clamped, columns, first_largest, flat, put, put_lanes
from .lanes import N, fast, load, magnitude, nearest, select, splat, store
from .lanes_across import any_set

LOWEST = np.float32(-3e38)  # no bound


@fast
def _symmetric_sums(xs, ws, k, iscale, low, high):
    sumlx = splat(np.float32(0))
    suml2 = sumlx
    for i in range(k):
        x, w = load(xs, i * N), load(ws, i * N)
        code = clamped(nearest(iscale * x), low, high)
        sumlx = sumlx + w * x * code
        suml2 = suml2 + w * code * code
    return sumlx, suml2


@fast
def _symmetric(x, w, rows, k, half, factors, scales, codes):
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, low, high = splat(np.float32(0)), splat(np.float32(-half)), splat(np.float32(half - 1))
    offset = splat(np.float32(half))
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        columns(w, row, rows, k, ws)
        largest, size = first_largest(xs, k)
        chosen = low / largest
        sumlx, suml2 = _symmetric_sums(xs, ws, k, chosen, low, high)
        scale = select(suml2 == zero, zero, sumlx / suml2)
        best = scale * sumlx
        for t in range(len(factors)):
            iscale = splat(factors[t]) / largest
            sumlx, suml2 = _symmetric_sums(xs, ws, k, iscale, low, high)
            better = (suml2 > zero) & (sumlx * sumlx > best * suml2)
            if any_set(better):
                scale = select(better, sumlx / suml2, scale)
                best = select(better, scale * sumlx, best)
                chosen = select(better, iscale, chosen)
        empty = size < splat(TINY)
        for i in range(k):
            code = offset + clamped(nearest(chosen * load(xs, i * N)), low, high)
            store(ws, i * N, select(empty, zero, code))
        put(ws, row, rows, k, codes)
        put_lanes(select(empty, zero, scale), row, rows, scales)


@fast
def _byte(code):
    """A code as make_qp_quants stores it: a negative one (only IQ2_XXS asks for it) wraps around."""
    return select(code < splat(np.float32(0)), code + splat(np.float32(256)), code)


@fast
def _moved_codes(xs, ws, qs, k, sumlx, suml2, low, high, by_rest):
    """Five rounds in which each code moves to its best value given the others' sums. by_rest: the others' sum of
    squares must be positive, instead of the new sum (make_qp_quants against make_q3_quants)."""
    zero = splat(np.float32(0))
    for _ in range(5):
        moved = False
        for i in range(k):
            v, weight, code = load(xs, i * N), load(ws, i * N), load(qs, i * N)
            slx = sumlx - weight * v * code
            sl2 = suml2 - weight * code * code
            new = clamped(nearest(v * sl2 / slx), low, high)
            new_slx = slx + weight * v * new
            new_sl2 = sl2 + weight * new * new
            changed = (slx > zero) & ((sl2 if by_rest else new_sl2) > zero)
            changed = changed & (new_slx * new_slx * suml2 > sumlx * sumlx * new_sl2)
            # the same code again is not a change, though its sums may round otherwise
            changed = changed & (magnitude(new - code) > zero)
            if any_set(changed):
                moved = True
                store(qs, i * N, select(changed, _byte(new) if by_rest else new, code))
                sumlx = select(changed, new_slx, sumlx)
                suml2 = select(changed, new_sl2, suml2)
        if not moved:
            break
    return sumlx, suml2


@fast
def _symmetric_refined(x, rows, k, half, scales, codes):
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    qs = np.empty(k * N, np.float32)
    zero, low, high = splat(np.float32(0)), splat(np.float32(-half)), splat(np.float32(half - 1))
    offset = splat(np.float32(half))
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        largest, size = first_largest(xs, k)
        iscale = low / largest
        sumlx = zero
        suml2 = zero
        for i in range(k):
            v = load(xs, i * N)
            code = clamped(nearest(iscale * v), low, high)
            store(qs, i * N, code)
            weight = v * v
            store(ws, i * N, weight)
            sumlx = sumlx + weight * v * code
            suml2 = suml2 + weight * code * code
        sumlx, suml2 = _moved_codes(xs, ws, qs, k, sumlx, suml2, low, high, False)
        empty = size < splat(TINY)
        for i in range(k):
            store(qs, i * N, select(empty, zero, load(qs, i * N) + offset))
        put(qs, row, rows, k, codes)
        scale = select(suml2 > zero, sumlx / suml2, zero)
        put_lanes(select(empty, zero, scale), row, rows, scales)


@fast
def _positive(x, w, rows, k, top, factors, scales, codes):
    xs, ws, qs = np.empty(k * N, np.float32), np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one, high = splat(np.float32(0)), splat(np.float32(1)), splat(np.float32(top))
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        columns(w, row, rows, k, ws)
        most = zero
        for i in range(k):
            v = load(xs, i * N)
            most = select(most > v, most, v)
        chosen = high / most
        best = zero
        scale = one / chosen
        for i in range(k):
            v = load(xs, i * N)
            error = v - scale * _byte(nearest(chosen * v))
            best = best + load(ws, i * N) * error * error
        for t in range(len(factors)):
            iscale = splat(factors[t]) / most
            scale = one / iscale
            total = zero
            for i in range(k):
                v = load(xs, i * N)
                code = nearest(iscale * v)
                error = v - scale * select(code > high, high, code)
                total = total + load(ws, i * N) * error * error
            better = total < best
            best = select(better, total, best)
            chosen = select(better, iscale, chosen)
        sumlx = zero
        suml2 = zero
        for i in range(k):
            v, weight = load(xs, i * N), load(ws, i * N)
            code = nearest(chosen * v)
            code = select(code > high, high, code)
            store(qs, i * N, _byte(code))
            sumlx = sumlx + weight * v * code
            suml2 = suml2 + weight * code * code
        sumlx, suml2 = _moved_codes(xs, ws, qs, k, sumlx, suml2, splat(LOWEST), high, True)
        empty = most < splat(TINY)
        for i in range(k):
            store(qs, i * N, select(empty, zero, load(qs, i * N)))
        put(qs, row, rows, k, codes)
        scale = select(suml2 > zero, sumlx / suml2, zero)
        put_lanes(select(empty, zero, scale), row, rows, scales)


def symmetric(x: np.ndarray, w: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales f32 [row] and codes for x = scale * (code - half), 0 <= code < 2 * half. 19 tries."""
    tries = [i for i in range(-9, 10) if i]
    factors = -(np.float32(half) + np.float32(0.1) * np.array(tries, np.float32))
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _symmetric(flat(x), flat(w), *x.shape, half, factors, scales, codes.reshape(-1))
    return scales, codes


def symmetric_refined(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """As `symmetric` with w = x * x: one try, then up to five rounds that move single codes while that helps."""
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _symmetric_refined(flat(x), *x.shape, half, scales, codes.reshape(-1))
    return scales, codes


def positive(x: np.ndarray, w: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales f32 [row] and codes for x = scale * code, 0 <= code <= top. Nine tries, then five rounds of moves."""
    tries = [i for i in range(-4, 5) if i]
    factors = np.float32(0.1) * np.array(tries, np.float32) + np.float32(top)
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _positive(flat(x), flat(w), *x.shape, top, factors, scales, codes.reshape(-1))
    return scales, codes
