"""The weights that set a block's scale.

By argmax because numpy's has a SIMD loop for short rows, and its max over them is seven times slower.
"""

import numpy as np


def largest(x: np.ndarray) -> np.ndarray:
    """x f32 [n, block] -> f32 [n]: the first weight of largest magnitude in a block, with its sign; 0 is never -0."""
    index = np.abs(x).argmax(axis=1)
    signed = np.take_along_axis(x, index[:, None], axis=1)[:, 0]
    signed += 0
    return signed


def extremes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x f32 [n, block] -> least and greatest weight of each block, f32 [n] each; of 0 and -0 the first."""
    least, greatest = (
        np.take_along_axis(x, index[:, None], axis=1)[:, 0] for index in (x.argmin(axis=1), x.argmax(axis=1))
    )
    return least, greatest
