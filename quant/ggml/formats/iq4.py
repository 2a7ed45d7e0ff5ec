"""IQ4_NL  32 weights in 18 bytes, 4.5 bits per weight: the code chooses one of 16 unequal steps

  byte  field     type      meaning
     0  d         f16       scale
     2  qs        u8[16]    4-bit q; byte 2 + k holds weight k (low) and weight k + 16 (high)
  w[k] = d * STEPS[q[k]]

IQ4_XS  256 weights in 136 bytes, 4.25 bits per weight: the same steps, a 6-bit scale for 32 weights

  byte  field     type      meaning
     0  d         f16       scale of the scales
     2  scales_h  u16       bits 4 and 5 of s[j] are its bits 2*j and 2*j + 1
     4  scales_l  u8[4]     bits 0..3 of s[j]; byte 4 + i holds s[2*i] (low) and s[2*i + 1] (high)
     8  qs        u8[128]   4-bit q; byte 8 + 16*j + k holds weights 32*j + k (low) and 32*j + 16 + k (high)
  w[32*j + k] = d * (s[j] - 32) * STEPS[q[32*j + k]]        j = 0..7, k = 0..31

The steps are llama.cpp's (PR #5590), fitted to the weights of trained models.

Encoders: bytes equal to what llama-quantize writes (`quantize_iq4_nl`, `quantize_iq4_xs`, 15 tries for a scale), with
importance and without. `quantize_row_iq4_nl_ref`, which tries one, is not used by it.
"""

import numpy as np

from .largest import largest
from .unpack import fields, pairs, scaled

STEPS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)

BLOCK_IQ4_NL = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
assert BLOCK_IQ4_NL.itemsize == 18

BLOCK_IQ4_XS = np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", (4,)), ("qs", "u1", (128,))])
assert BLOCK_IQ4_XS.itemsize == 136

_TRIES = 7
_SHIFTS = np.arange(0, 16, 2, dtype=np.uint16)


def encode_iq4_nl(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 32] -> out u8 [n, 18]."""
    scales = _scales(x, x, importance)
    blocks = out.view(BLOCK_IQ4_NL)[:, 0]
    blocks["d"] = scales
    q = _codes(x, scales)
    blocks["qs"] = q[:, :16] | q[:, 16:] * np.uint8(16)


def encode_iq4_xs(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 136]."""
    rows = x.reshape(-1, 32)
    scales = _scales(x, rows, importance).reshape(-1, 8)
    d = -largest(scales) / np.float32(32)
    s = np.clip(np.rint(_inverse(d)[:, None] * scales), -32, 31)
    q = _codes(rows, (d[:, None] * s).reshape(-1).astype(np.float32)).reshape(-1, 8, 32)
    bits = s.astype(np.int32) + 32
    blocks = out.view(BLOCK_IQ4_XS)[:, 0]
    blocks["d"] = d
    blocks["scales_l"] = bits[:, ::2] & 15 | (bits[:, 1::2] & 15) << 4
    blocks["scales_h"] = ((bits >> 4) << _SHIFTS).sum(axis=1)
    blocks["qs"] = (q[..., :16] | q[..., 16:] * np.uint8(16)).reshape(len(x), -1)


def _scales(x: np.ndarray, rows: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """The scales of `rows` of 32 weights; x f32 [n, k]: the blocks that contain these rows."""
    from ..kernels.columns import row_sums, row_weights
    from ..kernels.steps import steps

    if importance is None:
        w = rows * rows
    else:
        mean_square = row_sums(x, squares=True) * np.float32(2 / x.shape[1])
        w = row_weights(x, importance.reshape(x.shape), mean_square).reshape(rows.shape)
    return steps(rows, w, STEPS, _TRIES)


def _inverse(d: np.ndarray) -> np.ndarray:
    inverse: np.ndarray = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    return inverse


def _codes(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The nearest steps, u8 [n, 32]."""
    from ..kernels.steps import nearest_steps

    return nearest_steps(rows, _inverse(scales), STEPS)


def decode_iq4_nl(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 18] -> out f32 [n, 32]."""
    blocks = raw.view(BLOCK_IQ4_NL)[:, 0]
    scaled(np.take(STEPS, fields(blocks["qs"], 4), mode="clip"), blocks["d"].astype(np.float32)[:, None], out)


def scales_iq4_xs(blocks: np.ndarray) -> np.ndarray:
    """s - 32, i8 [n, 8]."""
    s = pairs(blocks["scales_l"])
    s |= (blocks["scales_h"][:, None] >> _SHIFTS & 3).astype(np.uint8) << 4
    signed = s.view(np.int8)
    signed -= 32
    return signed


def decode_iq4_xs(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 136] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ4_XS)[:, 0]
    steps = np.take(STEPS, fields(blocks["qs"].reshape(-1, 8, 16), 4), mode="clip")
    scaled(steps, blocks["d"].astype(np.float32)[:, None] * scales_iq4_xs(blocks), out)
