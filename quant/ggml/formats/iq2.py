"""IQ2_XXS  256 weights in 66 bytes, 2.0625 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  groups   8 times, for 32 weights each:
          index  u8[4]         number p of the point of 8 weights i = 0..3
          signs  u32           7 bits from bit 7*i are the signs of weights 8*i..8*i + 7 (the eighth is their parity),
                               bits 28..31 the scale s
  w = d * (s + 0.5) / 4 * point[p] * sign

IQ2_XS  256 weights in 74 bytes, 2.3125 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  qs       u16[32]     of the 8 weights i: bits 0..8 the number of the point, bits 9..15 the signs, as above
    66  scales   u8[8]       4-bit scales s of 16 weights; byte 66 + j holds weights 32*j.. (low) and 32*j + 16.. (high)
  w = d * (s + 0.5) / 4 * point[p] * sign

IQ2_S   256 weights in 82 bytes, 2.5625 bits per weight

  byte  field    type        meaning
     0  d        f16         scale
     2  qs       u8[32]      bits 0..7 of the number of the point of the 8 weights i
    34  signs    u8[32]      their signs: bit k set for a minus at weight 8*i + k
    66  qh       u8[8]       bits 8 and 9 of the number; byte 66 + j holds i = 4*j + l in bits 2*l, l = 0..3
    74  scales   u8[8]       as in IQ2_XS
  w = d * (s + 0.5) / 4 * point[p] * sign

Points and the rule of the signs: grids.py. 0.5 and the quarter are exact in f32, d * (s + 0.5) is rounded once.

Encoders: bytes equal to ggml's reference. IQ2_XXS and IQ2_XS, which ggml does not write without importance, take all
columns as equal then.
"""

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..types import GGMLType
from .grids import points, sign_bytes, signs
from .k_fit import block_weights
from .unpack import pairs, scaled

if TYPE_CHECKING:
    from ..kernels.points import Search

BLOCK_IQ2_XXS = np.dtype([("d", "<f2"), ("groups", [("index", "u1", (4,)), ("signs", "<u4")], (8,))])
assert BLOCK_IQ2_XXS.itemsize == 66

BLOCK_IQ2_XS = np.dtype([("d", "<f2"), ("qs", "<u2", (32,)), ("scales", "u1", (8,))])
assert BLOCK_IQ2_XS.itemsize == 74

BLOCK_IQ2_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", (32,)), ("signs", "u1", (32,)), ("qh", "u1", (8,)), ("scales", "u1", (8,))]
)
assert BLOCK_IQ2_S.itemsize == 82

_SEVENS = np.array([0, 7, 14, 21], np.uint32)
_TWOS = np.array([0, 2, 4, 6], np.uint8)


def packed_signs(word: np.ndarray) -> np.ndarray:
    """word u32 [n, 8] -> sign bytes u8 [n, 32] of its four 7-bit codes (IQ2_XXS, IQ3_XXS)."""
    return np.take(sign_bytes(), (word[:, :, None] >> _SEVENS & 127).reshape(len(word), 32), mode="clip")


def decode_iq2_xxs(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 66] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ2_XXS)[:, 0]
    word = blocks["groups"]["signs"]
    q = points(GGMLType.IQ2_XXS, blocks["groups"]["index"].reshape(-1, 32))
    q *= signs(packed_signs(word))
    scaled(q, _quarters(blocks["d"], word >> 28), out)


def decode_iq2_xs(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 74] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ2_XS)[:, 0]
    qs = blocks["qs"]
    q = points(GGMLType.IQ2_XS, qs & 511)
    q *= signs(np.take(sign_bytes(), qs >> 9, mode="clip"))
    scaled(q, _quarters(blocks["d"], pairs(blocks["scales"])), out)


def decode_iq2_s(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 82] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_IQ2_S)[:, 0]
    high = (blocks["qh"][:, :, None] >> _TWOS & 3).reshape(-1, 32)
    q = points(GGMLType.IQ2_S, high.astype(np.uint16) << 8 | blocks["qs"])
    q *= signs(blocks["signs"])
    scaled(q, _quarters(blocks["d"], pairs(blocks["scales"])), out)


def _quarters(d: np.ndarray, s: np.ndarray) -> np.ndarray:
    """d f16 [n], s [n, groups] -> d * (s + 0.5) / 4 in f32."""
    return d.astype(np.float32)[:, None] * (s.astype(np.float32) + np.float32(0.5)) * np.float32(0.25)


@cache
def _search(kind: GGMLType) -> "Search":
    from ..kernels.points import ALL, OFF_GRID, Search, tries

    return {
        GGMLType.IQ2_XXS: Search(32, True, tries(5, 6, 0.1), 1e-15, ALL),
        GGMLType.IQ2_XS: Search(16, True, tries(5, 9, 0.1), 1e-15, OFF_GRID),
        GGMLType.IQ2_S: Search(16, False, tries(5, 9, 0.1), 1e-8, OFF_GRID),
    }[kind]


def _fitted(kind: GGMLType, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, w f32 [n, 256] -> d f32 [n], s u8 [n, groups], numbers of points u16 [n, 32], signs u8 [n, 32]."""
    from ..kernels.codebooks import codebook
    from ..kernels.points import even_scales, fit_points

    scales, numbers, minus = fit_points(x, w, _search(kind), codebook(kind))
    d, s = even_scales(scales, 15)
    return d, s, numbers, minus


def _ones(x: np.ndarray) -> np.ndarray:
    return np.ones((1, x.shape[1]), np.float32)


def encode_iq2_xxs(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 66]."""
    w = block_weights(x, _ones(x) if importance is None else importance, 1)
    d, s, numbers, minus = _fitted(GGMLType.IQ2_XXS, x, w)
    blocks = out.view(BLOCK_IQ2_XXS)[:, 0]
    blocks["d"] = d
    some = (d > 0)[:, None]
    blocks["groups"]["index"] = np.where(some, numbers, 0).reshape(-1, 8, 4)
    blocks["groups"]["signs"] = np.where(some, sign_words(minus, s), 0)


def sign_words(minus: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The reverse of `packed_signs`, with scales u8 [n, 8] in the upper bits."""
    codes = (minus & 127).reshape(-1, 8, 4).astype(np.uint32)
    word: np.ndarray = (codes << _SEVENS).sum(axis=2, dtype=np.uint32) | s.astype(np.uint32) << 28
    return word


def encode_iq2_xs(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 74]."""
    w = block_weights(x, _ones(x) if importance is None else importance, 1)
    d, s, numbers, minus = _fitted(GGMLType.IQ2_XS, x, w)
    blocks = out.view(BLOCK_IQ2_XS)[:, 0]
    blocks["d"] = d
    blocks["qs"] = np.where((d > 0)[:, None], numbers | (minus & 127).astype(np.uint16) << 9, 0)
    blocks["scales"] = s[:, ::2] | s[:, 1::2] << 4


def encode_iq2_s(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x, importance f32 [n, 256] -> out u8 [n, 82]."""
    if importance is None:
        from ..kernels.columns import row_sums

        w = x * x + (row_sums(x, squares=True) * np.float32(0.5 / 256))[:, None]
    else:
        w = block_weights(x, importance, 2)
    d, s, numbers, minus = _fitted(GGMLType.IQ2_S, x, w)
    blocks = out.view(BLOCK_IQ2_S)[:, 0]
    # ggml makes the scales a little smaller than the search says
    blocks["d"] = d * np.float32(0.9875)
    blocks["qs"], blocks["signs"] = numbers & 255, minus
    blocks["qh"] = ((numbers >> 8).astype(np.uint8).reshape(-1, 8, 4) << _TWOS).sum(axis=2, dtype=np.uint8)
    blocks["scales"] = s[:, ::2] | s[:, 1::2] << 4
