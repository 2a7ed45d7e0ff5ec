"""F32, F16, BF16, and I32: one weight, or integer, after the other, little endian.

    type  bytes  sign exponent mantissa   encoding from f32
    F32     4      1     8       23       unchanged
    F16     2      1     5       10       IEEE 754, nearest even; beyond 65504 infinite
    BF16    2      1     8        7       upper half of the f32, nearest even
    I32     4      integers of 32 bits, read only: beyond 2^24 the nearest f32

Bytes equal to ggml's reference (for BF16 also its NaNs: kept, made quiet, never rounded to infinity).
Encoders read f32 [n, 1], write u8 [n, nbytes]; decoders the reverse.
"""

import numpy as np


def encode_f32(x: np.ndarray, out: np.ndarray) -> None:
    out.view("<f4")[...] = x


def decode_f32(raw: np.ndarray, out: np.ndarray) -> None:
    out[...] = raw.view("<f4")


def encode_f16(x: np.ndarray, out: np.ndarray) -> None:
    out.view("<f2")[...] = x


def decode_f16(raw: np.ndarray, out: np.ndarray) -> None:
    out[...] = raw.view("<f2")


def encode_bf16(x: np.ndarray, out: np.ndarray) -> None:
    bits = x.view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits  # a NaN may wrap around here; corrected below
    rounded >>= 16
    upper = out.view("<u2")
    upper[...] = rounded
    nan = np.isnan(x)
    if nan.any():
        upper[nan] = (bits[nan] >> 16) | 0x40


def decode_bf16(raw: np.ndarray, out: np.ndarray) -> None:
    np.left_shift(raw.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def decode_i32(raw: np.ndarray, out: np.ndarray) -> None:
    out[...] = raw.view("<i4")
