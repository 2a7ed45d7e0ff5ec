"""The code books of IQ1, IQ2 and IQ3: a code is the number of a point of 8 (or 4) weights, then come signs.

The points were chosen by llama.cpp's authors from the weights of trained models. They follow no rule, so they are read
from the gguf package, which is where the tables of ggml are published.
"""

from functools import cache

import numpy as np

from ..types import GGMLType

# The gguf package's names for the points of each type. IQ1_M uses IQ1_S's points.
_SOURCE = {
    GGMLType.IQ1_S: "IQ1_S",
    GGMLType.IQ1_M: "IQ1_S",
    GGMLType.IQ2_XXS: "IQ2_XXS",
    GGMLType.IQ2_XS: "IQ2_XS",
    GGMLType.IQ2_S: "IQ2_S",
    GGMLType.IQ3_XXS: "IQ3_XXS",
    GGMLType.IQ3_S: "IQ3_S",
}


@cache
def grid(kind: GGMLType) -> np.ndarray:
    """The points of a type, i8 [points, weights], read-only, C order.

    IQ1_S, IQ1_M   2048 x 8   -1, 0, 1
    IQ2_XXS         256 x 8   8, 25, 43
    IQ2_XS          512 x 8   8, 25, 43
    IQ2_S          1024 x 8   8, 25, 43
    IQ3_XXS         256 x 4   4, 12, 20, 28, 36, 44, 52, 62
    IQ3_S           512 x 4   1, 3, 5, 7, 9, 11, 13, 15
    """
    # Read when first needed: the package costs a tenth of a second.
    from gguf import quants

    source = getattr(quants, _SOURCE[kind])
    source.init_grid()
    points = np.ascontiguousarray(source.grid.reshape(source.grid_shape), dtype=np.int8)
    points.flags.writeable = False
    return points


@cache
def sign_bytes() -> np.ndarray:
    """u8 [128]: the 8 sign bits that a 7-bit code stands for.

    The number of minus signs of 8 weights is always even, so that bit 7 is the parity of the other seven.
    """
    code = np.arange(128, dtype=np.uint8)
    parity: np.ndarray = np.unpackbits(code[:, None], axis=1).sum(axis=1) & 1
    return code | (parity << 7).astype(np.uint8)


@cache
def sign_factors() -> np.ndarray:
    """i8 [256, 8]: -1 for the weights whose bit is set (weight j has bit j), 1 for the others."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.int8(1) - np.int8(2) * bits.view(np.int8)


def points(kind: GGMLType, index: np.ndarray) -> np.ndarray:
    """index [n, k] -> i8 [n, k * weights of a point]."""
    return _rows(grid(kind), index)


def signs(byte: np.ndarray) -> np.ndarray:
    """byte u8 [n, k] -> i8 [n, 8 * k] of -1 and 1."""
    return _rows(sign_factors(), byte)


def _rows(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    # A row as one integer: taking those is ten times faster than taking rows. All indices are in range.
    row = table.view(f"u{table.shape[1]}")[:, 0]
    return np.take(row, index, mode="clip").view(np.int8).reshape(len(index), -1)
