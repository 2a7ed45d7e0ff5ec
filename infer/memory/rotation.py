"""Move keys in memory to other positions: RoPE is a rotation, so a key moves by rotating it by the difference.

Factors of keys besides the rotation (the attention factor of YaRN, say) are in them already and stay.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import GROUP

LARGEST_F16 = np.float32(65504)
_CODES = 127.0  # the largest code of q8_0


@dataclass(frozen=True)
class Rotation:
    """How RoPE rotates the keys of a layer: pair i of a head by turns[i] radians per position.

    turns  f64 [n_rot / 2]
    neox   pairs are (i, i + n_rot / 2), otherwise (2 i, 2 i + 1)
    scale  f64 [d_head]: factors of the keys in memory, applied after RoPE; None: no factors. Unless all are equal, they
           do not commute with the rotation
    """

    turns: npt.NDArray[np.float64] = field(compare=False)
    neox: bool
    scale: npt.NDArray[np.float64] | None = field(default=None, compare=False)

    def turned(self, keys: npt.NDArray[np.float64], deltas: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """keys [n, head, d_head], each rotated further by `deltas` [n] positions."""
        if self.scale is not None:  # a key is 0 where its factor is
            inverse = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale != 0)
            return replace(self, scale=None).turned(keys * inverse, deltas) * self.scale
        half = len(self.turns)
        distinct, which = np.unique(deltas, return_inverse=True)
        angle = distinct[:, None].astype(np.float64) * self.turns
        c, s = np.cos(angle)[which][:, None], np.sin(angle)[which][:, None]
        first = np.arange(half) if self.neox else 2 * np.arange(half)
        second = first + (half if self.neox else 1)
        out = keys.copy()
        u, v = keys[..., first], keys[..., second]
        out[..., first] = u * c - v * s
        out[..., second] = u * s + v * c
        return out


def decoded(values: np.ndarray, scales: npt.NDArray[np.float16] | None) -> npt.NDArray[np.float64]:
    """Stored values [..., d_head] as f64; scales [..., group] if the type is q8_0."""
    x = values.astype(np.float64)
    if scales is not None:
        x *= np.repeat(scales.astype(np.float64), GROUP, axis=-1)[..., : x.shape[-1]]
    return x


def encoded(x: npt.NDArray[np.float64], dtype: np.dtype) -> tuple[np.ndarray, npt.NDArray[np.float16] | None]:
    """Inverse of `decoded`, rounded as in kernels/attention/kv.py: values of `dtype`, and for i8 their scales."""
    y = x.astype(np.float32)
    if dtype == np.float16:
        return np.where(np.isfinite(y), np.clip(y, -LARGEST_F16, LARGEST_F16), y).astype(np.float16), None
    if dtype == np.float32:
        return y, None
    n, d_head = -(-y.shape[-1] // GROUP), y.shape[-1]
    groups = np.zeros((*y.shape[:-1], n * GROUP), np.float32)
    groups[..., :d_head] = y
    groups = groups.reshape(*y.shape[:-1], n, GROUP)
    largest = np.fmax.reduce(np.abs(groups), axis=-1) / np.float32(_CODES)
    scales = np.minimum(largest, LARGEST_F16).astype(np.float16)
    wide = scales.astype(np.float32)[..., None]
    inverse = np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide > 0)
    codes = np.clip(np.nan_to_num(np.rint(groups * inverse), nan=-_CODES), -_CODES, _CODES).astype(np.int8)
    scales[~np.isfinite(groups).all(axis=-1)] = np.nan
    return codes.reshape(*y.shape[:-1], n * GROUP)[..., :d_head], scales
