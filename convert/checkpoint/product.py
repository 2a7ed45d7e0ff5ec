"""Two tensors of which models use only the product, which replaces them in the file."""

from dataclasses import dataclass

import numpy as np

from .tensor import Dtype, StoredTensor


@dataclass(frozen=True)
class ProductTensor(StoredTensor):
    """The product of two tensors of one size, in f32; `file` and `offset` are the first one's."""

    factors: tuple[StoredTensor, ...] = ()

    def read(self, start: int, stop: int) -> np.ndarray:
        first, second = (factor.floats(start, stop) for factor in self.factors)
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are reported with the tensor's name
            product: np.ndarray = first * second
        return product


def product(first: StoredTensor, second: StoredTensor) -> ProductTensor:
    """The product of two tensors of one size, in the shape of the first."""
    name = f"{first.name} * {second.name}"
    return ProductTensor(name, Dtype.F32, first.shape, first.file, first.offset, factors=(first, second))
