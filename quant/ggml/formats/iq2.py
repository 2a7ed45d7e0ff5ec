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
"""

import numpy as np

from ..types import GGMLType
from .grids import points, sign_bytes, signs
from .unpack import pairs, scaled

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
