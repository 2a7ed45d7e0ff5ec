"""Builds blocks of the K-quants from the results of the searches: scales of scales, codes, and their packing.

Layouts are in `formats`; every operation is ggml's, in f32 and in its order.

    x        f32 [n * 256]
    d, dmin  f32 [n]             as read back from f16
    s, m     i32 [n * groups]    of 16 or 32 weights each: scales and minima in units of d and dmin
    codes    u8 [n * 256]        where a scale is 0, the search's codes stay
    out      u8 [n * bytes of a block]
"""

import numpy as np

from ..types import TRAITS, GGMLType
from .columns import TINY
from .halves import half_bits, of_half, put_half
from .lanes import N, fast, load, load16, load32, magnitude, nearest, select, splat, store, to_i32, to_u8
from .lanes_across import greatest, lane, lower, upper

_Q2_K_NBYTES = TRAITS[GGMLType.Q2_K].nbytes
_Q3_K_NBYTES = TRAITS[GGMLType.Q3_K].nbytes
_Q4_K_NBYTES = TRAITS[GGMLType.Q4_K].nbytes
_Q5_K_NBYTES = TRAITS[GGMLType.Q5_K].nbytes
_Q6_K_NBYTES = TRAITS[GGMLType.Q6_K].nbytes


@fast
def _as_half(value):
    return lane(of_half(half_bits(splat(value))), 0)


@fast
def even(values, groups, levels, d, q):
    """values f32 [n * groups] -> d, largest / levels, and the nearest multiples of it, q <= levels."""
    for b in range(len(d)):
        most = splat(np.float32(0))
        for i in range(b * groups, (b + 1) * groups, N):
            v = load(values, i)
            most = select(v > most, v, most)
        top = greatest(most)
        inverse = np.float32(levels) / top if top > np.float32(0) else np.float32(0)
        for i in range(b * groups, (b + 1) * groups, N):
            # a number below zero wraps around as an u8 in C
            code = to_i32(nearest(load(values, i) * inverse)) & 255
            store(q, i, select(code > levels, levels, code))
        d[b] = _as_half(top / np.float32(levels))


@fast
def even_signed(values, low, d, q):
    """values f32 [n * 16] -> d and multiples of it in low..-low - 1: the first of largest magnitude becomes `low`."""
    for b in range(len(d)):
        v = load16(values, b * 16)
        top = np.float32(0)
        for i in range(b * 16, b * 16 + 16):
            if abs(values[i]) > abs(top) or np.isnan(values[i]):  # NaN stays, for callers to see
                top = values[i]
        inverse = np.float32(low) / top  # where all are 0, codes are `low`
        code = nearest(v * inverse)
        code = select(code > np.float32(low), code, np.float32(low))
        code = select(code < np.float32(-low - 1), code, np.float32(-low - 1))
        store(q, b * 16, to_i32(code))
        d[b] = _as_half(np.float32(1) / inverse) if top != np.float32(0) else np.float32(0)


@fast
def _recode(x, first, k, scale, offset, low, high, codes):
    """codes = nearest((x + offset) / scale) within low..high, minus low, for k weights; unchanged if the scale is 0."""
    if scale != np.float32(0):
        for i in range(first, first + k, 16):
            code = nearest((load16(x, i) + offset) / scale)
            code = select(code < np.float32(low), np.float32(low), code)
            code = select(code > np.float32(high), np.float32(high), code)
            store(codes, i, to_u8(to_i32(code) - low))


@fast
def _put_twos(codes, first, out, at):
    """Packs bits 0 and 1 of 256 codes: byte at + 32 * h + k holds code 128 * h + 32 * i + k in bits 2 * i."""
    for h in range(2):
        c = first + 128 * h
        packed = (load32(codes, c) & 3) | ((load32(codes, c + 32) & 3) << 2)
        packed = packed | ((load32(codes, c + 64) & 3) << 4) | ((load32(codes, c + 96) & 3) << 6)
        store(out, at + 32 * h, packed)


@fast
def _put_eighths(codes, first, bit, out, at):
    """Byte at + k holds bit `bit` of codes 32 * i + k in bit i."""
    packed = load32(codes, first) & 0
    for i in range(7, -1, -1):
        packed = (packed << 1) | ((load32(codes, first + 32 * i) >> bit) & 1)
    store(out, at, packed)


@fast
def _put_fours(codes, first, out, at):
    """Packs bits 0 to 3: byte at + 32 * g + k holds codes 64 * g + k (low) and 64 * g + 32 + k (high)."""
    for g in range(4):
        c = first + 64 * g
        store(out, at + 32 * g, (load32(codes, c) & 15) | (load32(codes, c + 32) << 4))


@fast
def _with_minima(x, b, k, d, dmin, s, m, top, codes):
    """Codes of block b from its scales and minima."""
    groups = 256 // k
    for j in range(groups):
        g = b * groups + j
        _recode(x, b * 256 + k * j, k, d[b] * np.float32(s[g]), dmin[b] * np.float32(m[g]), 0, top, codes)


@fast
def put_q2_k(x, d, dmin, s, m, codes, out):
    for b in range(len(d)):
        at = b * _Q2_K_NBYTES
        _with_minima(x, b, 16, d, dmin, s, m, 3, codes)
        for j in range(16):
            out[at + j] = np.uint8(s[16 * b + j] | (m[16 * b + j] << 4))
        _put_twos(codes, b * 256, out, at + 16)
        put_half(out, at + 80, d[b])
        put_half(out, at + 82, dmin[b])


@fast
def put_q3_k(x, d, s, codes, out):
    """s from -32 to 31."""
    for b in range(len(d)):
        at = b * _Q3_K_NBYTES
        for j in range(16):
            _recode(x, b * 256 + 16 * j, 16, d[b] * np.float32(s[16 * b + j]), np.float32(0), -4, 3, codes)
        _put_eighths(codes, b * 256, 2, out, at)
        _put_twos(codes, b * 256, out, at + 32)
        c = load16(s, b * 16) + 32
        low, high = c & 15, c >> 4
        store(out, at + 96, to_u8(lower(low) | (upper(low) << 4)))
        two_high = lower(high) | (upper(high) << 4)
        store(out, at + 104, to_u8(lower(two_high) | (upper(two_high) << 2)))
        put_half(out, at + 108, d[b])


@fast
def _put_scales(s, m, g, out, at):
    """Eight scales and minima, from number g on, in 12 bytes as Q4_K has them."""
    for i in range(4):
        out[at + i] = np.uint8(s[g + i] | ((s[g + 4 + i] >> 4) << 6))
        out[at + 4 + i] = np.uint8(m[g + i] | ((m[g + 4 + i] >> 4) << 6))
        out[at + 8 + i] = np.uint8((s[g + 4 + i] & 15) | ((m[g + 4 + i] & 15) << 4))


@fast
def put_q4_k(x, d, dmin, s, m, codes, out):
    for b in range(len(d)):
        at = b * _Q4_K_NBYTES
        _with_minima(x, b, 32, d, dmin, s, m, 15, codes)
        put_half(out, at, d[b])
        put_half(out, at + 2, dmin[b])
        _put_scales(s, m, 8 * b, out, at + 4)
        _put_fours(codes, b * 256, out, at + 16)


@fast
def put_q5_k(x, d, dmin, s, m, codes, out):
    for b in range(len(d)):
        at = b * _Q5_K_NBYTES
        _with_minima(x, b, 32, d, dmin, s, m, 31, codes)
        put_half(out, at, d[b])
        put_half(out, at + 2, dmin[b])
        _put_scales(s, m, 8 * b, out, at + 4)
        _put_eighths(codes, b * 256, 4, out, at + 16)
        _put_fours(codes, b * 256, out, at + 48)


@fast
def put_q6_k(x, scales, d, s, codes, out):
    """scales f32 [n * 16]: if all of a block are tiny, the block is all zeros."""
    for b in range(len(d)):
        at = b * _Q6_K_NBYTES
        if greatest(magnitude(load16(scales, b * 16))) < TINY:
            out[at : at + _Q6_K_NBYTES] = 0
            continue
        for j in range(16):
            _recode(x, b * 256 + 16 * j, 16, d[b] * np.float32(s[16 * b + j]), np.float32(0), -32, 31, codes)
            out[at + 192 + j] = np.uint8(s[16 * b + j] & 255)
        for h in range(2):
            c = b * 256 + 128 * h
            q, r, t, u = load32(codes, c), load32(codes, c + 32), load32(codes, c + 64), load32(codes, c + 96)
            store(out, at + 64 * h, (q & 15) | (t << 4))
            store(out, at + 64 * h + 32, (r & 15) | (u << 4))
            store(out, at + 128 + 32 * h, (q >> 4) | ((r >> 4) << 2) | ((t >> 4) << 4) | ((u >> 4) << 6))
        put_half(out, at + 208, d[b])
