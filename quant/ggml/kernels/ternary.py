"""TQ1_0, TQ2_0, Q1_0 and Q2_0 in vectors. Layouts and rules are in `formats`; bytes are equal to the numpy code there.

x, out of decoders f32 [n * weights of a block]; raw, out u8 [n * bytes of a block].
"""

import numpy as np

from ..types import TRAITS, GGMLType
from .direct import finite_inverse, rounded
from .halves import half_at, put_half, put_word, word_at
from .lanes import bits, fast, floats, load16, load32, select, store, to_f32, to_u8, widened
from .lanes_across import as_mask, greatest, set_bits

_Q1_0_NBYTES = TRAITS[GGMLType.Q1_0].nbytes
_Q2_0_NBYTES = TRAITS[GGMLType.Q2_0].nbytes
_TQ1_0_NBYTES = TRAITS[GGMLType.TQ1_0].nbytes
_TQ2_0_NBYTES = TRAITS[GGMLType.TQ2_0].nbytes


@fast
def _size(x, at, n):
    """The largest magnitude of x[at:at + n]."""
    size = bits(load32(x, at)) & 0x7FFFFFFF
    for i in range(32, n, 32):
        more = bits(load32(x, at + i)) & 0x7FFFFFFF
        size = select(more > size, more, size)
    return floats(greatest(size))


@fast
def encode_tq1_0(x, out):
    digits = np.empty(256, np.uint8)
    for b in range(len(x) // 256):
        at = b * _TQ1_0_NBYTES
        d = _size(x, b * 256, 256)
        inverse = finite_inverse(d)
        for i in range(0, 256, 32):
            store(digits, i, to_u8(rounded(load32(x, b * 256 + i) * inverse) + 1))
        value = widened(load32(digits, 0))
        for i in range(1, 5):
            value = value * 3 + widened(load32(digits, 32 * i))
        # x * 69043 >> 24 is x // 243 up to 62500
        store(out, at, to_u8(((value * 256 + 242) * 69043) >> 24))
        half = widened(load16(digits, 160))
        for i in range(1, 5):
            half = half * 3 + widened(load16(digits, 160 + 16 * i))
        store(out, at + 32, to_u8(((half * 256 + 242) * 69043) >> 24))
        for k in range(4):
            last = 0
            for i in range(4):
                last = last * 3 + digits[240 + 4 * i + k]
            out[at + 48 + k] = np.uint8((last * 768 + 242) // 243)
        put_half(out, at + 52, d)


@fast
def decode_tq1_0(raw, out):
    for b in range(len(out) // 256):
        at = b * _TQ1_0_NBYTES
        d = half_at(raw, at + 52)
        first, second = widened(load32(raw, at)), widened(load16(raw, at + 32))
        for i in range(5):
            store(out, b * 256 + 32 * i, to_f32(((first * 3) >> 8) - 1) * d)
            store(out, b * 256 + 160 + 16 * i, to_f32(((second * 3) >> 8) - 1) * d)
            first, second = (first * 3) & 255, (second * 3) & 255
        for k in range(4):
            byte = np.int32(raw[at + 48 + k])
            for i in range(4):
                out[b * 256 + 240 + 4 * i + k] = np.float32(((byte * 3) >> 8) - 1) * d
                byte = np.int32((byte * 3) & 255)


@fast
def encode_tq2_0(x, out):
    for b in range(len(x) // 256):
        at = b * _TQ2_0_NBYTES
        d = _size(x, b * 256, 256)
        inverse = finite_inverse(d)
        for h in range(2):
            first = b * 256 + 128 * h
            packed = rounded(load32(x, first) * inverse) + 1
            packed = packed | ((rounded(load32(x, first + 32) * inverse) + 1) << 2)
            packed = packed | ((rounded(load32(x, first + 64) * inverse) + 1) << 4)
            packed = packed | ((rounded(load32(x, first + 96) * inverse) + 1) << 6)
            store(out, at + 32 * h, to_u8(packed))
        put_half(out, at + 64, d)


@fast
def decode_tq2_0(raw, out):
    for b in range(len(out) // 256):
        at = b * _TQ2_0_NBYTES
        d = half_at(raw, at + 64)
        for h in range(2):
            q = widened(load32(raw, at + 32 * h))
            for i in range(4):
                store(out, b * 256 + 128 * h + 32 * i, to_f32((q & 3) - 1) * d)
                q = q >> 2


@fast
def encode_q1_0(x, out):
    for b in range(len(x) // 128):
        at = b * _Q1_0_NBYTES
        sum_ = np.float32(0)
        for i in range(b * 128, b * 128 + 128):
            sum_ += abs(x[i])
        put_half(out, at, sum_ / np.float32(128))
        for i in range(4):
            put_word(out, at + 2 + 4 * i, set_bits(load32(x, b * 128 + 32 * i) >= np.float32(0)))


@fast
def decode_q1_0(raw, out):
    for b in range(len(out) // 128):
        at = b * _Q1_0_NBYTES
        d = half_at(raw, at)
        for i in range(4):
            clear = widened(as_mask(word_at(raw, at + 2 + 4 * i))) ^ 1
            store(out, b * 128 + 32 * i, floats((clear << 31) ^ bits(d)))


@fast
def encode_q2_0(x, out):
    digits = np.empty(64, np.uint8)
    for b in range(len(x) // 64):
        at = b * _Q2_0_NBYTES
        d = _size(x, b * 64, 64)
        inverse = finite_inverse(d)
        for i in range(0, 64, 32):
            store(digits, i, to_u8(rounded(load32(x, b * 64 + i) * inverse) + 1))
        put_half(out, at, d)
        for k in range(16):
            q = digits[4 * k] | (digits[4 * k + 1] << 2) | (digits[4 * k + 2] << 4) | (digits[4 * k + 3] << 6)
            out[at + 2 + k] = np.uint8(q & 255)


@fast
def decode_q2_0(raw, out):
    for b in range(len(out) // 64):
        at = b * _Q2_0_NBYTES
        d = half_at(raw, at)
        for k in range(16):
            q = np.int32(raw[at + 2 + k])
            for i in range(4):
                out[b * 64 + 4 * k + i] = np.float32(((q >> (2 * i)) & 3) - 1) * d
