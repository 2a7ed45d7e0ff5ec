"""Matrices whose values are computed when they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import GGMLType

from .layouts import BlockFloats, ReadRows
from .tensor import Dtype, StoredTensor


@dataclass(frozen=True)
class DequantizedTensor(StoredTensor):
    """Matrices of f32 values that are computed when read; `file` and `offset` locate their integers."""

    rows: ReadRows | None = None
    first: int = 0  # index in `rows` of its row 0
    kept_as: Dtype = Dtype.BF16
    packed: BlockFloats | None = None  # the file may keep the matrix unchanged: `blocks`
    exact: GGMLType | None = None  # a type that has the same values

    @property
    def kept(self) -> Dtype | str:
        return self.kept_as if self.packed is None else self.packed.kind.name

    @property
    def block_type(self) -> GGMLType | None:
        return None if self.packed is None else self.packed.kind

    def part(self, start: tuple[int, ...], shape: tuple[int, ...]) -> StoredTensor:
        if len(shape) != 2 or start[-1] or shape[1] != self.shape[-1]:
            raise UnsupportedError(f"{shown(self.name)} is quantized and cannot be taken apart by columns.")
        first = int(np.ravel_multi_index(start[:-1], self.shape[:-1]))
        return replace(self, shape=shape, first=self.first + first)

    def turned(self) -> StoredTensor:
        raise UnsupportedError(f"{shown(self.name)} is quantized and cannot be transposed.")

    def blocks(self, start: int, stop: int, order: np.ndarray | None = None) -> np.ndarray:
        """`order`: column order[i] becomes column i."""
        assert self.packed is not None, self.name
        n = int(np.prod(self.shape[1:-1]))  # rows of one index of the first dimension
        found = self.packed.blocks(self.first + start * n, self.first + stop * n, order)
        return found.reshape(stop - start, -1)

    def read(self, start: int, stop: int) -> np.ndarray:
        assert self.rows is not None and 0 <= start <= stop <= self.size
        columns = self.shape[-1]
        begin, end = start // columns, -(-stop // columns)
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are reported with the tensor's name
            values = self.rows(self.first + begin, self.first + end).reshape(-1)
        return values[start - begin * columns : stop - begin * columns]

    def same_bytes(self, other: StoredTensor) -> bool:
        step = max(1, (1 << 20) // self.shape[-1]) * self.shape[-1]
        return self.shape == other.shape and all(
            np.array_equal(self.floats(i, min(i + step, self.size)), other.floats(i, min(i + step, self.size)))
            for i in range(0, self.size, step)
        )


def values_only(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, of which a file keeps no blocks but MXFP4 that is never dequantized."""
    return {
        name: replace(tensor, packed=None) if isinstance(tensor, DequantizedTensor) else tensor
        for name, tensor in tensors.items()
    }


def joined(first: StoredTensor, second: StoredTensor) -> DequantizedTensor:
    """The rows of two matrices as one, or of two stacks of matrices: [..., rows of both, columns]. CheckpointError:
    their shapes do not fit."""
    if first.shape[:-2] != second.shape[:-2] or first.shape[-1:] != second.shape[-1:] or len(first.shape) < 2:
        raise CheckpointError(
            f"{shown(first.name)} has shape {list(first.shape)} and {shown(second.name)} {list(second.shape)}, "
            "expected equal columns."
        )
    halves, columns = (first, second), first.shape[-1]
    counts = [half.shape[-2] for half in halves]
    both = [half.packed for half in halves if isinstance(half, DequantizedTensor) and half.packed is not None]
    packed = None
    if len(both) == 2 and (both[0].kind, both[0].factor) == (both[1].kind, both[1].factor):
        firsts = [half.first for half in halves if isinstance(half, DequantizedTensor)]
        codes, scales = (
            _alternating([_from(read, n) for read, n in zip(readers, firsts, strict=True)], counts)
            for readers in ([one.codes for one in both], [one.scales for one in both])
        )
        packed = replace(both[0], codes=codes, scales=scales)
    kept = {half.kept_as if isinstance(half, DequantizedTensor) else half.dtype for half in halves}.pop()
    return DequantizedTensor(
        f"{first.name} | {second.name}",
        Dtype.F32,
        (*first.shape[:-2], sum(counts), columns),
        first.file,
        first.offset,
        rows=_alternating([_floats(half) for half in halves], counts),
        kept_as=kept if isinstance(kept, Dtype) else Dtype.BF16,
        packed=packed,
    )


def _from(read: ReadRows, first: int) -> ReadRows:
    return lambda start, stop: read(first + start, first + stop)


def _floats(tensor: StoredTensor) -> ReadRows:
    n = tensor.shape[-1]
    return lambda start, stop: tensor.floats(start * n, stop * n).reshape(-1, n)


def _alternating(readers: Sequence[ReadRows], counts: Sequence[int]) -> ReadRows:
    """Rows of several matrices in turn: counts[0] of the first, counts[1] of the second, ..., and again."""
    begins = np.cumsum([0, *counts])
    period = int(begins[-1])

    def rows(start: int, stop: int) -> np.ndarray:
        pieces = []
        while start < stop:
            turn, r = divmod(start, period)
            i = int(np.searchsorted(begins, r, side="right")) - 1
            n = min(int(begins[i + 1]) - r, stop - start)
            begin = turn * counts[i] + r - int(begins[i])
            pieces.append(readers[i](begin, begin + n))
            start += n
        return np.concatenate(pieces)

    return rows
