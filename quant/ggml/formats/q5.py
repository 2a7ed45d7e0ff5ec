"""Q5_0    32 weights in 22 bytes, 5.5 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  qh     u8[4]    bit 4 of q: bit k of the little-endian u32 belongs to weight k
     6  qs     u8[16]   bits 0..3 of q; byte 6 + k holds weight k (low) and weight k + 16 (high)
  w[k] = d * (q[k] - 16)

Q5_1    32 weights in 24 bytes, 6 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  m      f16      minimum
     4  qh     u8[4]    as above
     8  qs     u8[16]   as above, from byte 8
  w[k] = d * q[k] + m

Encoders: bytes equal to ggml's reference (`quantize_row_q5_0_ref`, `quantize_row_q5_1_ref`) for finite input; they
work as for Q4_0 and Q4_1, with d = largest / -16 and d = (greatest - least) / 31.
With importance: bytes equal to `quantize_row_q5_0_impl` and `quantize_row_q5_1_impl`, searches as for Q4_0 and Q4_1.
"""

import numpy as np

from .largest import largest
from .q4_1 import above_minimum, fit_above_minimum
from .unpack import fields, scaled

BLOCK_Q5_0 = np.dtype([("d", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))])
assert BLOCK_Q5_0.itemsize == 22

BLOCK_Q5_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))])
assert BLOCK_Q5_1.itemsize == 24


def encode_q5_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 22]."""
    d = largest(x) / np.float32(-16)
    inverse = np.float32(1) / d
    inverse[~np.isfinite(inverse)] = 0
    y = x * inverse[:, None]
    y += np.float32(16.5)
    q = y.astype(np.uint8)
    np.minimum(q, 31, out=q)
    blocks = out.view(BLOCK_Q5_0)[:, 0]
    blocks["d"] = d
    _pack(q, blocks)


def encode_q5_1(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 24]."""
    blocks = out.view(BLOCK_Q5_1)[:, 0]
    d, m, q = above_minimum(x, 31)
    blocks["d"] = d
    blocks["m"] = m
    _pack(q, blocks)


def encode_q5_0_weighted(x: np.ndarray, out: np.ndarray, w: np.ndarray) -> None:
    """x, w f32 [n, 32] -> out u8 [n, 22]; w as `row_weights` gives it."""
    from ..kernels.symmetric import symmetric

    blocks = out.view(BLOCK_Q5_0)[:, 0]
    blocks["d"], q = symmetric(x, w, 16)
    _pack(q, blocks)


def encode_q5_1_weighted(x: np.ndarray, out: np.ndarray, w: np.ndarray) -> None:
    """x, w f32 [n, 32] -> out u8 [n, 24]; w as `row_weights` gives it."""
    blocks = out.view(BLOCK_Q5_1)[:, 0]
    blocks["d"], blocks["m"], q = fit_above_minimum(x, w, 31)
    _pack(q, blocks)


def decode_q5_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 22] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_Q5_0)[:, 0]
    q = _unpacked(blocks).view(np.int8)
    q -= 16
    scaled(q, blocks["d"].astype(np.float32)[:, None], out)


def decode_q5_1(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 24] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_Q5_1)[:, 0]
    scaled(_unpacked(blocks), blocks["d"].astype(np.float32)[:, None], out)
    out += blocks["m"].astype(np.float32)[:, None]


def _pack(q: np.ndarray, blocks: np.ndarray) -> None:
    """q u8 [n, 32] in 0..31 -> fields qh and qs."""
    blocks["qh"] = np.packbits(q & 16, axis=1, bitorder="little")
    np.bitwise_or(q[:, :16] & 15, q[:, 16:] << 4, out=blocks["qs"])


def _unpacked(blocks: np.ndarray) -> np.ndarray:
    """q u8 [n, 2, 16] in 0..31."""
    q = fields(blocks["qs"], 4)
    q |= (np.unpackbits(blocks["qh"], axis=1, bitorder="little") << 4).reshape(q.shape)
    return q
