"""Operations on eight rows at a time, one per lane, for the searches for scales and codes.

A row is a group with one scale: 16 or 32 weights, or the scales of such groups. x f32 [row, k] are the values, w f32
[row, k] >= 0 the weights of the squared errors; codes are u8 [row, k]. All arithmetic is f32 in the order of ggml's
reference (ggml-quants.c), compiled without contraction, so that results are equal to the bit.
"""

import numpy as np

from .lanes import N, fast, gather, load, magnitude, root, select, splat, store
from .lanes_across import lane

TINY = np.float32(1e-15)  # ggml's GROUP_MAX_EPS: a row below it is all zeros


@fast
def columns(flat, row, rows, k, out):
    """out [k * 8] = column after column of the eight rows from `row` on; missing rows repeat the last one."""
    if row + N <= rows:
        for i in range(k):
            store(out, i * N, gather(flat, row * k + i, k))
    else:
        for i in range(k):
            for j in range(N):
                out[i * N + j] = flat[min(row + j, rows - 1) * k + i]


@fast
def put(columns, row, rows, k, out):
    """The reverse of `columns`, into codes u8 [rows * k]; negative numbers wrap around as in C."""
    for j in range(min(N, rows - row)):
        for i in range(k):
            out[(row + j) * k + i] = np.uint8(np.int32(columns[i * N + j]))


@fast
def put_lanes(v, row, rows, out):
    for j in range(min(N, rows - row)):
        out[row + j] = lane(v, j)


@fast
def clamped(v, low, high):
    v = select(v < low, low, v)
    return select(v > high, high, v)


@fast
def first_largest(xs, k):
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
def _row_sums(x, rows, k, squares, out):
    xs = np.empty(k * N, np.float32)
    for row in range(0, rows, N):
        columns(x, row, rows, k, xs)
        total = splat(np.float32(0))
        for i in range(k):
            v = load(xs, i * N)
            total = total + (v * v if squares else v)
        put_lanes(total, row, rows, out)


@fast
def _weighted(x, importance, mean_square, k, out):
    for row in range(len(mean_square)):
        for i in range(row * k, row * k + k, N):
            v = load(x, i)
            store(out, i, load(importance, i) * root(mean_square[row] + v * v))


def row_sums(x: np.ndarray, *, squares: bool = False) -> np.ndarray:
    """f32 [row]: the sum of each row, or of its squares, added from left to right in f32."""
    out = np.empty(len(x), np.float32)
    _row_sums(flat(x), *x.shape, squares, out)
    return out


def row_weights(x: np.ndarray, importance: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
    """importance * sqrt(mean_square + x^2): large weights count more.

    x f32 [row, k], importance f32 of that shape or one row for all, mean_square f32 [row]; k is a multiple of 8.
    """
    out = np.empty(x.shape, np.float32)
    assert x.shape[1] % N == 0 and mean_square.shape == (len(x),)
    _weighted(flat(x), flat(np.broadcast_to(importance, x.shape)), flat(mean_square), x.shape[1], out.reshape(-1))
    return out


def flat(a: np.ndarray) -> np.ndarray:
    """The array as one row, in C order."""
    assert a.dtype == np.float32
    return np.ascontiguousarray(a).reshape(-1)
