"""Maps codes to points of a code book, for the searches of IQ1, IQ2 and IQ3.

A code is the number of a weight's level, from the smallest; the codes of a point's weights form one number, with the
first weight as its lowest digit. Numbers with a point stand for that point. For other numbers the nearest points
(squared distance of codes; as many distances as ggml uses) are tried with the actual weights, in the order of distance
and number (ggml-quants.c, iq2xs_init_impl and iq3xs_init_impl).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from ..formats.grids import grid
from ..types import GGMLType
from .lanes import N

# How many different distances of neighbours are tried.
_DISTANCES = {
    GGMLType.IQ1_S: 3, GGMLType.IQ2_XXS: 2, GGMLType.IQ2_XS: 2, GGMLType.IQ2_S: 1, GGMLType.IQ3_XXS: 2,
    GGMLType.IQ3_S: 3,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Codebook:
    """Points of `dims` weights with `levels` codes each.

    where i32 [levels ** dims]: number of the point, or -1 - i for numbers without one, whose neighbours are in the sets
    of eight first[i]..first[i + 1] - 1. near u16 [8 * sets]: their points; the last one is repeated to fill a set.
    near_codes u8 [sets * dims * 8]: the codes of each neighbour: a set's first weights side by side, then its second
    weights, ... values f32 [8]: the level of each code, then zeros: -1, 0, 1 in IQ1, otherwise 1, 3, 5... codes f32
    [points * dims].
    """

    dims: int
    levels: int
    where: np.ndarray
    first: np.ndarray
    near: np.ndarray
    near_codes: np.ndarray
    values: np.ndarray
    codes: np.ndarray


@cache
def codebook(kind: GGMLType) -> Codebook:
    points = grid(kind)
    codes = np.searchsorted(np.unique(points), points).astype(np.int32)
    dims, levels = codes.shape[1], int(codes.max()) + 1
    digits = levels ** np.arange(dims)
    where = np.full(levels**dims, -1, np.int32)
    where[codes @ digits] = np.arange(len(codes))
    without = np.flatnonzero(where < 0)
    where[without] = -1 - np.arange(len(without), dtype=np.int32)
    near, counts = [], []
    for some in np.array_split(without, -(-len(without) // 256)):
        for points_of in _neighbours(some[:, None] // digits % levels, codes, _DISTANCES[kind]):
            sets = -(-len(points_of) // N)
            near.append(np.pad(points_of, (0, sets * N - len(points_of)), mode="edge"))
            counts.append(sets)
    all_near = np.concatenate(near)
    numbers = np.arange(levels)
    values = numbers - 1 if kind is GGMLType.IQ1_S else 2 * numbers + 1
    return Codebook(
        dims,
        levels,
        where,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        all_near.astype(np.uint16),
        np.ascontiguousarray(codes[all_near].astype(np.uint8).reshape(-1, N, dims).transpose(0, 2, 1)).reshape(-1),
        np.pad(values.astype(np.float32), (0, N - levels)),
        codes.astype(np.float32).reshape(-1),
    )


def _neighbours(of: np.ndarray, codes: np.ndarray, n_distances: int) -> list[np.ndarray]:
    """of [n, dims], codes [points, dims] -> the numbers of the nearest points of each."""
    distance = np.square(of[:, None] - codes[None]).sum(axis=2)
    rest = distance.copy()
    for _ in range(n_distances):
        limit = rest.min(axis=1)[:, None]
        rest[rest <= limit] = np.iinfo(rest.dtype).max
    nearest = []
    for row, most in zip(distance, limit[:, 0], strict=True):
        numbers = np.flatnonzero(row <= most)
        nearest.append(numbers[np.argsort(row[numbers], kind="stable")])
    return nearest
