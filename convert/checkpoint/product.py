"""Two tensors of which only their product is used: what a file has in their place."""

from dataclasses import dataclass

import numpy as np

from .tensor import Dtype, StoredTensor


@dataclass(frozen=True)
class ProductTensor(StoredTensor):
    """The values of two tensors of one size, multiplied in f32; `file` and `offset` are those of the first."""

    factors: tuple[StoredTensor, ...] = ()

    def read(self, start: int, stop: int) -> np.ndarray:
        first, second = (factor.floats(start, stop) for factor in self.factors)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is reported with the tensor's name
            product: np.ndarray = first * second
        return product


def product(first: StoredTensor, second: StoredTensor) -> ProductTensor:
    """Of two tensors of one size, in the shape of the first."""
    name = f"{first.name} * {second.name}"
    return ProductTensor(name, Dtype.F32, first.shape, first.file, first.offset, factors=(first, second))
