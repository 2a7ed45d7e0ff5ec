"""Matrices in 4-bit floats that a file keeps bit for bit: which rows of a family can, and their factors.

Rows of a matrix, and groups of its columns, are moved without computation. A factor of a whole matrix becomes a tensor
of its own (quant/ggml/scales.py).
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from hybrid.quant.ggml.scales import input_scale_of, scale_of
from hybrid.quant.ggml.types import TRAITS, FileType, GGMLType

from .architectures import Row
from .checkpoint import StoredTensor
from .checkpoint.dequantized import DequantizedTensor
from .outtype import weight_type
from .transforms import Transform


def kept(row: Row, tensors: tuple[StoredTensor, ...], taken: Collection[str] = ()) -> tuple[StoredTensor, ...]:
    """The sources of a row: unchanged if the file can keep their blocks, else with the values that they stand for.
    taken: names of the family's own tensors."""
    if not any(isinstance(tensor, DequantizedTensor) and tensor.packed for tensor in tensors):
        return tensors
    if _fits(row, tensors) and not any(name in taken for name, _ in factors(row, tensors)):
        return tensors
    return tuple(replace(t, packed=None) if isinstance(t, DequantizedTensor) else t for t in tensors)


def factors(row: Row, tensors: tuple[StoredTensor, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """(name, f32 values) of the tensors beside a kept row: its factors, and its inputs' factors, unless all are 1."""
    packed = [tensor.packed for tensor in tensors if isinstance(tensor, DequantizedTensor) and tensor.packed]
    for name, values in (
        (scale_of(row.target), [one.factor for one in packed]),
        (input_scale_of(row.target), [one.input_scale for one in packed]),
    ):
        if name and any(value != 1 for value in values):
            many = row.shape[0] if len(row.shape) == 3 else 1
            yield name, np.resize(np.array(values, np.float32), many)


def inputs_are_exact(tensors: tuple[StoredTensor, ...]) -> bool:
    """Whether the inputs of a kept matrix shall not be rounded to 4 bits."""
    return any(isinstance(one, DequantizedTensor) and one.packed and one.packed.exact_inputs for one in tensors)


def column_order(transform: Transform, n: int) -> np.ndarray:
    """i64 [n]: column order[i] becomes column i."""
    order: np.ndarray = transform.apply(np.arange(n)[None], 0)[0]
    return order


def _fits(row: Row, tensors: tuple[StoredTensor, ...]) -> bool:
    packed = [tensor.packed for tensor in tensors if isinstance(tensor, DequantizedTensor) and tensor.packed]
    if len(packed) < len(tensors) or row.product or row.beside or len({one.kind for one in packed}) > 1:
        return False
    n, kind = row.shape[-1], packed[0].kind
    if weight_type(row.target, row.shape, FileType.BF16) is not GGMLType.BF16 or n % TRAITS[kind].block:
        return False
    if any(tensor.shape[-1] != n for tensor in tensors) or not _moves(row.transform, n, tensors):
        return False
    different = {(one.factor, one.input_scale) for one in packed}
    return (len(different) == 1 or len(row.shape) == 3 == 1 + len(tensors[0].shape)) and (
        bool(scale_of(row.target)) or all(one.factor == 1 for one in packed)
    )


def _moves(transform: Transform | None, n: int, tensors: tuple[StoredTensor, ...]) -> bool:
    """Whether a transform only moves rows, or groups of columns that have a scale together."""
    if transform is None or (transform.along == "rows" and not transform.arithmetic):
        return True
    if transform.along != "columns" or transform.arithmetic:
        return False
    order = column_order(transform, n)
    return all(t.packed.keeps_groups(order) for t in tensors if isinstance(t, DequantizedTensor) and t.packed)
