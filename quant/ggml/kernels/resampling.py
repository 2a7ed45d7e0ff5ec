"""Weighted sums of neighbouring rows or columns of bytes: the two passes of a resize.

Weights are whole numbers, units of 2^-bits: out = (2^(bits - 1) + sum of weight * byte) >> bits, clamped to 0..255. The
order of a sum does not change it, and no sum leaves i32: weights are below 2^15, and the magnitudes of an output's
weights add up to less than 2^(bits + 1), with at most 22 bits.
"""

import numpy as np

from .lanes import fast

_BLOCK = 1024  # bytes of an output row that are summed before the next row is begun: they stay in the first cache
_ROWS = 16  # pixels of a column that lie side by side while columns are summed


@fast
def sum_rows(source, first, count, weights, bits, out):
    """out u8 [row, n]: row i has sums of source u8 [.., n], rows first[i] to first[i] + count[i] - 1, by weights i32
    [row, tap]."""
    n = source.shape[1]
    sums = np.empty(_BLOCK, np.int32)
    half = np.int32(1) << (bits - 1)
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        for i in range(first.shape[0]):
            for j in range(width):
                sums[j] = half
            for t in range(count[i]):
                weight, row = weights[i, t], source[first[i] + t]
                for j in range(width):
                    sums[j] += weight * np.int32(row[start + j])
            to = out[i]
            for j in range(width):
                to[start + j] = np.uint8(min(max(sums[j] >> bits, 0), 255))


@fast
def sum_columns(source, first, count, weights, bits, out):
    """out u8 [row, n_out, 3]: column i sums columns first[i] to first[i] + count[i] - 1 of source u8 [row, .., 3].

    Blocks of 16 rows are turned, so that the inner loop runs over bytes that lie side by side.
    """
    n_rows, n, n_out, width = source.shape[0], source.shape[1], first.shape[0], 3 * _ROWS
    turned, made = np.empty((n, width), np.uint8), np.empty((n_out, width), np.uint8)
    sums = np.empty(width, np.int32)
    half = np.int32(1) << (bits - 1)
    turned[:] = 0  # the last block may be short
    for start in range(0, n_rows, _ROWS):
        rows = min(_ROWS, n_rows - start)
        for r in range(rows):
            for x in range(n):
                turned[x, 3 * r] = source[start + r, x, 0]
                turned[x, 3 * r + 1] = source[start + r, x, 1]
                turned[x, 3 * r + 2] = source[start + r, x, 2]
        for i in range(n_out):
            for j in range(width):
                sums[j] = half
            for t in range(count[i]):
                weight, at = weights[i, t], first[i] + t
                for j in range(width):
                    sums[j] += weight * np.int32(turned[at, j])
            for j in range(width):
                made[i, j] = np.uint8(min(max(sums[j] >> bits, 0), 255))
        for r in range(rows):
            for i in range(n_out):
                out[start + r, i, 0] = made[i, 3 * r]
                out[start + r, i, 1] = made[i, 3 * r + 1]
                out[start + r, i, 2] = made[i, 3 * r + 2]
