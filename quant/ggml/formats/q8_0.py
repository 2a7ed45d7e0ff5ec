"""Q8_0    32 weights in 34 bytes, 8.5 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  qs     i8[32]   q; byte 2 + k holds weight k
  w[k] = d * q[k]

Encoder: bytes equal to ggml's reference (`quantize_row_q8_0_ref`) for finite input. d = max|w| / 127 in f32;
q = w times the unrounded 1 / d, rounded with halves away from zero.
"""

import numpy as np

from .largest import largest
from .rounding import before_truncation

BLOCK_Q8_0 = np.dtype([("d", "<f2"), ("qs", "i1", (32,))])
assert BLOCK_Q8_0.itemsize == 34


def encode_q8_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 32] -> out u8 [n, 34]."""
    d = np.abs(largest(x)) / np.float32(127)
    inverse = np.float32(1) / d
    # 0 for a block of zeros, and where d is so small that 1 / d overflows (then d is 0 in f16 anyway).
    inverse[~np.isfinite(inverse)] = 0
    y = x * np.repeat(inverse, 32).reshape(x.shape)
    blocks = out.view(BLOCK_Q8_0)[:, 0]
    blocks["d"] = d
    blocks["qs"] = before_truncation(y)


def decode_q8_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 34] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_Q8_0)[:, 0]
    np.multiply(blocks["qs"], blocks["d"].astype(np.float32)[:, None], out=out, dtype=np.float32)
