"""MXFP4 in vectors. Layout and rules are in `formats.fp4`; bytes are equal to the numpy code there."""

import numpy as np

from ..formats.fp4 import DOUBLED, HALF_E8M0
from ..types import TRAITS, GGMLType
from .direct import largest_size, nibbles, put_nibbles
from .lanes import bits, fast, load32, magnitude, select, store, to_f32, to_u8

_STEPS = DOUBLED[:8].astype(np.float32)

_MXFP4_NBYTES = TRAITS[GGMLType.MXFP4].nbytes


@fast
def _nearest_codes(v, scale):
    """f32 lanes -> i32, the codes whose scale * DOUBLED is nearest; see `formats.fp4`."""
    size = magnitude(v)
    best = size
    q = bits(v) & 0
    for code in range(1, 8):
        distance = magnitude(size - scale * _STEPS[code])
        better = distance < best
        q = select(better, code, q)
        best = select(better, distance, best)
    return select((v < np.float32(0)) & (q > 0), q | 8, q)


@fast
def _doubled(q):
    """i32 codes -> DOUBLED of them, f32."""
    size = q & 7
    value = select(size == 5, 6, size)
    value = select(size == 6, 8, value)
    value = select(size == 7, 12, value)
    return to_f32(select(q > 7, 0 - value, value))


@fast
def encode_mxfp4(x, out):
    """x f32 [n * 32] -> out u8 [n * bytes of a block]."""
    for b in range(len(x) // 32):
        at = b * _MXFP4_NBYTES
        v = load32(x, b * 32)
        # in f64 and then rounded, as the numpy code does it
        exponent = np.floor(np.float32(np.log2(np.float64(largest_size(v))))) + np.float32(125)
        e = int(min(max(exponent, np.float32(0)), np.float32(254)))
        out[at] = np.uint8(e)
        put_nibbles(to_u8(_nearest_codes(v, HALF_E8M0[e])), out, at + 1)


@fast
def decode_mxfp4(raw, out):
    """raw u8 [n * bytes of a block] -> out f32 [n * 32]."""
    for b in range(len(out) // 32):
        at = b * _MXFP4_NBYTES
        store(out, b * 32, _doubled(nibbles(raw, at + 1)) * HALF_E8M0[raw[at]])
