"""Q2_K    256 weights in 84 bytes, 2.625 bits per weight

byte  field   type      meaning
   0  scales  u8[16]    of the 16 weights j: 4-bit scale s[j] (low) and 4-bit minimum m[j] (high)
  16  qs      u8[64]    2-bit q; byte 16 + 32*h + k holds weights 128*h + 32*i + k in bits 2*i, i = 0..3
  80  d       f16       scale of the scales
  82  dmin    f16       scale of the minima
w[16*j + k] = d * s[j] * q[16*j + k] - dmin * m[j]        j = 0..15, k = 0..15

Encoder: bytes equal to ggml's reference, without importance (`quantize_row_q2_K_ref`) and with it (`_impl`).
"""

import numpy as np

from .k_fit import Minima, fit_minima
from .unpack import fields, scaled

BLOCK_Q2_K = np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), ("d", "<f2"), ("dmin", "<f2")])
assert BLOCK_Q2_K.itemsize == 84


_FIT = Minima(k=16, top=3, levels=15, search=(-0.5, 0.1, 15))


def encode_q2_k(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 84]."""
    from ..kernels.k_encoders import put_q2_k

    put_q2_k(x.reshape(-1), *fit_minima(x, importance, _FIT), out.reshape(-1))


def decode_q2_k(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 84] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_Q2_K)[:, 0]
    d, dmin = (blocks[name].astype(np.float32)[:, None] for name in ("d", "dmin"))
    scales = blocks["scales"]
    scaled(fields(blocks["qs"].reshape(-1, 2, 32), 2), d * (scales & 15), out)
    out.reshape(-1, 16, 16)[...] -= (dmin * (scales >> 4))[:, :, None]
