"""A tensor stored in a checkpoint: where its bytes are, and how to read a range of its rows."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.sources import check_source
from hybrid.quant.ggml.types import GGMLType


class Dtype(Enum):
    """Element types by their safetensors name; BF16 is held in its 16 bits."""

    F64 = np.dtype("<f8")
    F32 = np.dtype("<f4")
    F16 = np.dtype("<f2")
    BF16 = np.dtype("<u2")

    @property
    def itemsize(self) -> int:
        size: int = self.value.itemsize
        return size


# Sizes of the types that a sound file may hold but no weight may have.
OTHER_SIZES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
               "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8}  # fmt: skip


class DataFile:
    """A file that contains tensors. Threads share it, since it is read by position. It is never mapped, so it does not
    count as resident memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = shown(path.name)
        self.metadata: Mapping[str, str] = {}  # texts in the header of a safetensors file
        try:
            check_source(path, "the weights")
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}.") from None
        self.nbytes = os.fstat(self._fd).st_size

    def read_into(self, out: np.ndarray, offset: int) -> None:
        """Fills `out` (C order) from the file. CheckpointError: the file ends too early or cannot be read."""
        view, done = out.data.cast("B"), 0
        try:
            while done < len(view):
                n = os.preadv(self._fd, [view[done:]], offset + done)
                if n == 0:
                    raise CheckpointError(f"{self.where} became shorter while it was read. Start again.")
                done += n
        except OSError as error:
            raise CheckpointError(f"{self.where} cannot be read: {error.strerror}.") from None

    def read(self, offset: int, nbytes: int) -> bytes:
        out = np.zeros(nbytes, np.uint8)
        if nbytes:
            self.read_into(out, offset)
        return out.tobytes()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


@dataclass(frozen=True)
class StoredTensor:
    """`shape` elements of `dtype` from byte `offset` of `file`. `dtype` is a string for types no weight can have."""

    name: str
    dtype: Dtype | str
    shape: tuple[int, ...]
    file: DataFile
    offset: int
    strides: tuple[int, ...] | None = None  # in elements; None: C order without gaps

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def kept(self) -> Dtype | str:
        """The type that keeps its values unchanged in a file."""
        return self.dtype

    @property
    def block_type(self) -> GGMLType | None:
        """The GGUF type whose blocks it already has; the file then takes them unchanged: `blocks`."""
        return None

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """For a tensor with a `block_type`: rows [start, stop) of its first dimension, u8 [stop - start, bytes]."""
        raise NotImplementedError

    def raw(self, kind: np.dtype, start: int, stop: int) -> np.ndarray:
        """Elements [start, stop) of the flattened tensor as `kind`, of the same size; for types that no weight has."""
        if self.strides is not None:
            raise UnsupportedError(f"{shown(self.name)} is stored in strides. Save it in one piece, as safetensors do.")
        out = np.empty(stop - start, kind)
        self.file.read_into(out, self.offset + start * kind.itemsize)
        return out

    def floats(self, start: int, stop: int) -> np.ndarray:
        """Elements [start, stop) of the flattened tensor as f32. UnsupportedError: not floats."""
        if not isinstance(self.dtype, Dtype):
            raise UnsupportedError(f"{shown(self.name)} is of type {self.dtype}, expected F32, F16 or BF16.")
        values = self.read(start, stop)
        if self.dtype is Dtype.BF16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def part(self, start: tuple[int, ...], shape: tuple[int, ...]) -> "StoredTensor":
        """The block of `shape` (the last dimensions) that begins at index `start`."""
        assert isinstance(self.dtype, Dtype) and len(start) == len(self.shape) >= len(shape)
        strides = self.strides or tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        offset = sum(i * step for i, step in zip(start, strides, strict=True))
        kept = strides[len(strides) - len(shape) :]
        whole = kept == tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return replace(
            self, shape=shape, offset=self.offset + offset * self.dtype.itemsize, strides=None if whole else kept
        )

    def turned(self) -> "StoredTensor":
        """The matrix, or each matrix of a stack, transposed."""
        strides = self.strides or tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        shape, strides = ((*each[:-2], each[-1], each[-2]) for each in (self.shape, strides))
        return replace(self, shape=shape, strides=strides)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Elements [start, stop) of the flattened tensor, in its own type: [stop - start]."""
        assert isinstance(self.dtype, Dtype) and 0 <= start <= stop <= self.size
        out = np.empty(stop - start, self.dtype.value)
        if self.strides is None:
            self.file.read_into(out, self.offset + start * self.dtype.itemsize)
            return out
        return self._gather(start, stop)

    def same_bytes(self, other: "StoredTensor") -> bool:
        """Whether both have the same values and type."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        if (self.file.path, self.offset, self.strides) == (other.file.path, other.offset, other.strides):
            return True
        # a tensor with strides is read as a whole, for every piece
        step = 1 << 20 if self.strides is None and other.strides is None else max(self.size, 1)
        return all(
            np.array_equal(self.read(i, min(i + step, self.size)), other.read(i, min(i + step, self.size)))
            for i in range(0, self.size, step)
        )

    def _gather(self, start: int, stop: int) -> np.ndarray:
        """Reads the whole extent and picks the elements: for a transposed or sliced tensor in a torch file, which is
        rare."""
        assert isinstance(self.dtype, Dtype) and self.strides is not None
        extent = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        flat = np.empty(extent, self.dtype.value)
        self.file.read_into(flat, self.offset)
        steps = [step * self.dtype.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)
        return np.ascontiguousarray(view).reshape(-1)[start:stop]
