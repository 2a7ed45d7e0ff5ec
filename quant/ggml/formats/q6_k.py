"""Q6_K    256 weights in 210 bytes, 6.5625 bits per weight

byte  field   type      meaning
   0  ql      u8[128]   bits 0..3 of q; byte 64*h + k holds weights 128*h + k (low) and 128*h + 64 + k (high)
 128  qh      u8[64]    bits 4, 5 of q; byte 128 + 32*h + k holds weights 128*h + 32*i + k in bits 2*i, i = 0..3
 192  scales  i8[16]    scale s[j] of the 16 weights j
 208  d       f16       scale of the scales
w[16*j + k] = d * s[j] * (q[16*j + k] - 32)               j = 0..15, k = 0..15

Encoder: bytes equal to ggml's reference, without importance (`quantize_row_q6_K_ref`) and with it (`_impl`).
"""

import numpy as np

from .unpack import fields, scaled

BLOCK_Q6_K = np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), ("d", "<f2")])
assert BLOCK_Q6_K.itemsize == 210


def encode_q6_k(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 210]."""
    from ..kernels.k_encoders import even_signed, put_q6_k
    from ..kernels.symmetric import symmetric

    rows = x.reshape(-1, 16)
    scales, q = symmetric(rows, rows * rows if importance is None else importance.reshape(rows.shape), 32)
    d, s = np.empty(len(x), np.float32), np.empty(len(rows), np.int32)
    even_signed(scales, -128, d, s)
    put_q6_k(x.reshape(-1), scales, d, s, q.reshape(-1), out.reshape(-1))


def decode_q6_k(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 210] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_Q6_K)[:, 0]
    q = fields(blocks["ql"].reshape(-1, 2, 2, 32), 4).swapaxes(2, 3)
    q |= fields(blocks["qh"].reshape(-1, 2, 32), 2, at=4).reshape(q.shape)
    signed = q.view(np.int8)
    signed -= 32
    scaled(signed, blocks["d"].astype(np.float32)[:, None] * blocks["scales"], out)
