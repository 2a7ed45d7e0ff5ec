"""MXFP4   32 weights in 17 bytes, 4.25 bits per weight: 4-bit floats and a power of two (OCP Microscaling Formats 1.0)

  byte  field  type     meaning
     0  e      u8       exponent of the scale, E8M0: 2^(e - 127); 255, there a NaN, is 2^128 here, as in ggml
     1  qs     u8[16]   4-bit q; byte 1 + k holds weight k (low) and weight k + 16 (high)
  w[k] = 2^(e - 128) * DOUBLED[q[k]]

NVFP4   64 weights in 36 bytes, 4.5 bits per weight: the same floats, a scale of 8 bits for 16 weights

  byte  field  type     meaning
     0  d      u8[4]    scales of the 16 weights j: E4M3, bit 7 is ignored; 127, there a NaN, is 0 here, as in ggml
     4  qs     u8[32]   4-bit q; byte 4 + 8*j + k holds weights 16*j + k (low) and 16*j + 8 + k (high), k = 0..7
  w[16*j + k] = E4M3(d[j]) / 2 * DOUBLED[q[16*j + k]]       j = 0..3, k = 0..15
  E4M3: exponent x in bits 3..6, mantissa m in bits 0..2: 2^(x - 7) * (1 + m / 8), for x = 0 2^-9 * m

q is E2M1: sign in bit 3, then 0, 0.5, 1, 1.5, 2, 3, 4, 6. DOUBLED holds twice these values, which are integers.

Encoders: bytes equal to ggml's reference (`quantize_row_mxfp4_ref`, `quantize_row_nvfp4_ref`) for finite input.
MXFP4: e = floor(log2(largest)) + 125, the logarithm rounded to f32; a weight beyond 6 * 2^(e - 127) becomes that.
Blocks below 2^-125, where e would be negative and the reference's is not defined, have e = 0.
NVFP4: E4M3 of largest / 6, halves upwards, 448 from 256 on: weights beyond 2688 are cut off.
q: the nearest value, the smaller of two that are equally near; -0 is written as 0.
"""

import numpy as np

from .largest import largest
from .unpack import fields, scaled

DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

BLOCK_MXFP4 = np.dtype([("e", "u1"), ("qs", "u1", (16,))])
assert BLOCK_MXFP4.itemsize == 17

BLOCK_NVFP4 = np.dtype([("d", "u1", (4,)), ("qs", "u1", (32,))])
assert BLOCK_NVFP4.itemsize == 36


def _half_e4m3() -> np.ndarray:
    code = np.arange(256)
    x, m = code >> 3 & 15, code & 7
    value: np.ndarray = np.where(x == 0, np.ldexp(m, -9), np.ldexp(1 + m / 8, x - 7)) / 2
    value[0x7F] = 0
    return value.astype(np.float32)


# Half of what a scale means, since DOUBLED has twice the values.
HALF_E8M0 = np.ldexp(1.0, np.arange(256) - 128).astype(np.float32)
HALF_E4M3 = _half_e4m3()


def encode_mxfp4(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 17]."""
    # in f64 and then rounded, since numpy's f32 logarithm is not C's at every last bit
    exponent = np.log2(np.abs(largest(x)).astype(np.float64)).astype(np.float32)
    e = np.clip(np.floor(exponent) + 125, 0, 254).astype(np.uint8)
    q = _nearest(x, HALF_E8M0[e])
    blocks = out.view(BLOCK_MXFP4)[:, 0]
    blocks["e"] = e
    np.bitwise_or(q[:, :16], q[:, 16:] << 4, out=blocks["qs"])


def decode_mxfp4(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 17] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_MXFP4)[:, 0]
    scaled(np.take(DOUBLED, fields(blocks["qs"], 4), mode="clip"), HALF_E8M0[blocks["e"]][:, None], out)


def encode_nvfp4(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 64] -> out u8 [n, 36]."""
    groups = x.reshape(-1, 16)
    d = _e4m3(np.abs(largest(groups)) / np.float32(6))
    q = _nearest(groups, HALF_E4M3[d])
    blocks = out.view(BLOCK_NVFP4)[:, 0]
    blocks["d"] = d.reshape(-1, 4)
    blocks["qs"] = (q[:, :8] | q[:, 8:] << 4).reshape(-1, 32)


def decode_nvfp4(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 36] -> out f32 [n, 64]."""
    blocks = raw.view(BLOCK_NVFP4)[:, 0]
    q = np.take(DOUBLED, fields(blocks["qs"].reshape(-1, 4, 8), 4), mode="clip")
    scaled(q, HALF_E4M3[blocks["d"]], out)


def _nearest(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x f32 [n, k], scale f32 [n] -> u8 [n, k], the q whose scale * DOUBLED is nearest.

    Distances are rounded to f32 and compared in the order of the codes, as the reference does: where two are equally
    near, dividing by the scale could choose the other one.
    """
    magnitude = np.abs(x)
    q, best = np.zeros(x.shape, np.uint8), magnitude
    for code in range(1, 8):
        distance = magnitude - (scale * DOUBLED[code])[:, None]
        np.abs(distance, out=distance)
        np.putmask(q, distance < best, code)
        best = np.minimum(best, distance)
    q |= ((x < 0) & (q > 0)).view(np.uint8) << 3
    return q


def _e4m3(value: np.ndarray) -> np.ndarray:
    """value f32 [n] >= 0 -> u8 [n], the code of the nearest E4M3 number, halves upwards; 448 (126) for 256 and more."""
    value = np.minimum(value, np.float32(448))
    # exponent and three bits of mantissa, rounded by the bit after them; 120 = 127 - 7 is the change of bias
    normal = ((value.view(np.uint32) + (1 << 19)) >> 20).astype(np.int32) - (120 << 3)
    small = np.minimum(value * np.float32(512) + np.float32(0.5), 7).astype(np.int32)
    return np.where(value < np.float32(2.0**-6), small, np.where(normal < 120, normal, 126)).astype(np.uint8)
