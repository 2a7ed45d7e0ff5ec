"""Fits points of a code book to rows of weights: the searches of IQ2 and IQ3.

A row is the 16 or 32 weights that share a scale; every 8 or 4 of them take one point. Tries differ in the scale: they
use the nearest codes for it or, where these have no point, the neighbour with the smallest weighted error; then the
best scale for these points. The arithmetic is ggml's (ggml-quants.c: quantize_row_iq2_xxs_impl, _iq2_xs_impl,
_iq2_s_impl, _iq3_xxs_impl, _iq3_s_impl) in its order, so that results are equal to the bit. Eight tries and eight
neighbours are processed at a time, in the lanes of a register.
"""

from dataclasses import dataclass

import numpy as np

from .codebooks import Codebook
from .lanes import N, fast, load, nearest, piece, select, splat, store, widened
from .lanes_across import first_set, least, permuted

_LANES = np.arange(N, dtype=np.float32)
LARGEST = np.float32(np.finfo(np.float32).max)
ALL, OFF_GRID, ALL_IF_OFF_GRID = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Search:
    """Parameters of a format's search.

    k: weights in a row. even: an even number of minus signs in every 8 weights. factors f32: the tries. least: rows
    whose largest weight is below it are zeros. refit: the points to choose again with the best scale at the end: all,
    only points not found at once, or all if there is such a point.
    """

    k: int
    even: bool
    factors: np.ndarray
    least: float
    refit: int


def tries(top: int, count: int, step: float) -> np.ndarray:
    """top + i * step for i from -count to count, in f32 as C adds it up."""
    return np.float32(top) + np.arange(-count, count + 1).astype(np.float32) * np.float32(step)


@piece
def nearest_code(x, inverse, top):
    """The code, 0..top, of the level 2 * code + 1 next to x * inverse; 0 for NaN."""
    code = nearest(splat(np.float32(0.5)) * (inverse * x - splat(np.float32(1))))
    code = select(code > splat(np.float32(0)), code, splat(np.float32(0)))
    return select(code < top, code, top)


@piece
def best_neighbour(values, near, first, last, dims, xs, ws, at, scale, shift):
    """Number, from the first, of the neighbour in sets first..last - 1 with the smallest error in weights at, at + 1...

    The errors of all levels of each weight are computed once, and looked up by a neighbour's codes.
    """
    size, levels = splat(scale), load(values, 0) + splat(shift)
    # written out, so that the errors stay in registers
    a, b = _errors(size, levels, xs[at], ws[at]), _errors(size, levels, xs[at + 1], ws[at + 1])
    c, d = _errors(size, levels, xs[at + 2], ws[at + 2]), _errors(size, levels, xs[at + 3], ws[at + 3])
    e, f, g, h = a, b, c, d
    if dims == 4:
        best = _of_four(a, b, c, d, near, first)
    else:
        e, f = _errors(size, levels, xs[at + 4], ws[at + 4]), _errors(size, levels, xs[at + 5], ws[at + 5])
        g, h = _errors(size, levels, xs[at + 6], ws[at + 6]), _errors(size, levels, xs[at + 7], ws[at + 7])
        best = _of_eight(a, b, c, d, e, f, g, h, near, first)
    if last - first == 1:
        return first_set(best == splat(least(best)))
    number = splat(np.float32(0))
    for s in range(first + 1, last):
        error = _of_four(a, b, c, d, near, s) if dims == 4 else _of_eight(a, b, c, d, e, f, g, h, near, s)
        less = error < best
        best = select(less, error, best)
        number = select(less, splat(np.float32(s - first)), number)
    # of equal ones the first
    numbers = number * splat(np.float32(N)) + load(_LANES, 0)
    return np.int64(least(select(best == splat(least(best)), numbers, splat(LARGEST))))


@piece
def _of_four(a, b, c, d, near, s):
    """The errors of the neighbours in set s; a, b, c, d: the errors of four weights by level."""
    error = _looked_up(a, near, s * 4) + _looked_up(b, near, s * 4 + 1) + _looked_up(c, near, s * 4 + 2)
    return error + _looked_up(d, near, s * 4 + 3)


@piece
def _of_eight(a, b, c, d, e, f, g, h, near, s):
    error = _looked_up(a, near, s * 8) + _looked_up(b, near, s * 8 + 1) + _looked_up(c, near, s * 8 + 2)
    error = error + _looked_up(d, near, s * 8 + 3) + _looked_up(e, near, s * 8 + 4)
    return error + _looked_up(f, near, s * 8 + 5) + _looked_up(g, near, s * 8 + 6) + _looked_up(h, near, s * 8 + 7)


@piece
def _errors(size, levels, x, w):
    """w * (size * level - x)^2 of each level."""
    away = size * levels - splat(x)
    return splat(w) * away * away


@piece
def _looked_up(errors, codes, i):
    return permuted(errors, widened(load(codes, i * N)))


@fast
def magnitudes(x, w, rows, even, sizes, signs):
    """x, w f32 [rows * 8] -> |x| and u8 [rows] of the signs. even: where an odd number is negative, the least important
    weight changes its sign, and its magnitude is negative."""
    for row in range(rows):
        byte, count = 0, 0
        for i in range(8):
            v = x[row * 8 + i]
            if v >= 0:
                sizes[row * 8 + i] = v
            else:
                sizes[row * 8 + i] = -v
                byte |= 1 << i
                count += 1
        if even and count % 2:
            change = 0
            least = w[row * 8] * x[row * 8] * x[row * 8]
            for i in range(1, 8):
                v = w[row * 8 + i] * x[row * 8 + i] * x[row * 8 + i]
                if v < least:
                    least, change = v, i
            sizes[row * 8 + change] = -sizes[row * 8 + change]
            byte ^= 1 << change
        signs[row] = byte


@fast
def _largest(x, rows, k, out):
    for row in range(rows):
        most = x[row * k]
        for i in range(1, k):
            most = max(most, x[row * k + i])
        out[row] = most


@fast
def _search(  # noqa: C901  one loop nest
    x,
    w,
    rows,
    k,
    reach,
    scales,
    factors,
    n_tries,
    refit,
    dims,
    levels,
    where,
    first,
    near,
    near_codes,
    values,
    codes,
    flips,
    out_numbers,
):
    xs, ws = np.empty(k, np.float32), np.empty(k, np.float32)
    wx, roots = np.empty(k, np.float32), np.empty(k, np.float32)
    tried, chosen = np.empty(k * N, np.float32), np.empty(k, np.float32)
    groups = k // dims
    missed, misses = np.empty(groups * N, np.bool_), np.empty(groups, np.bool_)
    qx, q2 = np.empty(N, np.float32), np.empty(N, np.float32)
    sizes, numbers = np.empty(N, np.float32), np.empty(N, np.float32)
    one, two, top = splat(np.float32(1)), splat(np.float32(2)), splat(np.float32(levels - 1))
    none = np.float32(0)
    for row in range(rows):
        if not reach[row] > none:
            scales[row] = none
            continue
        for i in range(k):
            xs[i], ws[i] = x[row * k + i], w[row * k + i]
            roots[i] = np.sqrt(ws[i])
            wx[i] = ws[i] * xs[i]
            chosen[i] = none
        misses[:] = refit != OFF_GRID
        scale, best = scales[row], none
        for t in range(0, len(factors), N):
            count = min(N, n_tries - t)
            inverse = load(factors, t) / splat(reach[row])
            store(sizes, 0, one / inverse)
            for i in range(k):
                store(tried, i * N, nearest_code(splat(xs[i]), inverse, top))
            for g in range(groups):
                number = splat(none)
                for i in range(dims):
                    number = number * splat(np.float32(levels)) + load(tried, (g * dims + dims - 1 - i) * N)
                store(numbers, 0, number)
                for j in range(count):
                    point = where[np.int64(numbers[j])]
                    missed[g * N + j] = point < 0
                    if point < 0:
                        a, b = first[-1 - point], first[-point]
                        n = best_neighbour(values, near_codes, a, b, dims, xs, roots, g * dims, sizes[j], none)
                        for i in range(dims):
                            tried[(g * dims + i) * N + j] = codes[near[a * N + n] * dims + i]
            sumqx, sumq2 = splat(none), splat(none)
            for i in range(k):
                q = two * load(tried, i * N) + one
                sumqx = sumqx + splat(wx[i]) * q
                sumq2 = sumq2 + splat(ws[i]) * q * q
            store(qx, 0, sumqx)
            store(q2, 0, sumq2)
            for j in range(count):
                if q2[j] > none and qx[j] * qx[j] > best * q2[j]:
                    scale = qx[j] / q2[j]
                    best = scale * qx[j]
                    for i in range(k):
                        chosen[i] = tried[i * N + j]
                    for g in range(groups):
                        misses[g] = missed[g * N + j]
        again = refit == ALL
        for g in range(groups):
            again = again or misses[g]
        if again and scale > none:
            inverse = one / splat(scale)
            for i in range(0, k, N):
                store(tried, i, nearest_code(load(xs, i), inverse, top))
            for g in range(groups):
                if refit == OFF_GRID and not misses[g]:
                    continue
                point = where[_number(tried, g, dims, levels)]
                if point < 0:
                    a, b = first[-1 - point], first[-point]
                    point = near[
                        a * N
                        + best_neighbour(values, near_codes, a, b, dims, xs, roots, g * dims, np.float32(scale), none)
                    ]
                for i in range(dims):
                    chosen[g * dims + i] = codes[point * dims + i]
            total_x, total_2 = none, none
            for i in range(k):
                weight = np.float32(2) * chosen[i] + np.float32(1)
                total_x += wx[i] * weight
                total_2 += ws[i] * weight * weight
            if total_2 > none:
                scale = total_x / total_2
        flips[row] = scale < none
        scales[row] = abs(scale)
        for g in range(groups):
            out_numbers[row * groups + g] = where[_number(chosen, g, dims, levels)]


@fast
def _number(codes, g, dims, levels):
    number = 0
    for i in range(dims):
        number = number * levels + np.int64(codes[g * dims + dims - 1 - i])
    return number


def fit_points(x: np.ndarray, w: np.ndarray, how: Search, book: Codebook) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w f32 [n, 256] -> scales f32 [n, 256 / k], numbers of points u16 [n, 256 / dims], signs u8 [n, 32]."""
    from .symmetric import positive

    assert x.dtype == w.dtype == np.float32 and x.flags.c_contiguous and w.flags.c_contiguous
    sizes, signs = np.empty_like(x), np.empty((len(x), 32), np.uint8)
    magnitudes(x.reshape(-1), w.reshape(-1), signs.size, how.even, sizes.reshape(-1), signs.reshape(-1))
    rows = sizes.reshape(-1, how.k)
    reach = np.empty(len(rows), np.float32)
    _largest(rows.reshape(-1), *rows.shape, reach)
    reach[reach < np.float32(how.least)] = 0
    if how.refit == ALL:
        # the tries start from a first fit with evenly spaced levels
        scales, _ = positive(rows, w.reshape(rows.shape), book.levels + 1)
        reach = np.where(reach > 0, scales * np.float32(book.levels), np.float32(0))
    else:
        scales = reach / np.float32(2 * book.levels - 1)
    numbers = np.zeros((len(x), 256 // book.dims), np.uint16)
    flips = np.zeros(len(rows), np.bool_)
    # to whole registers
    factors = np.pad(how.factors, (0, -len(how.factors) % N), mode="edge")
    _search(
        rows.reshape(-1), w.reshape(-1), *rows.shape, reach, scales, factors, len(how.factors), how.refit, book.dims,
        book.levels, book.where, book.first, book.near, book.near_codes, book.values, book.codes, flips,
        numbers.reshape(-1),
    )  # fmt: skip
    of_rows = signs.reshape(len(rows), -1)
    of_rows[flips] ^= 255
    of_rows[~(reach > 0)] = 0
    return scales.reshape(len(x), -1), numbers, signs


def even_scales(scales: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """scales f32 [n, k] >= 0 -> d f32 [n], such that the largest is d * (2 * top + 1), and the nearest multiples 2 * s
    + 1, s i32 [n, k] in 0..top. d is 0 if all scales are 0."""
    d = scales.max(axis=1) / np.float32(2 * top + 1)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d > 0)
    s = np.clip(np.rint(np.float32(0.5) * (inverse[:, None] * scales - np.float32(1))), 0, top)
    return d, np.nan_to_num(s).astype(np.int32)
