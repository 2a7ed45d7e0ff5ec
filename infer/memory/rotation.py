"""Move keys in memory to other positions: RoPE is a rotation, so a key moves by rotating it by the difference.

Factors of keys besides the rotation (the attention factor of YaRN, say) are in them already and stay.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt


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
