"""Places of patches: their order, learned positions for grids of other sizes, and rotations by row and column.

Patches of a grid of rows x columns are in raster order, or block by block: blocks of m x m patches in raster order, and
in each block its patches in raster order.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def block_order(rows: int, columns: int, m: int) -> Ints:
    """Raster numbers of the patches, block by block."""
    grid = np.arange(rows * columns).reshape(rows // m, m, columns // m, m)
    return grid.transpose(0, 2, 1, 3).reshape(-1)


def cornered(table: Floats, rows: int, columns: int) -> Floats:
    """A square table of positions, f32 [side * side, n], for another grid: bilinear, the corners stay corners."""
    side = round(len(table) ** 0.5)
    grid = table.reshape(side, side, -1)
    parts = []
    for size in (rows, columns):
        at = np.linspace(0, side - 1, size, dtype=np.float32)
        low = at.astype(np.int64)
        parts.append((low, np.minimum(low + 1, side - 1), at - low.astype(np.float32)))
    (top, bottom, down), (left, right, across) = parts
    down, across = down[:, None, None], across[None, :, None]
    one = np.float32(1)
    whole: Floats = (
        grid[top][:, left] * ((one - down) * (one - across))
        + grid[top][:, right] * ((one - down) * across)
        + grid[bottom][:, left] * (down * (one - across))
        + grid[bottom][:, right] * (down * across)
    )
    return whole.reshape(rows * columns, -1)


def smoothed(table: Floats, rows: int, columns: int) -> Floats:
    """A square table of positions, f32 [side * side, n], for another grid: bilinear, smoothed if it is smaller."""
    side = round(len(table) ** 0.5)
    down, across = (_triangles(side, size) for size in (rows, columns))
    whole: Floats = np.einsum("ry,cx,yxn->rcn", down, across, table.reshape(side, side, -1), optimize=True)
    return whole.reshape(rows * columns, -1).astype(np.float32)


def _triangles(n: int, size: int) -> npt.NDArray[np.float64]:
    """Weights of n values for each of `size` values."""
    scale = n / size
    width = max(scale, 1.0)
    weights = np.zeros((size, n))
    for i in range(size):
        centre = (i + 0.5) * scale
        low, high = max(0, int(centre - width + 0.5)), min(n, int(centre + width + 0.5))
        taps = np.arange(low, high)
        weights[i, low:high] = np.maximum(0, 1 - np.abs((taps - centre + 0.5) / width))
    shares: npt.NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return shares


def turns(places: Ints, n: int, freq_base: float) -> Floats:
    """cos and sin, f32 [patch, n / 2, 2], of n values that rotate by one coordinate: pair i by
    places * freq_base ** (-2 i / n)."""
    frequencies = (freq_base ** (-np.arange(0, n, 2, dtype=np.float64) / n)).astype(np.float32)
    angle = places[:, None].astype(np.float32) * frequencies
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)


def axial_turns(rows: Ints, columns: Ints, d_head: int, freq_base: float) -> Floats:
    """cos and sin of a head, f32 [patch, d_head / 2, 2]: the first pairs turn by the row, the others by the column."""
    half = d_head // 2
    return np.concatenate([turns(rows, half, freq_base), turns(columns, half, freq_base)], axis=1)
