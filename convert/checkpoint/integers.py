"""Tables of integers, which a GGUF file stores as I32."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import GGMLType

from .tensor import Dtype, StoredTensor

_STORED: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}


@dataclass(frozen=True)
class IntegerTensor(StoredTensor):
    """Integers of the type `stored`; when read as numbers, their `dtype` is F32."""

    stored: np.dtype[Any] = _STORED["I64"]

    @property
    def kept(self) -> Dtype | str:
        return GGMLType.I32.name

    @property
    def block_type(self) -> GGMLType | None:
        return GGMLType.I32

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) as I32, u8 [stop - start, bytes]. CheckpointError: a value does not fit."""
        columns = self.size // self.shape[0]
        values = self.raw(self.stored, start * columns, stop * columns)
        limits = np.iinfo(np.int32)
        if values.size and (values.min() < limits.min or values.max() > limits.max):
            raise CheckpointError(f"{shown(self.name)} has integers beyond 32 bits. The checkpoint is damaged.")
        return values.astype("<i4").view(np.uint8).reshape(stop - start, -1)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.raw(self.stored, start, stop).astype(np.float32)


def as_integers(tensor: StoredTensor) -> IntegerTensor:
    """The tensor as integers. UnsupportedError: it has another type."""
    if isinstance(tensor.dtype, Dtype) or tensor.dtype not in _STORED:
        kind = getattr(tensor.dtype, "name", tensor.dtype)
        raise UnsupportedError(f"{shown(tensor.name)} is of type {kind}, expected integers.")
    return IntegerTensor(
        tensor.name, Dtype.F32, tensor.shape, tensor.file, tensor.offset, tensor.strides, _STORED[str(tensor.dtype)]
    )
