"""Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 in vectors of one block, and the packing of codes that searches found.

Layouts and rules are in `formats`; bytes and values are equal to the numpy code there.

    x, out of decoders  f32 [n * 32]
    raw, out            u8 [n * bytes of a block]
"""

import numpy as np

from ..types import TRAITS, GGMLType
from .halves import half_at, put_word, put_word16, word_at
from .lanes import as_i8, bits, fast, floats, load16, load32, magnitude, select, store, to_f32, to_i32, to_u8, widened
from .lanes_across import as_mask, first_set, greatest, joined, lane, least, lower, set_bits, upper

_MOST = np.finfo(np.float32).max
# what makes halves go away from zero before digits are cut off: see formats.rounding
_BELOW_HALF = int(np.nextafter(np.float32(0.5), np.float32(0)).view(np.int32))
_SIGN = -(1 << 31)

_Q4_0_NBYTES = TRAITS[GGMLType.Q4_0].nbytes
_Q4_1_NBYTES = TRAITS[GGMLType.Q4_1].nbytes
_Q5_0_NBYTES = TRAITS[GGMLType.Q5_0].nbytes
_Q5_1_NBYTES = TRAITS[GGMLType.Q5_1].nbytes
_Q8_0_NBYTES = TRAITS[GGMLType.Q8_0].nbytes


@fast
def finite_inverse(d):
    """1 / d, or 0 if that is not finite: a block of zeros, or a scale that is 0 in f16 anyway."""
    inverse = np.float32(1) / d
    return inverse if abs(inverse) <= _MOST else np.float32(0)


@fast
def rounded(y):
    """f32 lanes -> i32, halves away from zero."""
    return to_i32(y + floats((bits(y) & _SIGN) | _BELOW_HALF))


@fast
def largest_size(v):
    """The largest magnitude in a vector."""
    return floats(greatest(bits(v) & 0x7FFFFFFF))


@fast
def largest_of(v):
    """The first number of largest magnitude in v, 0 if all are 0; never -0."""
    high, low = greatest(v), least(v)
    value = high if high > -low else low
    if high == -low:  # both signs, or nothing but zeros: the first of them
        value = lane(v, first_set(magnitude(v) == high))
    return value + np.float32(0)


@fast
def extremes(v):
    """The smallest and the largest number in v; of zeros the first is the smallest, since its sign counts."""
    low = least(v)
    if low == np.float32(0):
        low = lane(v, first_set(v == low))
    return low, greatest(v) + np.float32(0)  # never -0


@fast
def put_q8_0(v, scales, out, at):
    q = rounded(v * scales.inverse)
    put_word16(out, at, scales.d_bits)
    store(out, at + 2, to_u8(q))
    return to_f32(q) * scales.d


@fast
def decode_q8_0(raw, out):
    for b in range(len(out) // 32):
        at = b * _Q8_0_NBYTES
        store(out, b * 32, to_f32(widened(as_i8(load32(raw, at + 2)))) * half_at(raw, at))


@fast
def put_nibbles(q, out, at):
    """u8 lanes -> half as many bytes: the first half of the lanes low, the second high."""
    store(out, at, (lower(q) & 15) | (upper(q) << 4))


@fast
def nibbles(raw, at):
    """16 bytes -> i32x32, the reverse of `put_nibbles`."""
    q = load16(raw, at)
    return widened(joined(q & 15, q >> 4))


@fast
def _codes(v, scales, half):
    """i32 codes of v, 0 to 2 * half - 1."""
    q = to_i32(v * scales.inverse + np.float32(half + 0.5))
    return select(q > 2 * half - 1, 2 * half - 1, q)


@fast
def _codes_above(v, scales, top):
    """i32 codes of v minus the minimum, 0 to top."""
    q = to_i32((v - scales.least) * scales.inverse + np.float32(0.5))
    return select(q > top, top, q)


@fast
def put_q4_0(v, scales, out, at):
    q = _codes(v, scales, 8)
    put_word16(out, at, scales.d_bits)
    put_nibbles(to_u8(q), out, at + 2)
    return to_f32(q - 8) * scales.d


@fast
def decode_q4_0(raw, out):
    for b in range(len(out) // 32):
        at = b * _Q4_0_NBYTES
        store(out, b * 32, to_f32(nibbles(raw, at + 2) - 8) * half_at(raw, at))


@fast
def put_q4_1(v, scales, out, at):
    q = _codes_above(v, scales, 15)
    put_word16(out, at, scales.d_bits)
    put_word16(out, at + 2, scales.m_bits)
    put_nibbles(to_u8(q), out, at + 4)
    return to_f32(q) * scales.d + scales.m


@fast
def decode_q4_1(raw, out):
    for b in range(len(out) // 32):
        at = b * _Q4_1_NBYTES
        q = to_f32(nibbles(raw, at + 4))
        store(out, b * 32, q * half_at(raw, at) + half_at(raw, at + 2))


@fast
def _put_fives(q, out, at):
    """u8x32 codes below 32: the word of their upper bits, then their nibbles."""
    put_word(out, at, set_bits(q > 15))
    put_nibbles(q, out, at + 4)


@fast
def _fives(raw, at):
    """The reverse of `_put_fives`, i32x32."""
    return nibbles(raw, at + 4) | (widened(as_mask(word_at(raw, at))) << 4)


@fast
def put_q5_0(v, scales, out, at):
    q = _codes(v, scales, 16)
    put_word16(out, at, scales.d_bits)
    _put_fives(to_u8(q), out, at + 2)
    return to_f32(q - 16) * scales.d


@fast
def decode_q5_0(raw, out):
    for b in range(len(out) // 32):
        at = b * _Q5_0_NBYTES
        store(out, b * 32, to_f32(_fives(raw, at + 2) - 16) * half_at(raw, at))


@fast
def put_q5_1(v, scales, out, at):
    q = _codes_above(v, scales, 31)
    put_word16(out, at, scales.d_bits)
    put_word16(out, at + 2, scales.m_bits)
    _put_fives(to_u8(q), out, at + 4)
    return to_f32(q) * scales.d + scales.m


@fast
def decode_q5_1(raw, out):
    for b in range(len(out) // 32):
        at = b * _Q5_1_NBYTES
        q = to_f32(_fives(raw, at + 4))
        store(out, b * 32, q * half_at(raw, at) + half_at(raw, at + 2))
