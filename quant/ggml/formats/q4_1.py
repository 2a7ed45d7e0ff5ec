"""Q4_1    32 weights in 20 bytes, 5 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  m      f16      minimum
     4  qs     u8[16]   4-bit q; byte 4 + k holds weight k (low) and weight k + 16 (high)
  w[k] = d * q[k] + m

Encoder: bytes equal to ggml's reference (`quantize_row_q4_1_ref`) for finite input. m = the least weight,
d = (greatest - m) / 15; q = min(15, trunc((w - m) * (1 / d) + 0.5)) with the unrounded d and m, each operation rounded
to f32 (no fused multiply-add).
With importance: bytes equal to `quantize_row_q4_1_impl`, a search for d and m with the least weighted error.
"""

import numpy as np

from .largest import extremes
from .unpack import fields, scaled

BLOCK_Q4_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", (16,))])
assert BLOCK_Q4_1.itemsize == 20


def encode_q4_1(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 20]."""
    d, m, q = above_minimum(x, 15)
    blocks = out.view(BLOCK_Q4_1)[:, 0]
    blocks["d"] = d
    blocks["m"] = m
    np.bitwise_or(q[:, :16], q[:, 16:] << 4, out=blocks["qs"])


def encode_q4_1_weighted(x: np.ndarray, out: np.ndarray, w: np.ndarray) -> None:
    """x, w f32 [n, 32] -> out u8 [n, 20]; w as `row_weights` gives it."""
    blocks = out.view(BLOCK_Q4_1)[:, 0]
    blocks["d"], blocks["m"], q = fit_above_minimum(x, w, 15)
    blocks["qs"] = q[:, :16] | q[:, 16:] * np.uint8(16)


def fit_above_minimum(x: np.ndarray, w: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `above_minimum`, with the least error weighted by w f32 [n, 32]."""
    from ..kernels.minimum import with_minimum

    d, m, q = with_minimum(x, w, top, -0.9, 0.05, 36)
    return d, -m, q


def above_minimum(x: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x f32 [n, 32] -> d f32 [n], m f32 [n], q u8 [n, 32] in 0..top, as the formats with a minimum have them."""
    m, greatest = extremes(x)
    d = (greatest - m) / np.float32(top)
    inverse = np.float32(1) / d
    inverse[~np.isfinite(inverse)] = 0
    y = x - m[:, None]
    y *= inverse[:, None]
    y += np.float32(0.5)
    q = y.astype(np.uint8)
    return d, m, np.minimum(q, top, out=q)


def decode_q4_1(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 20] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_Q4_1)[:, 0]
    scaled(fields(blocks["qs"], 4), blocks["d"].astype(np.float32)[:, None], out)
    out += blocks["m"].astype(np.float32)[:, None]
