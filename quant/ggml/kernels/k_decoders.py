"""Values of Q2_K to Q6_K and IQ4 blocks in vectors. Layouts are in `formats`; values are equal to the numpy code there.

raw u8 [n * bytes of a block] -> out f32 [n * weights of a block].
"""

import numpy as np

from ..formats.iq4 import STEPS
from ..types import TRAITS, GGMLType
from .halves import half_at
from .lanes import fast, load32, store, to_f32, widened
from .lanes_across import lower, upper

_STEPS = STEPS.astype(np.float32)

_Q2_K_NBYTES = TRAITS[GGMLType.Q2_K].nbytes
_Q3_K_NBYTES = TRAITS[GGMLType.Q3_K].nbytes
_Q4_K_NBYTES = TRAITS[GGMLType.Q4_K].nbytes
_Q5_K_NBYTES = TRAITS[GGMLType.Q5_K].nbytes
_Q6_K_NBYTES = TRAITS[GGMLType.Q6_K].nbytes
_IQ4_NL_NBYTES = TRAITS[GGMLType.IQ4_NL].nbytes
_IQ4_XS_NBYTES = TRAITS[GGMLType.IQ4_XS].nbytes


@fast
def decode_q2_k(raw, out):
    for b in range(len(out) // 256):
        at, to = b * _Q2_K_NBYTES, b * 256
        d, dmin = half_at(raw, at + 80), half_at(raw, at + 82)
        for h in range(2):
            packed = widened(load32(raw, at + 16 + 32 * h))
            for i in range(4):
                q = to_f32(packed & 3)
                packed = packed >> 2
                s, t = raw[at + 8 * h + 2 * i], raw[at + 8 * h + 2 * i + 1]
                to_first = to + 128 * h + 32 * i
                store(out, to_first, lower(q) * (d * np.float32(s & 15)) - dmin * np.float32(s >> 4))
                store(out, to_first + 16, upper(q) * (d * np.float32(t & 15)) - dmin * np.float32(t >> 4))


@fast
def _scale_q3_k(raw, at, j):
    """s[j] - 32 of the block at byte `at`."""
    low = (raw[at + 96 + j % 8] >> (4 * (j // 8))) & 15
    high = (raw[at + 104 + j % 4] >> (2 * (j // 4))) & 3
    return np.float32(np.int32(low | (high << 4)) - 32)


@fast
def decode_q3_k(raw, out):
    for b in range(len(out) // 256):
        at, to = b * _Q3_K_NBYTES, b * 256
        d = half_at(raw, at + 108)
        upper_bits = widened(load32(raw, at))
        for h in range(2):
            packed = widened(load32(raw, at + 32 + 32 * h))
            for i in range(4):
                q = to_f32(((packed & 3) | ((upper_bits & 1) << 2)) - 4)
                packed, upper_bits = packed >> 2, upper_bits >> 1
                j = 8 * h + 2 * i
                store(out, to + 16 * j, lower(q) * (d * _scale_q3_k(raw, at, j)))
                store(out, to + 16 * j + 16, upper(q) * (d * _scale_q3_k(raw, at, j + 1)))


@fast
def _scale_and_minimum(raw, at, j):
    """s[j] and m[j] of Q4_K or Q5_K, packed from byte `at` on."""
    if j < 4:
        return np.float32(raw[at + j] & 63), np.float32(raw[at + 4 + j] & 63)
    both = raw[at + 4 + j]
    s = (both & 15) | ((raw[at + j - 4] >> 6) << 4)
    m = (both >> 4) | ((raw[at + j] >> 6) << 4)
    return np.float32(s), np.float32(m)


@fast
def decode_q4_k(raw, out):
    for b in range(len(out) // 256):
        at, to = b * _Q4_K_NBYTES, b * 256
        d, dmin = half_at(raw, at), half_at(raw, at + 2)
        for g in range(4):
            packed = widened(load32(raw, at + 16 + 32 * g))
            s, m = _scale_and_minimum(raw, at + 4, 2 * g)
            t, n = _scale_and_minimum(raw, at + 4, 2 * g + 1)
            store(out, to + 64 * g, to_f32(packed & 15) * (d * s) - dmin * m)
            store(out, to + 64 * g + 32, to_f32(packed >> 4) * (d * t) - dmin * n)


@fast
def decode_q5_k(raw, out):
    for b in range(len(out) // 256):
        at, to = b * _Q5_K_NBYTES, b * 256
        d, dmin = half_at(raw, at), half_at(raw, at + 2)
        high = widened(load32(raw, at + 16))
        for g in range(4):
            packed = widened(load32(raw, at + 48 + 32 * g))
            s, m = _scale_and_minimum(raw, at + 4, 2 * g)
            t, n = _scale_and_minimum(raw, at + 4, 2 * g + 1)
            store(out, to + 64 * g, to_f32((packed & 15) | ((high & 1) << 4)) * (d * s) - dmin * m)
            store(out, to + 64 * g + 32, to_f32((packed >> 4) | ((high & 2) << 3)) * (d * t) - dmin * n)
            high = high >> 2


@fast
def decode_q6_k(raw, out):
    for b in range(len(out) // 256):
        at, to = b * _Q6_K_NBYTES, b * 256
        d = half_at(raw, at + 208)
        for h in range(2):
            high = widened(load32(raw, at + 128 + 32 * h))
            first, second = widened(load32(raw, at + 64 * h)), widened(load32(raw, at + 64 * h + 32))
            for i in range(4):
                q = to_f32((((second if i % 2 else first) & 15) | ((high & 3) << 4)) - 32)
                if i == 1:
                    first, second = first >> 4, second >> 4
                high = high >> 2
                j = 8 * h + 2 * i
                s, t = np.int8(raw[at + 192 + j]), np.int8(raw[at + 193 + j])
                store(out, to + 16 * j, lower(q) * (d * np.float32(s)))
                store(out, to + 16 * j + 16, upper(q) * (d * np.float32(t)))


@fast
def _put_steps(raw, at, d, out, to):
    for k in range(16):
        q = raw[at + k]
        out[to + k] = _STEPS[q & 15] * d
        out[to + 16 + k] = _STEPS[q >> 4] * d


@fast
def decode_iq4_nl(raw, out):
    for b in range(len(out) // 32):
        at = b * _IQ4_NL_NBYTES
        _put_steps(raw, at + 2, half_at(raw, at), out, b * 32)


@fast
def decode_iq4_xs(raw, out):
    for b in range(len(out) // 256):
        at = b * _IQ4_XS_NBYTES
        d = half_at(raw, at)
        high = np.int32(raw[at + 2]) | (np.int32(raw[at + 3]) << 8)
        for j in range(8):
            low = (raw[at + 4 + j // 2] >> (4 * (j % 2))) & 15
            s = np.float32((np.int32(low) | (((high >> (2 * j)) & 3) << 4)) - 32)
            _put_steps(raw, at + 8 + 16 * j, d * s, out, b * 256 + 32 * j)
