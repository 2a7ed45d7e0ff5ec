"""Q4_K    256 weights in 144 bytes, 4.5 bits per weight

byte  field   type      meaning
   0  d       f16       scale of the scales
   2  dmin    f16       scale of the minima
   4  scales  u8[12]    6-bit scales s[j] and minima m[j] of the 32 weights j, packed as below
  16  qs      u8[128]   4-bit q; byte 16 + 32*g + k holds weights 64*g + k (low) and 64*g + 32 + k (high)
w[32*j + k] = d * s[j] * q[32*j + k] - dmin * m[j]        j = 0..7, k = 0..31

scales, i = 0..3     bits 0..5     bits 6, 7
  byte 0 + i         s[i]          bits 4, 5 of s[4 + i]
  byte 4 + i         m[i]          bits 4, 5 of m[4 + i]
  byte 8 + i         bits 0..3 of s[4 + i] (low) and of m[4 + i] (high)

Encoder: bytes equal to ggml's reference, without importance (`quantize_row_q4_K_ref`) and with it (`_impl`).
"""

import numpy as np

from .k_fit import Minima, fit_minima
from .unpack import fields, scaled

BLOCK_Q4_K = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qs", "u1", (128,))])
assert BLOCK_Q4_K.itemsize == 144


def scales_and_minima(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """packed u8 [n, 12] -> s and m, u8 [n, 8] each in 0..63."""
    words = packed.view("<u4")  # four of each at a time
    s, m = np.empty((2, len(packed), 2), np.uint32)
    for i, both in enumerate((s, m)):
        both[:, 0] = words[:, i] & 0x3F3F3F3F
        both[:, 1] = words[:, 2] >> 4 * i & 0x0F0F0F0F
        both[:, 1] |= words[:, i] >> 2 & 0x30303030
    return s.view(np.uint8), m.view(np.uint8)


_FIT = Minima(k=32, top=15, levels=63, search=(-1.0, 0.1, 20))


def encode_q4_k(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 144]."""
    from ..kernels.k_encoders import put_q4_k

    put_q4_k(x.reshape(-1), *fit_minima(x, importance, _FIT), out.reshape(-1))


def decode_q4_k(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 144] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_Q4_K)[:, 0]
    combine(fields(blocks["qs"].reshape(-1, 4, 32), 4), blocks, out)


def combine(q: np.ndarray, blocks: np.ndarray, out: np.ndarray) -> None:
    """out f32 [n, 256] from q u8 [n, ...] and the scales of Q4_K or Q5_K blocks."""
    d, dmin = (blocks[name].astype(np.float32)[:, None] for name in ("d", "dmin"))
    s, m = scales_and_minima(blocks["scales"])
    scaled(q, d * s, out)
    out.reshape(-1, 8, 32)[...] -= (dmin * m)[:, :, None]
