"""PQ2_0   128 weights in 34 bytes, 2.125 bits per weight: Q2_0 with one scale for 128 weights (PrismML's llama.cpp)

  byte  field  type     meaning
     0  d      f16      scale
     2  qs     u8[32]   2-bit q; byte 2 + k holds weights 4*k, 4*k + 1, 4*k + 2, 4*k + 3 from its lowest bits up
  w[k] = d * (q[k] - 1)

PTQ1_0  128 weights in 28 bytes, 1.75 bits per weight: TQ1_0 with stages of 16 and 8 bytes

  byte  field  type     meaning
     0  qs     u8[24]   byte k holds weights 16*i + k, k < 16; byte 16 + k weights 80 + 8*i + k, k < 8; i = 0..4
    24  qh     u8[2]    byte 24 + k holds weights 120 + 2*i + k, i = 0..3
    26  d      f16      scale
  digits of a byte: see TQ1_0
  w = d * (digit - 1)

Encoders: a block of weights that are all -d, 0 or d is kept exactly, with PrismML's bytes: d = the largest magnitude.
In other blocks d has the least squared error that a few steps find, for the importance of the weights if there is any,
and weights beyond it are clipped: the largest magnitude would make most weights 0.
"""

import numpy as np

from .largest import largest
from .q2_0 import decode_fours, packed_fours, ternary
from .ternary import Runs, decode_digits, put_digits

BLOCK_PQ2_0 = np.dtype([("d", "<f2"), ("qs", "u1", (32,))])
assert BLOCK_PQ2_0.itemsize == 34

BLOCK_PTQ1_0 = np.dtype([("qs", "u1", (24,)), ("qh", "u1", (2,)), ("d", "<f2")])
assert BLOCK_PTQ1_0.itemsize == 28

_RUNS: Runs = ((slice(0, 16), 5, 0), (slice(16, 24), 5, 80), (slice(24, 26), 4, 120))
_STEPS = 6
_FIRST = 1.25  # times the mean magnitude: the best scale of weights from a normal distribution is near it


def _scales(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """x f32 [n, 128] -> f32 [n]: the scale of each block."""
    size = np.abs(x)
    d: np.ndarray = np.abs(largest(x))
    others = ((size != 0) & (size != d[:, None])).any(axis=1)
    if not others.any():
        return d
    x, size = x[others], size[others]
    weight = np.ones_like(x) if importance is None else importance[others]
    best, least = d[others], np.full(len(x), np.inf, np.float32)
    scale = np.float32(_FIRST) * size.mean(axis=1)
    for _ in range(_STEPS):
        scale = scale.astype(np.float16).astype(np.float32)
        used = (size > scale[:, None] / 2).astype(np.float32)
        error = (weight * (size - used * scale[:, None]) ** 2).sum(axis=1)
        better = error < least
        best, least = np.where(better, scale, best), np.where(better, error, least)
        share = (weight * used).sum(axis=1)
        scale = np.divide((weight * used * size).sum(axis=1), share, out=scale, where=share > 0)
    d[others] = best
    return d


def _digits(x: np.ndarray, importance: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """x f32 [n, 128] -> u8 [n, 128] of 0, 1, 2 and scales f32 [n]."""
    d = _scales(x, importance)
    return ternary(np.clip(x, -d[:, None], d[:, None]), d), d


def encode_pq2_0(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x f32 [n, 128] -> out u8 [n, 34]."""
    blocks = out.view(BLOCK_PQ2_0)[:, 0]
    q, blocks["d"] = _digits(x, importance)
    blocks["qs"] = packed_fours(q)


def decode_pq2_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 34] -> out f32 [n, 128]."""
    decode_fours(raw.view(BLOCK_PQ2_0)[:, 0], out)


def encode_ptq1_0(x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x f32 [n, 128] -> out u8 [n, 28]."""
    digits, out.view(BLOCK_PTQ1_0)[:, 0]["d"] = _digits(x, importance)
    put_digits(digits, _RUNS, out)


def decode_ptq1_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 28] -> out f32 [n, 128]."""
    decode_digits(raw, _RUNS, raw.view(BLOCK_PTQ1_0)[:, 0]["d"], out)
