"""Matrices of quantized checkpoints: how some rows are read as f32, and the parts that several layouts share.

A value is (integer or small float - zero point) * scale, computed in f32 with one rounding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import GGMLType

from ..config import Config
from ..tensor import StoredTensor
from .block_floats import E2M1, FLOATS, BlockFloats, ReadRows

EIGHT = ("F8_E4M3", "F8_E5M2", "I8")
Tensors = Mapping[str, StoredTensor]


@dataclass(frozen=True)
class Matrix:
    """What a quantized matrix is called and made of; `parts` are the tensors that are used up."""

    weight: str
    shape: tuple[int, ...]  # rows and columns, and perhaps a number of such matrices before them
    rows: ReadRows  # of all matrices, one after the other
    parts: tuple[str, ...]
    packed: BlockFloats | None = None


# (name of the tensor with the integers, matrix)
Matrices = Iterator[tuple[str, Matrix]]


def small_floats(packed: BlockFloats) -> ReadRows:
    """The values of rows in 4-bit floats."""
    per_scale, factor = packed.per_scale, np.float32(packed.factor)

    def rows(start: int, stop: int) -> np.ndarray:
        scales = packed.scale_values(start, stop)
        exact = (E2M1[packed.codes(start, stop)].reshape(len(scales), -1, per_scale) * scales[:, :, None]) * factor
        values: np.ndarray = exact.reshape(len(scales), -1)
        return values

    return rows


def in_place(tensors: Tensors, name: str, scale: str, block: tuple[int, int] | None) -> Matrix:
    """8-bit values in their places, under the name of the weight, with scales, and perhaps zero points beside them."""
    tensor, shape = tensors[name], matrix_shape(tensors[name])
    zero, order = (tensors.get(f"{name}_{end}") for end in ("zero_point", "g_idx"))
    factor = spread(tensors[scale], shape, block, order)
    less = spread(zero, shape, block, order) if zero is not None else None
    return Matrix(name, shape, scaled(bytes_of(tensor), factor, less), (scale, f"{name}_zero_point", f"{name}_g_idx"))


def fp4(
    weight: str,
    codes: StoredTensor,
    scales: StoredTensor,
    kind: GGMLType,
    parts: tuple[str, ...],
    factor: float = 1.0,
    input_scale: float = 1.0,
) -> Matrix:
    """A matrix of 4-bit floats, or several in the first dimensions."""
    leading, columns = codes.shape[:-1], 2 * row_bytes(codes)
    per_scale = BlockFloats.PER_SCALE[kind]
    if codes.dtype not in ("U8", "I8", "U32") or len(leading) < 1 or columns % per_scale:
        raise UnsupportedError(
            f"{shown(codes.name)} has shape {list(codes.shape)}, expected rows of whole groups of {per_scale} columns."
        )
    wanted = ("U8", "F8_E4M3" if kind is GGMLType.NVFP4 else "F8_E8M0")
    n_scales = columns // per_scale
    if scales.dtype not in wanted or scales.shape != (*leading, n_scales):
        raise CheckpointError(
            f"{shown(scales.name)} is {kind_of(scales)}, expected {' or '.join(wanted)} {[*leading, n_scales]}."
        )
    packed = BlockFloats(kind, pairs_of(codes), raw_bytes(scales), scales.name, factor, input_scale)
    return Matrix(weight, (*leading, columns), small_floats(packed), parts, packed)


def kind_of(tensor: StoredTensor) -> str:
    """The type and shape of a tensor, for messages."""
    return f"{getattr(tensor.dtype, 'name', tensor.dtype)} {list(tensor.shape)}"


def number(tensors: Tensors, name: str) -> float:
    """The only value of a tensor that must be there: finite and positive."""
    tensor = need(tensors, name)
    value = float(numbers(tensor, 0, 1)[0]) if tensor.size == 1 else 0.0
    if not 0 < value < np.inf:
        raise CheckpointError(f"{shown(name)} is {kind_of(tensor)} of {value:g}, expected one positive number.")
    return value


def raw_bytes(tensor: StoredTensor) -> ReadRows:
    """Rows of a tensor of bytes: u8 [stop - start, columns]."""
    n = tensor.shape[-1]
    return lambda start, stop: tensor.raw(np.dtype("u1"), start * n, stop * n).reshape(-1, n)


def bytes_of(tensor: StoredTensor, kind: str = "") -> ReadRows:
    """Rows of a matrix of 8-bit integers or floats as f32; `kind`: the type that its bytes have."""
    columns, table = tensor.shape[-1], FLOATS.get(kind or str(tensor.dtype))

    def rows(start: int, stop: int) -> np.ndarray:
        raw = tensor.raw(np.dtype("i1"), start * columns, stop * columns).reshape(-1, columns)
        return raw.astype(np.float32) if table is None else table[raw.view(np.uint8)]

    return rows


def pairs_of(tensor: StoredTensor) -> ReadRows:
    """Rows of 4-bit codes, the even column in the low bits of a byte: u8 [stop - start, 2 * bytes of a row]."""
    n_bytes = row_bytes(tensor)

    def rows(start: int, stop: int) -> np.ndarray:
        pairs = tensor.raw(np.dtype("u1"), start * n_bytes, stop * n_bytes).reshape(-1, n_bytes)
        return np.stack((pairs & 15, pairs >> 4), axis=2).reshape(len(pairs), -1)

    return rows


def row_bytes(tensor: StoredTensor) -> int:
    """Bytes of a row of a tensor of bytes or of 32-bit words, which hold a stream of them."""
    return tensor.shape[-1] * (4 if tensor.dtype in ("U32", "I32") else 1)


def powers(scales: StoredTensor) -> ReadRows:
    """Powers of two for groups of 32 columns, per column."""
    n = scales.shape[-1]

    def rows(start: int, stop: int) -> np.ndarray:
        exponents = scales.raw(np.dtype("u1"), start * n, stop * n).reshape(-1, n)
        return np.repeat(FLOATS["F8_E8M0"][exponents], 32, axis=1)

    return rows


def scaled(values: ReadRows, factor: ReadRows, less: ReadRows | None = None) -> ReadRows:
    """(values - less) * factor."""

    def rows(start: int, stop: int) -> np.ndarray:
        some = values(start, stop)
        return (some if less is None else some - less(start, stop)) * factor(start, stop)

    return rows


def spread(
    scale: StoredTensor, shape: tuple[int, int], block: tuple[int, int] | None, order: StoredTensor | None
) -> ReadRows:
    """Scales or zero points for the values of some rows: f32, in a shape that broadcasts over the rows. `order`: the
    group of each column."""
    if scale.size == 1:
        return lambda start, stop: numbers(scale, 0, 1).reshape(1, 1)
    given = scale.shape if len(scale.shape) > 1 else (*scale.shape, 1)
    if block and given == tuple(-(-n // size) for n, size in zip(shape, block, strict=True)):
        high, columns = block[0], np.arange(shape[1]) // block[1]
    elif len(given) == 2 and given[0] == shape[0]:
        high, columns = 1, groups(scale.name, shape[1], given[1], order)
    else:
        raise CheckpointError(f"{shown(scale.name)} has shape {list(scale.shape)} for a matrix {list(shape)}.")

    def rows(start: int, stop: int) -> np.ndarray:
        first, last = start // high, -(-stop // high)
        some = numbers(scale, first * given[1], last * given[1]).reshape(-1, given[1])
        return some[np.arange(start, stop) // high - first][:, columns]

    return rows


def groups(name: str, n_columns: int, n_groups: int, order: StoredTensor | None) -> np.ndarray:
    """i64 [n_columns]: the group of each column."""
    if order is not None and order.size == n_columns and order.dtype in ("I32", "I64"):
        group = order.raw(np.dtype("<i4" if order.dtype == "I32" else "<i8"), 0, n_columns).astype(np.int64)
        if group.min() >= 0:  # -1 everywhere: columns are in order
            if group.max() >= n_groups:
                raise CheckpointError(f"{shown(order.name)} names group {group.max()}, there are {n_groups}.")
            return group
    if n_groups < 1 or n_columns % n_groups:
        raise CheckpointError(f"{shown(name)} has {n_groups} groups, no divisor of its {n_columns} columns.")
    return np.arange(n_columns) // (n_columns // n_groups)


def fields(words: np.ndarray, bits: int) -> np.ndarray:
    """u32 [n, words] -> i32 [n, words * 32 / bits], low bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    fields = (words.astype(np.uint32)[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)
    return fields.reshape(len(words), -1).astype(np.int32)


def columns(tensor: StoredTensor, start: int, stop: int) -> np.ndarray:
    """Columns [start, stop) of a matrix of words or f32: one read per row, or one for all."""
    n_rows, n = tensor.shape

    def read(begin: int, end: int) -> np.ndarray:
        if tensor.dtype == "I32":
            return tensor.raw(np.dtype("<u4"), begin, end)
        return tensor.floats(begin, end)

    if (start, stop) == (0, n):
        return read(0, tensor.size).reshape(n_rows, n)
    return np.stack([read(i * n + start, i * n + stop) for i in range(n_rows)])


def numbers(tensor: StoredTensor, start: int, stop: int) -> np.ndarray:
    """f32 of scales, including power-of-two scales (E8M0), or of 8-bit zero points."""
    if tensor.dtype == "F8_E8M0":
        return np.ldexp(np.float32(1), tensor.raw(np.dtype("u1"), start, stop).astype(np.int32) - 127)
    if tensor.dtype in ("I8", "U8"):
        return tensor.raw(np.dtype("i1" if tensor.dtype == "I8" else "u1"), start, stop).astype(np.float32)
    return tensor.floats(start, stop)


def need(tensors: Tensors, name: str, *kinds: str) -> StoredTensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(
            f"the checkpoint lacks {shown(name)}, which its quantized weights need. Download it again."
        )
    if kinds and tensor.dtype not in kinds:
        raise CheckpointError(f"{shown(name)} is of type {tensor.dtype}, expected {' or '.join(kinds)}.")
    return tensor


def matrix_shape(tensor: StoredTensor) -> tuple[int, int]:
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise UnsupportedError(f"{shown(tensor.name)} is quantized and of shape {list(tensor.shape)}, no matrix.")
    return tensor.shape[0], tensor.shape[1]


def check_shapes(wanted: tuple[tuple[StoredTensor, tuple[int, int]], ...]) -> None:
    for tensor, shape in wanted:
        if tensor.shape != shape:
            raise CheckpointError(f"{shown(tensor.name)} has shape {list(tensor.shape)}, expected {list(shape)}.")


def block_size(value: object, section: Config, key: str) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise section.wrong(key, "two positive integers")
    return value[0], value[1]
