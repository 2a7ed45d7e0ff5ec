"""IQ1_S   256 weights in 50 bytes, 1.5625 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  qs       u8[32]      bits 0..7 of the number p of the point of the 8 weights i = 0..31
    34  qh       u16[8]      of 32 weights: bits 3*l..3*l + 2 are bits 8..10 of the number of point l = 0..3,
                             bits 12..14 the scale s, bit 15 set when the shift is minus
  w = d * (2 * s + 1) * (point[p] + shift)        shift = 1/8 or -1/8

IQ1_M   256 weights in 56 bytes, 1.75 bits per weight

  byte  field    type        meaning
     0  qs       u8[32]      bits 0..7 of the number p of the point of the 8 weights i = 0..31
    32  qh       u8[16]      byte 32 + j is about points 2*j (low) and 2*j + 1 (high): bits 0..2 are bits 8..10 of the
                             number, bit 3 is set when the shift is minus
    48  scales   u16[4]      3-bit scales s of 16 weights; word g holds weights 64*g + 16*l.. in bits 3*l, l = 0..3;
                             bits 12..15 of the four words, first word lowest, are d as an f16
  w = d * (2 * s + 1) * (point[p] + shift)        shift = 1/8 or -1/8 for 8 weights each

Points: grids.py. Encoders: bytes equal to ggml's reference. IQ1_S, which ggml does not write without importance, takes
all columns as equal then.
"""

from functools import cache

import numpy as np

from ..types import GGMLType
from .grids import grid
from .k_fit import block_weights
from .unpack import pairs, scaled

BLOCK_IQ1_S = np.dtype([("d", "<f2"), ("qs", "u1", (32,)), ("qh", "<u2", (8,))])
assert BLOCK_IQ1_S.itemsize == 50

BLOCK_IQ1_M = np.dtype([("qs", "u1", (32,)), ("qh", "u1", (16,)), ("scales", "<u2", (4,))])
assert BLOCK_IQ1_M.itemsize == 56

_THREES = np.array([0, 3, 6, 9], np.uint16)


@cache
def _shifted() -> np.ndarray:
    """u64 [4096]: 8 * (point + shift) as eight i8; the upper half has the shift of minus 1/8."""
    points = grid(GGMLType.IQ1_S) * np.int8(8)
    return np.concatenate([points + np.int8(1), points - np.int8(1)]).view(np.uint64)[:, 0]


def _points(index: np.ndarray) -> np.ndarray:
    """index u16 [n, 32], bit 11 the sign of the shift -> i8 [n, 256]."""
    return np.take(_shifted(), index, mode="clip").view(np.int8).reshape(len(index), 256)


def decode_iq1_s(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 50] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ1_S)[:, 0]
    qh = blocks["qh"]
    high = (qh[:, :, None] >> _THREES & 7) | (qh >> 15 << 3)[:, :, None]
    q = _points(high.reshape(-1, 32) << 8 | blocks["qs"])
    scaled(q, _eighths(blocks["d"], qh >> 12 & 7), out)


def scale_iq1_m(blocks: np.ndarray) -> np.ndarray:
    """d, f16 [n]."""
    top = blocks["scales"] >> 12
    d: np.ndarray = top[:, 0] | top[:, 1] << 4 | top[:, 2] << 8 | top[:, 3] << 12
    return d.view(np.float16)


def decode_iq1_m(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 56] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ1_M)[:, 0]
    q = _points(pairs(blocks["qh"]).astype(np.uint16) << 8 | blocks["qs"])
    s = (blocks["scales"][:, :, None] >> _THREES & 7).reshape(-1, 16)
    scaled(q, _eighths(scale_iq1_m(blocks), s), out)


def _eighths(d: np.ndarray, s: np.ndarray) -> np.ndarray:
    """d f16 [n], s u16 [n, groups] -> d * (2 * s + 1) / 8 in f32. An eighth is exact, so bits are as without it."""
    return d.astype(np.float32)[:, None] * (2 * s + 1).astype(np.float32) * np.float32(0.125)


def encode_iq1_s(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 50]."""
    from ..kernels.points import even_scales
    from ..kernels.shifted import fit_shifted

    w = block_weights(x, np.ones((1, 256), np.float32) if importance is None else importance, 2)
    scales, shifts, numbers = fit_shifted(x, w, 32, 1e-12, halves=False)
    d, s = even_scales(scales, 7)
    blocks = out.view(BLOCK_IQ1_S)[:, 0]
    # ggml makes the scales of IQ1 greater than the search says
    blocks["d"] = d * np.float32(1.125)
    blocks["qs"] = numbers & 255
    top = np.where((d > 0)[:, None], s | shifts << 3, 0) << 12
    high = ((numbers >> 8).reshape(-1, 8, 4) << _THREES).sum(axis=2, dtype=np.uint16)
    blocks["qh"] = high | top.astype(np.uint16)


def encode_iq1_m(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 56]."""
    from ..kernels.points import even_scales
    from ..kernels.shifted import best_scales, fit_shifted

    w = x * x if importance is None else block_weights(x, importance, 2)
    scales, shifts, numbers = fit_shifted(x, w, 16, 1e-7, halves=True)
    d, s = even_scales(scales, 7)
    some = (d > 0)[:, None]
    # bit 1 is the shift of the first 8 weights, bit 0 of the second 8
    down = np.where(some, shifts, 0)[:, :, None] >> np.array([1, 0], np.uint8) & 1
    s = np.where(some, s, 0)
    q = _points(numbers | down.reshape(-1, 32).astype(np.uint16) << 11).astype(np.float32) * np.float32(0.125)
    q *= np.repeat(2 * s + 1, 16, axis=1).astype(np.float32)
    best = best_scales(x, w, q)
    d16 = (np.where(np.isnan(best), d, best) * np.float32(1.1125)).astype(np.float16)
    d16[~some[:, 0]] = 0
    blocks = out.view(BLOCK_IQ1_M)[:, 0]
    blocks["qs"] = numbers & 255
    nibbles = ((numbers >> 8).astype(np.uint8).reshape(-1, 16, 2)) | (down << 3).astype(np.uint8)
    blocks["qh"] = nibbles[:, :, 0] | nibbles[:, :, 1] << 4
    words = (s.reshape(-1, 4, 4).astype(np.uint16) << _THREES).sum(axis=2, dtype=np.uint16)
    blocks["scales"] = words | (d16.view(np.uint16)[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
