"""Q3_K    256 weights in 110 bytes, 3.4375 bits per weight

byte  field   type      meaning
   0  hmask   u8[32]    bit 2 of q; byte k holds weights 32*i + k in bit i, i = 0..7
  32  qs      u8[64]    bits 0 and 1 of q; byte 32 + 32*h + k holds weights 128*h + 32*i + k in bits 2*i, i = 0..3
  96  scales  u8[12]    6-bit scales s[j]: bits 0..3 are in byte 96 + j % 8 (low for j < 8, high for the others),
                        bits 4 and 5 in byte 104 + j % 4, from bit 2 * (j // 4) on
 108  d       f16       scale of the scales
w[16*j + k] = d * (s[j] - 32) * (q[16*j + k] - 4)         j = 0..15, k = 0..15

Encoder: bytes equal to ggml's reference, without importance (`quantize_row_q3_K_ref`) and with it (`_impl`).
"""

import numpy as np

from .k_fit import block_weights
from .unpack import fields, scaled

BLOCK_Q3_K = np.dtype([("hmask", "u1", (32,)), ("qs", "u1", (64,)), ("scales", "u1", (12,)), ("d", "<f2")])
assert BLOCK_Q3_K.itemsize == 110


def scales_q3_k(packed: np.ndarray) -> np.ndarray:
    """packed u8 [n, 12] -> s - 32, i8 [n, 16]."""
    words = packed.view("<u4")  # four scales at a time
    s = np.empty((len(packed), 4), np.uint32)
    for i in range(4):
        s[:, i] = words[:, i % 2] >> 4 * (i // 2) & 0x0F0F0F0F
        s[:, i] |= (words[:, 2] >> 2 * i & 0x03030303) << 4
    signed = s.view(np.int8)
    signed -= 32
    return signed


def encode_q3_k(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 110]."""
    from ..kernels.columns import row_sums
    from ..kernels.k_encoders import even_signed, put_q3_k
    from ..kernels.symmetric import symmetric, symmetric_refined

    rows = x.reshape(-1, 16)
    if importance is None:
        scales, q = symmetric_refined(rows, 4)
        d, s = np.empty(len(x), np.float32), np.empty(len(rows), np.int32)
        even_signed(scales, -32, d, s)
    else:
        w = block_weights(x, importance, 2).reshape(rows.shape)
        scales, q = symmetric(rows, w, 4)
        wide, codes = symmetric(scales.reshape(-1, 16), row_sums(w).reshape(-1, 16), 32)
        d, s = wide.astype("<f2").astype(np.float32), codes.reshape(-1).astype(np.int32) - 32
    put_q3_k(x.reshape(-1), d, s, q.reshape(-1), out.reshape(-1))


def decode_q3_k(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 110] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_Q3_K)[:, 0]
    q = fields(blocks["qs"].reshape(-1, 2, 32), 2)
    q |= fields(blocks["hmask"], 1, at=2).reshape(q.shape)
    signed = q.view(np.int8)
    signed -= 4
    scaled(signed, blocks["d"].astype(np.float32)[:, None] * scales_q3_k(blocks["scales"]), out)
