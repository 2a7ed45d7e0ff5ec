"""Two matrices with equal numbers of rows, side by side as one matrix."""

from dataclasses import dataclass

import numpy as np

from .tensor import Dtype, StoredTensor


@dataclass(frozen=True)
class BesideTensor(StoredTensor):
    """[rows, columns of the first + columns of the second], in their type, or f32 if the types differ; `file` and
    `offset` are the first matrix's."""

    halves: tuple[StoredTensor, ...] = ()

    @property
    def kept(self) -> Dtype | str:
        kinds = {half.kept for half in self.halves}
        return kinds.pop() if len(kinds) == 1 else Dtype.F32

    def read(self, start: int, stop: int) -> np.ndarray:
        width, same = self.shape[1], len({half.dtype for half in self.halves}) == 1
        first, last = start // width, -(-stop // width)
        parts = []
        for half in self.halves:
            n = half.shape[1]
            values = (half.read if same else half.floats)(first * n, last * n)
            parts.append(values.reshape(-1, n))
        return np.concatenate(parts, axis=1).reshape(-1)[start - first * width : stop - first * width]


def beside(first: StoredTensor, second: StoredTensor) -> BesideTensor:
    """Puts two matrices with equal numbers of rows side by side."""
    kind = first.dtype if first.dtype == second.dtype else Dtype.F32
    shape = (first.shape[0], first.shape[1] + second.shape[1])
    return BesideTensor(f"{first.name} | {second.name}", kind, shape, first.file, first.offset, halves=(first, second))
