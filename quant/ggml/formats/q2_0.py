"""Q2_0    64 weights in 18 bytes, 2.25 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  qs     u8[16]   2-bit q; byte 2 + k holds weights 4*k, 4*k + 1, 4*k + 2, 4*k + 3 from its lowest bits up
  w[k] = d * (q[k] - 1)

Encoder: bytes equal to ggml's reference (`quantize_row_q2_0_ref`) for finite input. d = the largest magnitude, so that
q is 0, 1 or 2 and never 3; w times the unrounded 1 / d is rounded with halves away from zero.
"""

import numpy as np

from .largest import largest
from .rounding import before_truncation

BLOCK_Q2_0 = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
assert BLOCK_Q2_0.itemsize == 18

_WEIGHTS = (np.arange(256, dtype=np.uint8)[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).astype(np.int8)
_WEIGHTS -= 1
_FOURS = _WEIGHTS.view(np.uint32)[:, 0]  # for each byte its four q - 1


def encode_q2_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 64] -> out u8 [n, 18]."""
    q = ternary(x, d := np.abs(largest(x)))
    blocks = out.view(BLOCK_Q2_0)[:, 0]
    blocks["d"] = d
    blocks["qs"] = packed_fours(q)


def packed_fours(q: np.ndarray) -> np.ndarray:
    """q u8 [n, 4 * k] below 4 -> u8 [n, k]: four in a byte, from its lowest bits up."""
    q = q.reshape(len(q), -1, 4)
    packed: np.ndarray = q[..., 0] | q[..., 1] << 2 | q[..., 2] << 4 | q[..., 3] << 6
    return packed


def ternary(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """x f32 [n, block], d f32 [n] >= all |x| -> u8 [n, block]: 0, 1, 2 for the nearest of -d, 0, d."""
    inverse = np.float32(1) / d
    inverse[~np.isfinite(inverse)] = 0
    q = before_truncation(x * inverse[:, None]).astype(np.int8)
    q += 1
    return q.view(np.uint8)


def decode_q2_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 18] -> out f32 [n, 64]."""
    decode_fours(raw.view(BLOCK_Q2_0)[:, 0], out)


def decode_fours(blocks: np.ndarray, out: np.ndarray) -> None:
    """blocks [n] with fields d and qs [k] -> out f32 [n, 4 * k]."""
    q = np.take(_FOURS, blocks["qs"], mode="clip").view(np.int8)
    np.multiply(q, blocks["d"].astype(np.float32)[:, None], out=out, dtype=np.float32)
