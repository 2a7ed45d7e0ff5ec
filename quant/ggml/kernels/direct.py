"""Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 in vectors of a block each, and what searches leave to be packed.

Layouts and rules are those of `formats`; bytes and values are equal to the numpy code there.

    x, out of decoders  f32 [n * 32]
    raw, out            u8 [n * bytes of a block]
"""

import numpy as np

from .halves import half_at, put_half, put_word, word_at
from .lanes import (
    as_i8,
    as_mask,
    bits,
    fast,
    first_set,
    floats,
    greatest,
    joined,
    least,
    load16,
    load32,
    lower,
    select,
    set_bits,
    store,
    to_f32,
    to_i32,
    to_u8,
    upper,
    widened,
)  # fmt: skip

_MOST = np.finfo(np.float32).max
# what makes halves go away from zero before digits are cut off: see formats.rounding
_BELOW_HALF = int(np.nextafter(np.float32(0.5), np.float32(0)).view(np.int32))
_SIGN = -(1 << 31)


@fast
def finite_inverse(d):  # type: ignore[no-untyped-def]
    """1 / d, 0 where that is not a number: a block of zeros, or a scale that is 0 in f16 anyway."""
    inverse = np.float32(1) / d
    return inverse if abs(inverse) <= _MOST else np.float32(0)


@fast
def rounded(y):  # type: ignore[no-untyped-def]
    """f32 lanes -> i32, halves away from zero."""
    return to_i32(y + floats((bits(y) & _SIGN) | _BELOW_HALF))


@fast
def largest_size(v):  # type: ignore[no-untyped-def]
    """The largest magnitude in a vector."""
    return floats(greatest(bits(v) & 0x7FFFFFFF))


@fast
def largest_of(v, x, at):  # type: ignore[no-untyped-def]
    """The first number of largest magnitude in v, which is x[at:at + 32]; 0 is never -0."""
    size = bits(v) & 0x7FFFFFFF
    return x[at + first_set(size == greatest(size))] + np.float32(0)


@fast
def encode_q8_0(x, out):  # type: ignore[no-untyped-def]
    for b in range(len(x) // 32):
        v = load32(x, b * 32)
        d = largest_size(v) / np.float32(127)
        store(out, b * 34 + 2, to_u8(rounded(v * finite_inverse(d))))
        put_half(out, b * 34, d)


@fast
def decode_q8_0(raw, out):  # type: ignore[no-untyped-def]
    for b in range(len(out) // 32):
        store(out, b * 32, to_f32(widened(as_i8(load32(raw, b * 34 + 2)))) * half_at(raw, b * 34))


@fast
def put_nibbles(q, out, at):  # type: ignore[no-untyped-def]
    """u8 lanes -> half as many bytes: the first half of the lanes low, the second high."""
    store(out, at, (lower(q) & 15) | (upper(q) << 4))


@fast
def nibbles(raw, at):  # type: ignore[no-untyped-def]
    """16 bytes -> i32x32, the reverse of `put_nibbles`."""
    q = load16(raw, at)
    return widened(joined(q & 15, q >> 4))


@fast
def _codes(v, x, at, half):  # type: ignore[no-untyped-def]
    """Scale and u8 codes of v = x[at:at + 32], 0 to 2 * half - 1."""
    d = largest_of(v, x, at) / np.float32(-half)
    q = to_i32(v * finite_inverse(d) + np.float32(half + 0.5))
    return d, to_u8(select(q > 2 * half - 1, 2 * half - 1, q))


@fast
def _codes_above(v, x, at, top):  # type: ignore[no-untyped-def]
    """Scale, minimum and u8 codes of v = x[at:at + 32], 0 to top."""
    m = x[at + first_set(v == least(v))]
    d = (x[at + first_set(v == greatest(v))] - m) / np.float32(top)
    q = to_i32((v - m) * finite_inverse(d) + np.float32(0.5))
    return d, m, to_u8(select(q > top, top, q))


@fast
def encode_q4_0(x, out):  # type: ignore[no-untyped-def]
    for b in range(len(x) // 32):
        d, q = _codes(load32(x, b * 32), x, b * 32, 8)
        put_half(out, b * 18, d)
        put_nibbles(q, out, b * 18 + 2)


@fast
def decode_q4_0(raw, out):  # type: ignore[no-untyped-def]
    for b in range(len(out) // 32):
        store(out, b * 32, to_f32(nibbles(raw, b * 18 + 2) - 8) * half_at(raw, b * 18))


@fast
def encode_q4_1(x, out):  # type: ignore[no-untyped-def]
    for b in range(len(x) // 32):
        d, m, q = _codes_above(load32(x, b * 32), x, b * 32, 15)
        put_half(out, b * 20, d)
        put_half(out, b * 20 + 2, m)
        put_nibbles(q, out, b * 20 + 4)


@fast
def decode_q4_1(raw, out):  # type: ignore[no-untyped-def]
    for b in range(len(out) // 32):
        q = to_f32(nibbles(raw, b * 20 + 4))
        store(out, b * 32, q * half_at(raw, b * 20) + half_at(raw, b * 20 + 2))


@fast
def _put_fives(q, out, at):  # type: ignore[no-untyped-def]
    """u8x32 codes below 32: the word of their upper bits, then their nibbles."""
    put_word(out, at, set_bits(q > 15))
    put_nibbles(q, out, at + 4)


@fast
def _fives(raw, at):  # type: ignore[no-untyped-def]
    """The reverse of `_put_fives`, i32x32."""
    return nibbles(raw, at + 4) | (widened(as_mask(word_at(raw, at))) << 4)


@fast
def encode_q5_0(x, out):  # type: ignore[no-untyped-def]
    for b in range(len(x) // 32):
        d, q = _codes(load32(x, b * 32), x, b * 32, 16)
        put_half(out, b * 22, d)
        _put_fives(q, out, b * 22 + 2)


@fast
def decode_q5_0(raw, out):  # type: ignore[no-untyped-def]
    for b in range(len(out) // 32):
        store(out, b * 32, to_f32(_fives(raw, b * 22 + 2) - 16) * half_at(raw, b * 22))


@fast
def encode_q5_1(x, out):  # type: ignore[no-untyped-def]
    for b in range(len(x) // 32):
        d, m, q = _codes_above(load32(x, b * 32), x, b * 32, 31)
        put_half(out, b * 24, d)
        put_half(out, b * 24 + 2, m)
        _put_fives(q, out, b * 24 + 4)


@fast
def decode_q5_1(raw, out):  # type: ignore[no-untyped-def]
    for b in range(len(out) // 32):
        q = to_f32(_fives(raw, b * 24 + 4))
        store(out, b * 32, q * half_at(raw, b * 24) + half_at(raw, b * 24 + 2))
