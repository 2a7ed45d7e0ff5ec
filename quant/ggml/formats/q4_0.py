"""Q4_0    32 weights in 18 bytes, 4.5 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  qs     u8[16]   4-bit q; byte 2 + k holds weight k (low) and weight k + 16 (high)
  w[k] = d * (q[k] - 8)

Encoder: bytes equal to ggml's reference (`quantize_row_q4_0_ref`) for finite input.
m = the first weight of largest magnitude, with its sign; d = m / -8, so that m itself is q = 0;
q = min(15, trunc(w * (1 / d) + 8.5)) with the unrounded d, each operation rounded to f32 (no fused multiply-add).
With importance: bytes equal to `quantize_row_q4_0_impl`, a search for d with the least weighted error.
"""

import numpy as np

from .largest import largest

BLOCK_Q4_0 = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
assert BLOCK_Q4_0.itemsize == 18


def encode_q4_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 18]."""
    d = largest(x) / np.float32(-8)
    inverse = np.float32(1) / d
    inverse[~np.isfinite(inverse)] = 0
    y = x * np.repeat(inverse, 32).reshape(x.shape)
    y += np.float32(8.5)
    q = y.astype(np.uint8)
    np.minimum(q, 15, out=q)
    blocks = out.view(BLOCK_Q4_0)[:, 0]
    blocks["d"] = d
    np.bitwise_or(q[:, :16], q[:, 16:] << 4, out=blocks["qs"])


def encode_q4_0_weighted(x: np.ndarray, out: np.ndarray, w: np.ndarray) -> None:
    """x, w f32 [n, 32] -> out u8 [n, 18]; w as `row_weights` gives it."""
    from ..kernels.symmetric import symmetric

    blocks = out.view(BLOCK_Q4_0)[:, 0]
    blocks["d"], q = symmetric(x, w, 8)
    blocks["qs"] = q[:, :16] | q[:, 16:] * np.uint8(16)


def decode_q4_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 18] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_Q4_0)[:, 0]
    d = blocks["d"].astype(np.float32)[:, None]
    qs = blocks["qs"]
    q = np.empty((len(qs), 32), np.int8)
    np.bitwise_and(qs, 15, out=q[:, :16].view(np.uint8))
    np.right_shift(qs, 4, out=q[:, 16:].view(np.uint8))
    q -= 8
    np.multiply(q, d, out=out, dtype=np.float32)
