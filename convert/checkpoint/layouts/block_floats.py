"""Matrices of 4-bit floats (E2M1) as checkpoints hold them, which GGUF has also: NVFP4 and MXFP4.

          values of a scale   scale                     factor of the matrix
    NVFP4 16                  E4M3, without its sign    f32; GGUF has it in a tensor NAME.scale
    MXFP4 32                  E8M0: 2^(e - 127)         1

In checkpoints the even column is in the low bits of a byte. quant/ggml/formats/fp4.py has GGUF's order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.types import TRAITS, GGMLType

ReadRows = Callable[[int, int], np.ndarray]  # (start, stop) -> [stop - start, columns]
_LARGEST = 252  # E8M0: with a larger one the largest value of a block overflows f32


def _table(exponent: int, bias: int) -> np.ndarray:
    """f32 [256]: the values of an 8-bit float. E5M2 has NaN and infinities as IEEE does, E4M3 has NaN only."""
    code = np.arange(256)
    mantissa = 7 - exponent
    e, m = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    size = np.where(e > 0, 2.0 ** (e - bias) * (1 + m / 2**mantissa), 2.0 ** (1 - bias) * m / 2**mantissa)
    if exponent == 5:
        size = np.where(e == 31, np.where(m == 0, np.inf, np.nan), size)
    else:
        size = np.where(code & 127 == 127, np.nan, size)
    return np.where(code >> 7, -size, size).astype(np.float32)


def _powers() -> np.ndarray:
    """f32 [256]: the values of E8M0; 255 is NaN."""
    with np.errstate(over="ignore"):
        powers = np.ldexp(1.0, np.arange(256) - 127).astype(np.float32)
    powers[255] = np.nan
    return powers


FLOATS = {"F8_E4M3": _table(4, 7), "F8_E5M2": _table(5, 15), "F8_E8M0": _powers()}
_HALF = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate((_HALF, -_HALF))


@dataclass(frozen=True)
class BlockFloats:
    """A matrix in one of these formats. codes: u8 [rows, columns], 0 .. 15; scales: u8 [rows, columns / per_scale].
    input_scale: of activations, unused here; 1 without any. exact_inputs: activations shall keep more than 4 bits."""

    PER_SCALE: ClassVar[Mapping[GGMLType, int]] = {GGMLType.NVFP4: 16, GGMLType.MXFP4: 32}

    kind: GGMLType
    codes: ReadRows
    scales: ReadRows
    where: str  # names the scales, for messages
    factor: float = 1.0
    input_scale: float = 1.0
    exact_inputs: bool = False

    @property
    def per_scale(self) -> int:
        return self.PER_SCALE[self.kind]

    def scale_values(self, start: int, stop: int) -> np.ndarray:
        """f32 [stop - start, columns / per_scale]."""
        values: np.ndarray = FLOATS["F8_E4M3" if self.kind is GGMLType.NVFP4 else "F8_E8M0"][self.scales(start, stop)]
        return values

    def blocks(self, start: int, stop: int, order: np.ndarray | None = None) -> np.ndarray:
        """Rows [start, stop) as GGUF blocks, u8 [stop - start, bytes of a row]; `order`: column order[i] becomes column
        i, where `keeps_groups(order)`. CheckpointError: a scale is NaN or negative, or too large."""
        codes, scales = self.codes(start, stop), self.scales(start, stop)
        if self.kind is GGMLType.NVFP4:
            wrong = bool((scales & 127 == 127).any() or (scales > 128).any())
            scales = scales & 127
        else:
            wrong = bool((scales > _LARGEST).any())
        if wrong:
            raise CheckpointError(f"{shown(self.where)} holds scales that are NaN, negative or too large.")
        if order is not None:
            codes, scales = codes[:, order], scales[:, order[:: self.per_scale] // self.per_scale]
        n, traits = len(codes), TRAITS[self.kind]
        per_block = traits.block // self.per_scale
        halves = codes.reshape(n, -1, per_block, 2, self.per_scale // 2)
        pairs = (halves[:, :, :, 0] | halves[:, :, :, 1] << 4).reshape(n, -1, traits.block // 2)
        return np.concatenate((scales.reshape(n, -1, per_block), pairs), axis=2).reshape(n, -1)

    def keeps_groups(self, order: np.ndarray) -> bool:
        """Whether the values of a scale stay together when columns move: column order[i] becomes column i."""
        groups = order.reshape(-1, self.per_scale)
        first = groups[:, :1]
        return bool((first % self.per_scale == 0).all() and (groups == first + np.arange(self.per_scale)).all())
