"""Fits points of IQ1's code book to rows of weights: levels -1, 0, 1 shifted up or down by an eighth.

The weights of a row are sorted by size and cut into three runs, one per level. All cuts and both shifts (for IQ1_M of
each half of the row) are tried; then codes without a point take the neighbour with the smallest weighted error. The
arithmetic is ggml's (ggml-quants.c: quantize_row_iq1_s_impl, _iq1_m_impl) in its order, so that results are equal to
the bit. Eight cuts are evaluated at a time; if one of them may be better, all eight are evaluated again in order.
"""

import numpy as np

from ..types import GGMLType
from .codebooks import codebook
from .lanes import N, fast, load, splat
from .lanes_across import any_set
from .points import LARGEST, best_neighbour

SHIFT = np.float32(0.125)


@fast
def _sort(x, row, k, order):
    """order [k]: the weights of the row by size, equal ones in their order."""
    for i in range(k):
        j = i
        while j > 0 and x[row * k + order[j - 1]] > x[row * k + i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@fast
def _sums_of_cut(sum_x, sum_w, k, i, j, shift):
    """The sums of weight * q * x and of weight * q * q for the cut into levels at i and j."""
    low, middle, high = np.float32(-1) + shift, shift, np.float32(1) + shift
    qx = (sum_x[i] - sum_x[0]) * low + (sum_x[j] - sum_x[i]) * middle + (sum_x[k] - sum_x[j]) * high
    q2 = (
        (sum_w[i] - sum_w[0]) * low * low
        + (sum_w[j] - sum_w[i]) * middle * middle
        + (sum_w[k] - sum_w[j]) * high * high
    )
    return qx, q2


@fast
def _cut_may_be_better(sum_x, sum_w, k, i, j, shift, best):
    """`_sums_of_cut` at j to j + 7: whether one is better than `best`."""
    low, middle, high = splat(np.float32(-1) + shift), splat(shift), splat(np.float32(1) + shift)
    xs, ws = load(sum_x, j), load(sum_w, j)
    qx = splat(sum_x[i] - sum_x[0]) * low + (xs - splat(sum_x[i])) * middle + (splat(sum_x[k]) - xs) * high
    q2 = splat(sum_w[i] - sum_w[0]) * low * low + (ws - splat(sum_w[i])) * middle * middle
    q2 = q2 + (splat(sum_w[k]) - ws) * high * high
    return any_set((q2 > splat(np.float32(0))) & (qx * qx > splat(best) * q2))


@fast
def _cut_one(x, w, row, k, order, sum_x, sum_w):
    """The best cut with one shift for the row -> i, j (-1: none), which shift (0 up, 1 down), scale."""
    for t in range(k):
        i = row * k + order[t]
        sum_x[t + 1] = sum_x[t] + w[i] * x[i]
        sum_w[t + 1] = sum_w[t] + w[i]
    best, scale, first, second, shift = -LARGEST, np.float32(0), -1, -1, 0
    for i in range(k + 1):
        for j in range(i, k + 1, N):
            if not (
                _cut_may_be_better(sum_x, sum_w, k, i, j, SHIFT, best)
                or _cut_may_be_better(sum_x, sum_w, k, i, j, -SHIFT, best)
            ):
                continue
            for jj in range(j, min(j + N, k + 1)):
                for down in range(2):
                    qx, q2 = _sums_of_cut(sum_x, sum_w, k, i, jj, -SHIFT if down else SHIFT)
                    if q2 > 0 and qx * qx > best * q2:
                        scale = qx / q2
                        best = scale * qx
                        first, second, shift = i, jj, down
    return first, second, shift, scale


@fast
def _sums_of_half(sum_x, sum_w, at, k, i, j, shift):
    """As `_sums_of_cut`, for the half whose sums begin at `at`: all at the highest level, minus the lower ones."""
    low, middle, high = np.float32(-1) + shift, shift, np.float32(1) + shift
    qx = sum_x[at + k] * high - (sum_x[at + i] + sum_x[at + j])
    q2 = sum_w[at + k] * high * high + sum_w[at + i] * (low * low - middle * middle)
    return qx, q2 + sum_w[at + j] * (middle * middle - high * high)


@fast
def _halves(sum_x, sum_w, at, k, i, j, shift):
    """`_sums_of_half` at j to j + 7."""
    low, middle, high = np.float32(-1) + shift, shift, np.float32(1) + shift
    qx = splat(sum_x[at + k] * high) - (splat(sum_x[at + i]) + load(sum_x, at + j))
    q2 = splat(sum_w[at + k] * high * high + sum_w[at + i] * (low * low - middle * middle))
    return qx, q2 + load(sum_w, at + j) * splat(middle * middle - high * high)


@fast
def _cut_two(x, w, row, k, order, sum_x, sum_w):
    """The best cut with a shift for each half -> i, j (-1: none), shifts (2 * first + second, 1 is down), scale."""
    other = k + 1 + N
    for t in range(k):
        i = row * k + order[t]
        for h in range(2):
            mine = (order[t] >= k // 2) == (h == 1)
            sum_x[h * other + t + 1] = sum_x[h * other + t] + w[i] * x[i] if mine else sum_x[h * other + t]
            sum_w[h * other + t + 1] = sum_w[h * other + t] + w[i] if mine else sum_w[h * other + t]
    best, scale, first, second, shifts = -LARGEST, np.float32(0), -1, -1, 0
    zero = splat(np.float32(0))
    for i in range(k + 1):
        for j in range(i, k + 1, N):
            ax, a2 = _halves(sum_x, sum_w, 0, k, i, j, SHIFT)
            bx, b2 = _halves(sum_x, sum_w, 0, k, i, j, -SHIFT)
            cx, c2 = _halves(sum_x, sum_w, other, k, i, j, SHIFT)
            dx, d2 = _halves(sum_x, sum_w, other, k, i, j, -SHIFT)
            limit = splat(best)
            if not (
                any_set((a2 + c2 > zero) & ((ax + cx) * (ax + cx) > limit * (a2 + c2)))
                or any_set((a2 + d2 > zero) & ((ax + dx) * (ax + dx) > limit * (a2 + d2)))
                or any_set((b2 + c2 > zero) & ((bx + cx) * (bx + cx) > limit * (b2 + c2)))
                or any_set((b2 + d2 > zero) & ((bx + dx) * (bx + dx) > limit * (b2 + d2)))
            ):
                continue
            for jj in range(j, min(j + N, k + 1)):
                for both in range(4):
                    ux, u2 = _sums_of_half(sum_x, sum_w, 0, k, i, jj, -SHIFT if both >= 2 else SHIFT)
                    vx, v2 = _sums_of_half(sum_x, sum_w, other, k, i, jj, -SHIFT if both % 2 else SHIFT)
                    qx, q2 = ux + vx, u2 + v2
                    if q2 > 0 and qx * qx > best * q2:
                        scale = qx / q2
                        best = scale * qx
                        first, second, shifts = i, jj, both
    return first, second, shifts, scale


@fast
def _search(x, w, rows, k, least, halves, where, first, near, near_codes, values, codes, scales, shifts, numbers):  # noqa: C901  one loop nest
    order, chosen = np.empty(k, np.int64), np.empty(k, np.int64)
    # room for a register that begins with the last sum
    sum_x, sum_w = np.zeros(2 * (k + 1 + N), np.float32), np.zeros(2 * (k + 1 + N), np.float32)
    groups = k // 8
    points = np.empty(groups, np.int64)
    zero = np.float32(0)
    for row in range(rows):
        scales[row] = zero
        shifts[row] = 0
        most = zero
        for i in range(k):
            most = max(most, abs(x[row * k + i]))
        if not most >= least:
            continue
        _sort(x, row, k, order)
        if halves:
            a, b, shift, scale = _cut_two(x, w, row, k, order, sum_x, sum_w)
        else:
            a, b, shift, scale = _cut_one(x, w, row, k, order, sum_x, sum_w)
        if a < 0:
            continue
        for t in range(k):
            chosen[order[t]] = 0 if t < a else 1 if t < b else 2
        if scale < zero:
            for i in range(k):
                chosen[i] = 2 - chosen[i]
            scale = -scale
            shift = (3 if halves else 1) - shift
        missed = False
        for g in range(groups):
            number = 0
            for i in range(8):
                number = number * 3 + chosen[g * 8 + 7 - i]
            point = where[number]
            if point < 0:
                missed = True
                s, e = first[-1 - point], first[-point]
                n = best_neighbour(values, near_codes, s, e, 8, x, w, row * k + g * 8, scale, _up(halves, shift, g))
                point = near[s * N + n]
            points[g] = point
            numbers[row * groups + g] = point
        if missed:
            qx, q2 = zero, zero
            for g in range(groups):
                up = _up(halves, shift, g)
                for i in range(8):
                    at = row * k + g * 8 + i
                    q = codes[points[g] * 8 + i] - np.float32(1) + up
                    qx += w[at] * q * x[at]
                    q2 += w[at] * q * q
            if qx > zero and q2 > zero:
                scale = qx / q2
        scales[row] = scale
        shifts[row] = shift


@fast
def _up(halves, shift, g):
    """The shift of the 8 weights g."""
    down = (shift >> 1 if g == 0 else shift & 1) if halves else shift
    return -SHIFT if down else SHIFT


@fast
def _fit_scales(x, w, q, rows, k, out):
    """out f32 [rows, 2]: per row the sums of w * q * x and of w * q * q."""
    for row in range(rows):
        qx, q2 = np.float32(0), np.float32(0)
        for i in range(row * k, row * k + k):
            qx += w[i] * q[i] * x[i]
            q2 += w[i] * q[i] * q[i]
        out[row * 2], out[row * 2 + 1] = qx, q2


def fit_shifted(
    x: np.ndarray, w: np.ndarray, k: int, least: float, *, halves: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w f32 [n, 256] -> scales f32 [n, 256 / k], shifts u8 the same, numbers of points u16 [n, 32].

    Shifts: 1 is down; with `halves` of 8 weights each, 2 * first + second. least: rows whose largest weight is below it
    are zeros.
    """
    assert x.dtype == w.dtype == np.float32 and x.flags.c_contiguous and w.flags.c_contiguous
    book = codebook(GGMLType.IQ1_S)
    scales, numbers = np.empty((len(x), 256 // k), np.float32), np.zeros((len(x), 32), np.uint16)
    shifts = np.empty(scales.shape, np.uint8)
    _search(
        x.reshape(-1), w.reshape(-1), scales.size, k, np.float32(least), halves, book.where, book.first, book.near,
        book.near_codes, book.values, book.codes, scales.reshape(-1), shifts.reshape(-1), numbers.reshape(-1),
    )  # fmt: skip
    return scales, shifts, numbers


def best_scales(x: np.ndarray, w: np.ndarray, q: np.ndarray) -> np.ndarray:
    """x, w, q f32 [n, 256] -> d f32 [n] with the smallest weighted error of x = d * q; NaN if all q are 0."""
    sums = np.empty((len(x), 2), np.float32)
    _fit_scales(x.reshape(-1), w.reshape(-1), np.ascontiguousarray(q).reshape(-1), *x.shape, sums.reshape(-1))
    best: np.ndarray = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.float32(np.nan))
    return best
