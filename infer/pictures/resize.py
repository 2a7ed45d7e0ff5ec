"""Resizes pictures with antialiasing, to the bit as torchvision does on bytes.

Two passes, columns first, each rounded and clamped to bytes. An output at i is centred at (i + 1/2) s, s = in / out; it
sums inputs within r max(s, 1) of there, r being the filter's radius, with weights f((j + 1/2 - centre) / max(s, 1)),
scaled to a sum of 1 and rounded to whole units of 2^-bits, half away from zero: as many bits, up to 22, as let the
largest weight stay below 2^15. Filters as in Pillow: bicubic has a = -1/2, lanczos three lobes.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

MOST_BITS, WEIGHT_BITS = 22, 15


class Taps(NamedTuple):
    """Output i sums inputs first[i] to first[i] + counts[i] - 1 by weights i32 [output, tap], in units of 2^-bits."""

    first: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    bits: int


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - x, 0))


def _bicubic(x: np.ndarray) -> np.ndarray:
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "bilinear": (_bilinear, 1),
    "bicubic": (_bicubic, 2),
    "lanczos": (_lanczos, 3),
}


@lru_cache(maxsize=16)
def taps(n_in: int, n_out: int, resample: str) -> Taps:
    """The sums of one pass from n_in to n_out pixels. resample: bilinear, bicubic or lanczos."""
    weight, radius = _FILTERS[resample]
    scale = n_in / n_out
    stretch = max(scale, 1.0)
    support = radius * stretch
    centre = (np.arange(n_out) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)  # towards zero
    count = np.minimum((centre + support + 0.5).astype(np.int64), n_in) - first
    at = np.arange(count.max())
    distance = np.abs(first[:, None] + at - centre[:, None] + 0.5) / stretch
    shares = np.where(at < count[:, None], weight(distance), 0)
    shares /= shares.sum(axis=1, keepdims=True)
    largest, bits = float(shares.max()), 0
    while bits < MOST_BITS and int(largest * 2.0 ** (bits + 1) + 0.5) < 1 << WEIGHT_BITS:
        bits += 1
    whole = np.trunc(shares * 2.0**bits + np.copysign(0.5, shares))
    return Taps(first.astype(np.int32), count.astype(np.int32), whole.astype(np.int32), bits)


def resize(rgb: np.ndarray, height: int, width: int, resample: str) -> np.ndarray:
    """rgb u8 [h, w, 3] -> u8 [height, width, 3]; the same array if no side changes."""
    if resample == "nearest":
        return _nearest(rgb, height, width)
    from hybrid.quant.ggml.kernels.resampling import sum_columns, sum_rows  # imports numba

    h, w = rgb.shape[:2]
    if w != width:
        sums, columns = taps(w, width, resample), np.empty((h, width, 3), np.uint8)
        sum_columns(np.ascontiguousarray(rgb), sums.first, sums.counts, sums.weights, np.int32(sums.bits), columns)
        rgb = columns
    if h != height:
        sums, rows = taps(h, height, resample), np.empty((height, 3 * width), np.uint8)
        sum_rows(rgb.reshape(h, -1), sums.first, sums.counts, sums.weights, np.int32(sums.bits), rows)
        rgb = rows.reshape(height, width, 3)
    return rgb


def _nearest(rgb: np.ndarray, height: int, width: int) -> np.ndarray:
    """The pixel that an output's centre lies in."""
    h, w = rgb.shape[:2]
    if (h, w) == (height, width):
        return rgb
    rows, columns = ((2 * np.arange(out) + 1) * n // (2 * out) for n, out in ((h, height), (w, width)))
    return np.asarray(rgb[rows[:, None], columns])
