"""Random blocks of any type, also of those without an encoder: for tests of kernels and for files of random weights.

Codes are uniform over all that an encoder can write; the scales give the decoded weights about the requested standard
deviation. All weights are finite.
"""

import math
from functools import cache

import numpy as np

from ..types import TRAITS, GGMLType, row_nbytes
from . import decode, encode
from .fp4 import BLOCK_MXFP4, BLOCK_NVFP4, DOUBLED, HALF_E4M3
from .iq1 import BLOCK_IQ1_M, BLOCK_IQ1_S
from .iq2 import BLOCK_IQ2_S, BLOCK_IQ2_XS, BLOCK_IQ2_XXS
from .iq3 import BLOCK_IQ3_S, BLOCK_IQ3_XXS
from .iq4 import BLOCK_IQ4_NL, BLOCK_IQ4_XS
from .prism import BLOCK_PQ2_0, BLOCK_PTQ1_0
from .q1_0 import BLOCK_Q1_0
from .q2_0 import BLOCK_Q2_0
from .q2_k import BLOCK_Q2_K
from .q3_k import BLOCK_Q3_K
from .q4_0 import BLOCK_Q4_0
from .q4_1 import BLOCK_Q4_1
from .q4_k import BLOCK_Q4_K
from .q5 import BLOCK_Q5_0, BLOCK_Q5_1
from .q5_k import BLOCK_Q5_K
from .q6_k import BLOCK_Q6_K
from .q8_0 import BLOCK_Q8_0
from .ternary import BLOCK_TQ1_0, BLOCK_TQ2_0

# Types with one f16 scale d, or d and one for the minima.
_SCALED = {
    GGMLType.Q1_0: BLOCK_Q1_0, GGMLType.Q2_0: BLOCK_Q2_0, GGMLType.Q4_0: BLOCK_Q4_0, GGMLType.Q4_1: BLOCK_Q4_1,
    GGMLType.Q5_0: BLOCK_Q5_0, GGMLType.Q5_1: BLOCK_Q5_1, GGMLType.Q8_0: BLOCK_Q8_0, GGMLType.Q2_K: BLOCK_Q2_K,
    GGMLType.Q3_K: BLOCK_Q3_K, GGMLType.Q4_K: BLOCK_Q4_K, GGMLType.Q5_K: BLOCK_Q5_K, GGMLType.Q6_K: BLOCK_Q6_K,
    GGMLType.IQ4_NL: BLOCK_IQ4_NL, GGMLType.IQ4_XS: BLOCK_IQ4_XS, GGMLType.IQ1_S: BLOCK_IQ1_S,
    GGMLType.IQ2_XXS: BLOCK_IQ2_XXS, GGMLType.IQ2_XS: BLOCK_IQ2_XS, GGMLType.IQ2_S: BLOCK_IQ2_S,
    GGMLType.IQ3_XXS: BLOCK_IQ3_XXS, GGMLType.IQ3_S: BLOCK_IQ3_S, GGMLType.TQ1_0: BLOCK_TQ1_0,
    GGMLType.TQ2_0: BLOCK_TQ2_0, GGMLType.PQ2_0: BLOCK_PQ2_0, GGMLType.PTQ1_0: BLOCK_PTQ1_0,
}  # fmt: skip
# The field of the minima, and how many times d makes the mean of the weights 0: the mean of the codes, and for the
# types that store a minimum unchanged minus that.
_MINIMA = {
    GGMLType.Q4_1: ("m", -7.5), GGMLType.Q5_1: ("m", -15.5), GGMLType.Q2_K: ("dmin", 1.5), GGMLType.Q4_K: ("dmin", 7.5),
    GGMLType.Q5_K: ("dmin", 15.5),
}  # fmt: skip
_SPREAD = (0.75, 1.25)  # of the scales of different blocks


def random_blocks(kind: GGMLType, shape: tuple[int, ...], rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    """u8 [*shape[:-1], row_nbytes] that decode to weights of `shape` with the standard deviation `scale`.

    F32, F16 and BF16 weights are normal, I32 those rounded. The scale of a block is random too, within a quarter, and
    where weights have signs of their own it may be negative. Within about 10 % of `scale`, unless that is beyond the
    type's range: f16 scales and NVFP4's 8-bit ones end at small values. FormatError: rows that are not whole blocks.
    """
    nbytes = row_nbytes(kind, shape[-1])
    if kind is GGMLType.I32:
        return np.rint(rng.standard_normal(shape) * scale).astype("<i4").view(np.uint8)
    if TRAITS[kind].block == 1:
        return encode(kind, rng.standard_normal(shape, np.float32) * np.float32(scale))
    raw = _codes(kind, math.prod(shape[:-1]) * nbytes // TRAITS[kind].nbytes, rng)
    if kind is GGMLType.MXFP4:
        _set_mxfp4(raw, rng, scale)
    elif kind is GGMLType.NVFP4:
        target = rng.uniform(*_SPREAD, (len(raw), 4)) * (scale / _unit(kind))
        finite = HALF_E4M3[:127].astype(np.float64)
        raw.view(BLOCK_NVFP4)[:, 0]["d"] = np.searchsorted((finite[1:] + finite[:-1]) / 2, target)
    else:
        _set_scales(kind, raw, rng.uniform(*_SPREAD, len(raw)) * (scale / _unit(kind)), rng)
    return raw.reshape(*shape[:-1], nbytes)


def _codes(kind: GGMLType, n: int, rng: np.random.Generator) -> np.ndarray:
    """u8 [n, nbytes]: bytes at random, but for the codes that no encoder writes."""
    raw = rng.integers(0, 256, (n, TRAITS[kind].nbytes), np.uint8)
    if kind is GGMLType.Q8_0:
        q = raw.view(BLOCK_Q8_0)[:, 0]["qs"]
        np.maximum(q, -127, out=q)
    elif kind is GGMLType.TQ2_0:
        q = raw.view(BLOCK_TQ2_0)[:, 0]["qs"]
        q &= ~(q >> 1 & q & 0x55)  # 3 becomes 2
    return raw


def _set_scales(kind: GGMLType, raw: np.ndarray, d: np.ndarray, rng: np.random.Generator) -> None:
    """Writes d f64 [n], with random signs, into the blocks raw u8 [n, nbytes]."""
    d = np.minimum(d, 60000) * rng.choice((-1.0, 1.0), len(d))
    if kind is GGMLType.IQ1_M:
        words = raw.view(BLOCK_IQ1_M)[:, 0]["scales"]
        bits = d.astype("<f2").view(np.uint16)[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15
        words[...] = words & 0x0FFF | bits << 12
        return
    blocks = raw.view(_SCALED[kind])[:, 0]
    blocks["d"] = d
    if kind in _MINIMA:
        name, times = _MINIMA[kind]
        blocks[name] = np.clip(d * times, -60000, 60000)


def _set_mxfp4(raw: np.ndarray, rng: np.random.Generator, scale: float) -> None:
    """Two neighbouring powers of two, as often as makes the mean square right."""
    wanted = max(scale / _unit(GGMLType.MXFP4), 2.0**-128)
    low = math.floor(math.log2(wanted))
    share = ((wanted / 2.0**low) ** 2 - 1) / 3
    exponent = low + (rng.random(len(raw)) < share)
    raw.view(BLOCK_MXFP4)[:, 0]["e"] = np.clip(exponent + 128, 0, 250)


@cache
def _unit(kind: GGMLType) -> float:
    """The standard deviation of the weights where the scales are around 1, from a fixed sample."""
    if kind in (GGMLType.MXFP4, GGMLType.NVFP4):
        return float(np.sqrt(np.mean(DOUBLED.astype(np.float64) ** 2)))
    rng = np.random.default_rng(0)
    raw = _codes(kind, (1 << 18) // TRAITS[kind].block, rng)
    _set_scales(kind, raw, rng.uniform(*_SPREAD, len(raw)), rng)
    return float(decode(kind, raw).std())
