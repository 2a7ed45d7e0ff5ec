"""Q5_K    256 weights in 176 bytes, 5.5 bits per weight

byte  field   type      meaning
   0  d       f16       scale of the scales
   2  dmin    f16       scale of the minima
   4  scales  u8[12]    6-bit scales s[j] and minima m[j] of the 32 weights j, packed as in Q4_K
  16  qh      u8[32]    bit 4 of q; byte 16 + k holds weights 32*j + k in bit j, j = 0..7
  48  qs      u8[128]   bits 0..3 of q; byte 48 + 32*g + k holds weights 64*g + k (low) and 64*g + 32 + k (high)
w[32*j + k] = d * s[j] * q[32*j + k] - dmin * m[j]        j = 0..7, k = 0..31

Encoder: bytes equal to ggml's reference, without importance (`quantize_row_q5_K_ref`) and with it (`_impl`).
"""

import numpy as np

from .k_fit import Minima, fit_minima
from .q4_k import combine
from .unpack import fields

BLOCK_Q5_K = np.dtype(
    [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qh", "u1", (32,)), ("qs", "u1", (128,))]
)
assert BLOCK_Q5_K.itemsize == 176


_FIT = Minima(k=32, top=31, levels=63, search=(-0.5, 0.1, 15))


def encode_q5_k(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 176]."""
    from ..kernels.k_encoders import put_q5_k

    put_q5_k(x.reshape(-1), *fit_minima(x, importance, _FIT), out.reshape(-1))


def decode_q5_k(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 176] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_Q5_K)[:, 0]
    q = fields(blocks["qs"].reshape(-1, 4, 32), 4)
    q |= fields(blocks["qh"], 1, at=4).reshape(q.shape)
    combine(q, blocks, out)
