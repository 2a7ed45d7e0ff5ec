"""Small integers out of packed bytes, and their products with scales."""

from math import prod

import numpy as np


def fields(packed: np.ndarray, bits: int, at: int = 0) -> np.ndarray:
    """packed u8 [n, ..., k] -> u8 [n, ..., 8 // bits, k]: field j of a byte is bits j * bits and up, moved to bit `at`.

    k is a multiple of 8. In memory n is next to k, so that every step runs over many contiguous bytes; `scaled` puts
    the weights in order.
    """
    # Eight bytes at a time: numpy has no SIMD loop for shifts of bytes. What crosses into a neighbour is masked out.
    words = np.ascontiguousarray(np.moveaxis(packed, 0, -2)).view(np.uint64)
    count = 8 // bits
    out = np.empty((count, *words.shape), np.uint64)
    mask = np.uint64(((1 << bits) - 1 << at) * 0x0101010101010101)
    for j in range(count):
        shift = j * bits - at
        if shift >= 0:
            np.right_shift(words, np.uint64(shift), out=out[j])
        else:
            np.left_shift(words, np.uint64(-shift), out=out[j])
        out[j] &= mask
    return np.moveaxis(out.view(np.uint8), (-2, 0), (0, -2))


def pairs(packed: np.ndarray) -> np.ndarray:
    """packed u8 [n, k] -> u8 [n, 2 * k]: the two 4-bit fields of each byte, low one first."""
    out = np.empty((len(packed), packed.shape[1], 2), np.uint8)
    np.bitwise_and(packed, 15, out=out[..., 0])
    np.right_shift(packed, 4, out=out[..., 1])
    return out.reshape(len(packed), -1)


def scaled(q: np.ndarray, d: np.ndarray, out: np.ndarray) -> None:
    """out f32 [n, block] = q * d.

    q [n, ..., k], the axes after n one after the other being the block; d f32 [n, groups], one scale for each of the
    equal groups of a block, which are whole rows of q or parts of them.
    """
    groups = d.shape[1]
    if groups > prod(q.shape[1:-1]):
        q = q.reshape(*q.shape[:-1], -1, out.shape[1] // groups)
    axes = next(i for i in range(1, q.ndim) if prod(q.shape[1:i]) == groups)
    d = d.reshape(q.shape[:axes] + (1,) * (q.ndim - axes))
    np.multiply(q, d, out=out.reshape(q.shape), dtype=np.float32)
