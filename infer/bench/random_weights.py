"""Random weights in any tensor type, made as fast as a disk can write them."""

from collections.abc import Iterator
from enum import Enum, auto
from math import prod, sqrt

import numpy as np

from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import TRAITS, GGMLType, row_nbytes

# Number of random weights per type and row length. All others are copies of these, rotated within rows.
_TILE = 1 << 22


class Fill(Enum):
    """The random values of a tensor."""

    WEIGHT = auto()
    """Standard deviation 1 / sqrt(columns); normal in F32, F16 and BF16, uniform codes in blocks."""
    SSM_WEIGHT = auto()
    """As WEIGHT, for ssm_x and ssm_dt, which a quantized file may keep in F32."""
    ROUTER = auto()
    """As WEIGHT, always F32."""
    HALF = auto()
    """As WEIGHT, always F16: small matrices that quantized files do not quantize."""
    ONE = auto()
    ZERO = auto()
    CONV = auto()
    """Uniform within 1 / sqrt(d_conv), torch's initial values of a depthwise convolution."""
    DT_BIAS = auto()
    """softplus(bias) is uniform on a log scale over 0.001 .. 0.1. Gu & Dao 2023, arXiv:2312.00752."""
    SSM_A = auto()
    """-(1 .. d_state) in every row (same source)."""
    HEAD_A = auto()
    """Uniform from -16 to -1. Dao & Gu 2024, arXiv:2405.21060."""
    HEAD_RATE = auto()
    """Uniform from 1 to 16."""
    TABLE = auto()
    """I32: every row 0, 1, 2 and so on."""
    SHARE = auto()
    """Uniform from 0 to 1: shares of a mixture, biases of gates."""


class RandomWeights:
    """A source of tensor data. The same seed and the same calls give the same bytes.

    most_rows: limit on random rows: the largest number of rows of any tensor.
    """

    def __init__(self, seed: int, most_rows: int = _TILE):
        self._rng, self._most_rows = np.random.default_rng(seed), most_rows
        self._tiles: dict[tuple[GGMLType, int], np.ndarray] = {}

    @staticmethod
    def nbytes(shape: tuple[int, ...], kind: GGMLType) -> int:
        return prod(shape[:-1]) * row_nbytes(kind, shape[-1])

    def chunks(self, fill: Fill, shape: tuple[int, ...], kind: GGMLType) -> Iterator[np.ndarray]:
        """The tensor's bytes in pieces: uint8 [rows, row_nbytes], some MB each."""
        if fill in (Fill.WEIGHT, Fill.SSM_WEIGHT, Fill.ROUTER, Fill.HALF):
            yield from self._matrix(prod(shape[:-1]), shape[-1], kind)
        elif fill is Fill.TABLE:
            assert kind is GGMLType.I32
            yield np.broadcast_to(np.arange(shape[-1], dtype="<i4"), shape).copy().view(np.uint8)
        else:
            assert kind is GGMLType.F32
            yield np.ascontiguousarray(self._vector(fill, shape), "<f4").view(np.uint8)

    def _matrix(self, rows: int, columns: int, kind: GGMLType) -> Iterator[np.ndarray]:
        tile = self._tile(kind, columns)
        blocks = tile.shape[1] // TRAITS[kind].nbytes
        done = 0
        while done < rows:
            # Blocks of a row are rotated: equal rows would give equal logits, and ties that a real model does not have.
            turn = int(self._rng.integers(blocks)) * TRAITS[kind].nbytes
            n = min(len(tile), rows - done)
            yield np.roll(tile[:n], turn, axis=1)
            done += n

    def _tile(self, kind: GGMLType, columns: int) -> np.ndarray:
        """Rows of random weights, uint8 [row, row_nbytes]."""
        if (kind, columns) not in self._tiles:
            rows = min(self._most_rows, max(1, _TILE // columns))
            self._tiles[kind, columns] = random_blocks(kind, (rows, columns), self._rng, 1 / sqrt(columns))
        return self._tiles[kind, columns]

    def _vector(self, fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
        if fill is Fill.ONE:
            return np.ones(shape)
        if fill is Fill.ZERO:
            return np.zeros(shape)
        if fill is Fill.CONV:
            return self._rng.uniform(-1, 1, shape) / sqrt(shape[-1])
        if fill is Fill.DT_BIAS:
            dt = np.exp(self._rng.uniform(np.log(0.001), np.log(0.1), shape))
            return dt + np.log(-np.expm1(-dt))
        if fill is Fill.HEAD_A:
            return self._rng.uniform(-16, -1, shape)
        if fill is Fill.HEAD_RATE:
            return self._rng.uniform(1, 16, shape)
        if fill is Fill.SHARE:
            return self._rng.uniform(0, 1, shape)
        assert fill is Fill.SSM_A
        return np.broadcast_to(-np.arange(1.0, shape[-1] + 1), shape)
