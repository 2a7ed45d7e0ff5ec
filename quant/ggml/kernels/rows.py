"""Fitting codes to rows of weights: the searches behind ggml's K-quants and IQ4, for eight rows at a time.

A row is what shares a scale: 16 or 32 weights, or the scales of such rows themselves. x f32 [row, k] are the values, w
f32 [row, k] >= 0 says how much the square of each error counts; codes are u8 [row, k]. All arithmetic is f32 in the
order of ggml's reference (ggml-quants.c: make_qx_quants, make_q3_quants, make_qkx2_quants, make_qkx3_quants,
make_qp_quants, quantize_row_iq4_nl_impl), compiled there without contraction, so that results are equal to the bit.
"""

import numpy as np

from .lanes import N, any_set, fast, gather, lane, load, magnitude, nearest, select, splat, store

__all__ = [
    "codes_of",
    "nearest_steps",
    "positive",
    "row_sums",
    "steps",
    "symmetric",
    "symmetric_refined",
    "with_minimum",
]

LOWEST = np.float32(-3e38)  # no bound
TINY = np.float32(1e-15)  # ggml's GROUP_MAX_EPS: a row below it is all zeros


@fast
def _columns(flat, row, rows, k, out):  # type: ignore[no-untyped-def]
    """out [k * 8] = column after column of the eight rows that begin with `row`; after the last row, the last again."""
    if row + N <= rows:
        for i in range(k):
            store(out, i * N, gather(flat, row * k + i, k))
    else:
        for i in range(k):
            for j in range(N):
                out[i * N + j] = flat[min(row + j, rows - 1) * k + i]


@fast
def _put(columns, row, rows, k, out):  # type: ignore[no-untyped-def]
    """The reverse of `_columns`, into codes u8 [rows * k]; negative numbers wrap around as C's do."""
    for j in range(min(N, rows - row)):
        for i in range(k):
            out[(row + j) * k + i] = np.uint8(np.int32(columns[i * N + j]))


@fast
def _put_lanes(v, row, rows, out):  # type: ignore[no-untyped-def]
    for j in range(min(N, rows - row)):
        out[row + j] = lane(v, j)


@fast
def _clamped(v, low, high):  # type: ignore[no-untyped-def]
    v = select(v < low, low, v)
    return select(v > high, high, v)


@fast
def _largest(xs, k):  # type: ignore[no-untyped-def]
    """The first value of largest magnitude of each row, and that magnitude."""
    most = splat(np.float32(0))
    value = most
    for i in range(k):
        x = load(xs, i * N)
        size = magnitude(x)
        more = size > most
        most = select(more, size, most)
        value = select(more, x, value)
    return value, most


@fast
def _row_sums(x, rows, k, squares, out):  # type: ignore[no-untyped-def]
    xs = np.empty(k * N, np.float32)
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        total = splat(np.float32(0))
        for i in range(k):
            v = load(xs, i * N)
            total = total + (v * v if squares else v)
        _put_lanes(total, row, rows, out)


@fast
def _symmetric_sums(xs, ws, k, iscale, low, high):  # type: ignore[no-untyped-def]
    sumlx = splat(np.float32(0))
    suml2 = sumlx
    for i in range(k):
        x, w = load(xs, i * N), load(ws, i * N)
        code = _clamped(nearest(iscale * x), low, high)
        sumlx = sumlx + w * x * code
        suml2 = suml2 + w * code * code
    return sumlx, suml2


@fast
def _symmetric(x, w, rows, k, half, factors, scales, codes):  # type: ignore[no-untyped-def]
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, low, high = splat(np.float32(0)), splat(np.float32(-half)), splat(np.float32(half - 1))
    offset = splat(np.float32(half))
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        _columns(w, row, rows, k, ws)
        largest, size = _largest(xs, k)
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
            code = offset + _clamped(nearest(chosen * load(xs, i * N)), low, high)
            store(ws, i * N, select(empty, zero, code))
        _put(ws, row, rows, k, codes)
        _put_lanes(select(empty, zero, scale), row, rows, scales)


@fast
def _byte(code):  # type: ignore[no-untyped-def]
    """A code as make_qp_quants keeps it: below zero (which only IQ2_XXS asks for) it wraps around."""
    return select(code < splat(np.float32(0)), code + splat(np.float32(256)), code)


@fast
def _moved_codes(xs, ws, qs, k, sumlx, suml2, low, high, by_rest):  # type: ignore[no-untyped-def]
    """Five rounds in which each code moves where the others' sums want it. by_rest: the sum of the squares that has to
    be positive is that of the others, not the new one (ggml's make_qp_quants and make_q3_quants differ in this)."""
    zero = splat(np.float32(0))
    for _ in range(5):
        moved = False
        for i in range(k):
            v, weight, code = load(xs, i * N), load(ws, i * N), load(qs, i * N)
            slx = sumlx - weight * v * code
            sl2 = suml2 - weight * code * code
            new = _clamped(nearest(v * sl2 / slx), low, high)
            new_slx = slx + weight * v * new
            new_sl2 = sl2 + weight * new * new
            changed = (slx > zero) & ((sl2 if by_rest else new_sl2) > zero)
            changed = changed & (new_slx * new_slx * suml2 > sumlx * sumlx * new_sl2)
            # the same code again is no change, though its sums may round otherwise
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
def _symmetric_refined(x, rows, k, half, scales, codes):  # type: ignore[no-untyped-def]
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    qs = np.empty(k * N, np.float32)
    zero, low, high = splat(np.float32(0)), splat(np.float32(-half)), splat(np.float32(half - 1))
    offset = splat(np.float32(half))
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        largest, size = _largest(xs, k)
        iscale = low / largest
        sumlx = zero
        suml2 = zero
        for i in range(k):
            v = load(xs, i * N)
            code = _clamped(nearest(iscale * v), low, high)
            store(qs, i * N, code)
            weight = v * v
            store(ws, i * N, weight)
            sumlx = sumlx + weight * v * code
            suml2 = suml2 + weight * code * code
        sumlx, suml2 = _moved_codes(xs, ws, qs, k, sumlx, suml2, low, high, False)
        empty = size < splat(TINY)
        for i in range(k):
            store(qs, i * N, select(empty, zero, load(qs, i * N) + offset))
        _put(qs, row, rows, k, codes)
        scale = select(suml2 > zero, sumlx / suml2, zero)
        _put_lanes(select(empty, zero, scale), row, rows, scales)


@fast
def _with_minimum(x, w, rows, k, top, factors, absolute, scales, minima, codes):  # type: ignore[no-untyped-def]
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    qs, tried = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one, high = splat(np.float32(0)), splat(np.float32(1)), splat(np.float32(top))
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        _columns(w, row, rows, k, ws)
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
            code = _clamped(nearest(iscale * (v - least)), zero, high)
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
                code = _clamped(nearest(iscale * (v - least)), zero, high)
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
        _put(qs, row, rows, k, codes)
        _put_lanes(select(flat, zero, scale), row, rows, scales)
        # times -1, not from 0: the minimum of a row without any is -0, which Q4_1 stores
        _put_lanes(splat(np.float32(-1)) * select(flat, flat_least, least), row, rows, minima)


@fast
def _positive(x, w, rows, k, top, factors, scales, codes):  # type: ignore[no-untyped-def]
    xs, ws, qs = np.empty(k * N, np.float32), np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one, high = splat(np.float32(0)), splat(np.float32(1)), splat(np.float32(top))
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        _columns(w, row, rows, k, ws)
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
        _put(qs, row, rows, k, codes)
        scale = select(suml2 > zero, sumlx / suml2, zero)
        _put_lanes(select(empty, zero, scale), row, rows, scales)


@fast
def _step_sums(xs, ws, k, inverse, values, middles):  # type: ignore[no-untyped-def]
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
def _steps(x, w, rows, k, values, middles, tries, scales):  # type: ignore[no-untyped-def]
    xs, ws = np.empty(k * N, np.float32), np.empty(k * N, np.float32)
    zero, one = splat(np.float32(0)), splat(np.float32(1))
    first = splat(np.float32(values[0]))
    for row in range(0, rows, N):
        _columns(x, row, rows, k, xs)
        _columns(w, row, rows, k, ws)
        largest, size = _largest(xs, k)
        sumqx, sumq2 = _step_sums(xs, ws, k, one / ((zero - largest) / first), values, middles)
        scale = select(sumq2 > zero, sumqx / sumq2, zero)
        best = scale * sumqx
        for t in range(-tries, tries + 1):
            inverse = (splat(np.float32(t)) + first) / largest
            sumqx, sumq2 = _step_sums(xs, ws, k, inverse, values, middles)
            better = (sumq2 > zero) & (sumqx * sumqx > best * sumq2)
            scale = select(better, sumqx / sumq2, scale)
            best = select(better, scale * sumqx, best)
        _put_lanes(select(size < splat(TINY), zero, scale), row, rows, scales)


@fast
def _codes_of(x, rows, k, offsets, scales, low, high, bias, codes):  # type: ignore[no-untyped-def]
    least, most, shift = splat(np.float32(low)), splat(np.float32(high)), splat(np.float32(bias))
    made = np.empty(N, np.float32)
    for row in range(rows):
        scale = scales[row]
        if scale != np.float32(0):
            offset, divisor = splat(offsets[row]), splat(scale)
            for i in range(row * k, row * k + k, N):
                store(made, 0, _clamped(nearest((load(x, i) + offset) / divisor), least, most) + shift)
                for j in range(N):
                    codes[i + j] = np.uint8(np.int32(made[j]))


@fast
def _nearest_steps(x, rows, k, inverse, middles, codes):  # type: ignore[no-untyped-def]
    for row in range(rows):
        factor = inverse[row]
        for i in range(row * k, row * k + k):
            y = factor * x[i]
            code = 0
            for c in range(15):
                code += y >= middles[c]
            codes[i] = code


@fast
def _runs(q, n_groups, count, bits, shift, mask, out):  # type: ignore[no-untyped-def]
    for g in range(n_groups):
        for i in range(count):
            up = bits * i - shift
            first, to = (g * count + i) * 32, g * 32
            # one direction of shift in each loop, which then works on many bytes at once
            if up >= 0:
                factor = np.uint8(1 << up)
                for k in range(32):
                    out[to + k] |= np.uint8((q[first + k] & mask) * factor)
            else:
                divisor = np.uint8(-up)
                for k in range(32):
                    out[to + k] |= np.uint8((q[first + k] & mask) >> divisor)


def runs(q: np.ndarray, bits: int, count: int, *, at: int = 0, mask: int = 255) -> np.ndarray:
    """q u8 [n, 256] -> u8 [n, 8 / count, 32]: `count` runs of 32 codes that follow one another, `bits` apart.

    Of each code the bits of `mask`, which begin with bit `at`.
    """
    out = np.zeros((len(q), 8 // count, 32), np.uint8)
    _runs(q.reshape(-1), len(q) * (8 // count), count, bits, at, np.uint8(mask), out.reshape(-1))
    return out


def row_sums(x: np.ndarray, *, squares: bool = False) -> np.ndarray:
    """f32 [row]: the sum of each row, or of its squares, from the first to the last in f32."""
    out = np.empty(len(x), np.float32)
    _row_sums(_flat(x), *x.shape, squares, out)
    return out


def symmetric(x: np.ndarray, w: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales f32 [row] and codes for x = scale * (code - half), 0 <= code < 2 * half. 19 tries."""
    tries = [i for i in range(-9, 10) if i]
    factors = -(np.float32(half) + np.float32(0.1) * np.array(tries, np.float32))
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _symmetric(_flat(x), _flat(w), *x.shape, half, factors, scales, codes.reshape(-1))
    return scales, codes


def symmetric_refined(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """As `symmetric` with w = x * x: one try, then up to five rounds that move single codes while that helps."""
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _symmetric_refined(_flat(x), *x.shape, half, scales, codes.reshape(-1))
    return scales, codes


def with_minimum(
    x: np.ndarray, w: np.ndarray, top: int, first: float, step: float, tries: int, *, absolute: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales and minima f32 [row] and codes for x = scale * code - minimum, 0 <= code <= top, minimum >= 0.

    Tries code ranges of top + first + i * step, i = 0..tries, each with the best line through its codes. `absolute`:
    what is weighted are magnitudes of errors, not squares.
    """
    factors = np.float32(first) + np.float32(step) * np.arange(tries + 1, dtype=np.float32) + np.float32(top)
    scales, minima = np.empty((2, len(x)), np.float32)
    codes = np.empty(x.shape, np.uint8)
    _with_minimum(_flat(x), _flat(w), *x.shape, top, factors, absolute, scales, minima, codes.reshape(-1))
    return scales, minima, codes


def positive(x: np.ndarray, w: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales f32 [row] and codes for x = scale * code, 0 <= code <= top. Nine tries, then five rounds of moves."""
    tries = [i for i in range(-4, 5) if i]
    factors = np.float32(0.1) * np.array(tries, np.float32) + np.float32(top)
    scales, codes = np.empty(len(x), np.float32), np.empty(x.shape, np.uint8)
    _positive(_flat(x), _flat(w), *x.shape, top, factors, scales, codes.reshape(-1))
    return scales, codes


def steps(x: np.ndarray, w: np.ndarray, values: np.ndarray, tries: int) -> np.ndarray:
    """Scales f32 [row] for x = scale * (one of 16 increasing values). 2 * tries + 2 tries."""
    values = values.astype(np.float32)
    scales = np.empty(len(x), np.float32)
    _steps(_flat(x), _flat(w), *x.shape, values, (values[1:] + values[:-1]) / 2, tries, scales)
    return scales


def nearest_steps(x: np.ndarray, inverse: np.ndarray, values: np.ndarray) -> np.ndarray:
    """u8 [row, k]: which of 16 increasing values is nearest to x times the row's `inverse`; in the middle the upper."""
    values = values.astype(np.float32)
    codes = np.empty(x.shape, np.uint8)
    _nearest_steps(_flat(x), *x.shape, _flat(inverse), (values[1:] + values[:-1]) / 2, codes.reshape(-1))
    return codes


def codes_of(
    x: np.ndarray, scales: np.ndarray, low: int, high: int, codes: np.ndarray, offsets: np.ndarray | None = None
) -> None:
    """codes = nearest((x + offset) / scale) within low..high, less low; rows whose scale is 0 keep theirs.

    offsets and scales f32 [row]; k is a multiple of 8.
    """
    offsets = np.zeros(len(x), np.float32) if offsets is None else offsets
    assert x.shape[1] % N == 0 and codes.shape == x.shape
    _codes_of(_flat(x), *x.shape, _flat(offsets), _flat(scales), low, high, -low, codes.reshape(-1))


def _flat(a: np.ndarray) -> np.ndarray:
    assert a.dtype == np.float32
    return np.ascontiguousarray(a).reshape(-1)
