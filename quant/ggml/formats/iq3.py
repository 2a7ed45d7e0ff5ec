"""IQ3_XXS  256 weights in 98 bytes, 3.0625 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  qs       u8[64]      number p of the point of the 4 weights i = 0..63
    66  signs    u32[8]      of 32 weights: four times 7 bits of signs and the scale s in bits 28..31, as in IQ2_XXS
  w = d * (s + 0.5) / 2 * point[p] * sign

IQ3_S   256 weights in 110 bytes, 3.4375 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  qs       u8[64]      bits 0..7 of the number p of the point of the 4 weights i = 0..63
    66  qh       u8[8]       bit 8 of the number; byte 66 + j holds i = 8*j + l in bit l, l = 0..7
    74  signs    u8[32]      bit k of byte 74 + i set for a minus at weight 8*i + k
   106  scales   u8[4]       4-bit scales s of 32 weights; byte 106 + j holds weights 64*j.. (low), 64*j + 32.. (high)
  w = d * (2 * s + 1) * point[p] * sign

Points and the rule of the signs: grids.py. Encoders: bytes equal to ggml's reference.
"""

import numpy as np

from ..types import GGMLType
from .grids import points, signs
from .iq2 import packed_signs, sign_words
from .k_fit import block_weights
from .unpack import pairs, scaled

BLOCK_IQ3_XXS = np.dtype([("d", "<f2"), ("qs", "u1", (64,)), ("signs", "<u4", (8,))])
assert BLOCK_IQ3_XXS.itemsize == 98

BLOCK_IQ3_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", (64,)), ("qh", "u1", (8,)), ("signs", "u1", (32,)), ("scales", "u1", (4,))]
)
assert BLOCK_IQ3_S.itemsize == 110


def decode_iq3_xxs(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 98] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ3_XXS)[:, 0]
    word = blocks["signs"]
    q = points(GGMLType.IQ3_XXS, blocks["qs"])
    q *= signs(packed_signs(word))
    s = (word >> 28).astype(np.float32) + np.float32(0.5)
    scaled(q, blocks["d"].astype(np.float32)[:, None] * s * np.float32(0.5), out)


def decode_iq3_s(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 110] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ3_S)[:, 0]
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    q = points(GGMLType.IQ3_S, high.astype(np.uint16) << 8 | blocks["qs"])
    q *= signs(blocks["signs"])
    s = pairs(blocks["scales"]) * np.uint8(2) + np.uint8(1)
    scaled(q, blocks["d"].astype(np.float32)[:, None] * s, out)


def _weights(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    return x * x if importance is None else block_weights(x, importance, 2)


def encode_iq3_xxs(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 98]."""
    from ..kernels.codebooks import codebook
    from ..kernels.points import OFF_GRID, Search, even_scales, fit_points, tries

    how = Search(32, True, tries(15, 15, 0.2), 1e-8, OFF_GRID)
    scales, numbers, minus = fit_points(x, _weights(x, importance), how, codebook(GGMLType.IQ3_XXS))
    d, s = even_scales(scales, 15)
    some = (d > 0)[:, None]
    blocks = out.view(BLOCK_IQ3_XXS)[:, 0]
    # ggml makes the scales of IQ3 a little greater than the search says
    blocks["d"] = d * np.float32(1.0125)
    blocks["qs"] = np.where(some, numbers, 0)
    blocks["signs"] = np.where(some, sign_words(minus, s), 0)


def encode_iq3_s(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 110]."""
    from ..kernels.codebooks import codebook
    from ..kernels.points import ALL_IF_OFF_GRID, Search, even_scales, fit_points, tries

    how = Search(32, False, tries(15, 9, 0.2), 1e-45, ALL_IF_OFF_GRID)
    scales, numbers, minus = fit_points(x, _weights(x, importance), how, codebook(GGMLType.IQ3_S))
    d, s = even_scales(scales, 15)
    blocks = out.view(BLOCK_IQ3_S)[:, 0]
    blocks["d"] = d * np.float32(1.033)
    blocks["qs"] = numbers & 255
    blocks["qh"] = np.packbits((numbers >> 8).astype(np.uint8), axis=1, bitorder="little")
    blocks["signs"] = minus
    blocks["scales"] = s[:, ::2] | s[:, 1::2] << 4
