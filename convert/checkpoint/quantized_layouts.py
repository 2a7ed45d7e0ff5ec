"""How quantized checkpoints lay out their matrices of [rows, columns], and how some rows are read as f32.

    fp8, fbgemm_fp8, modelopt
        NAME f8 [rows, columns]; NAME_scale_inv or NAME_scale, or BASE.scale of BASE.weight: one for all, one per row,
        or one for every block of weight_block_size (DeepSeek: 128 x 128)
    compressed-tensors
        the same with f8 or i8 and NAME_scale, also per group of columns; or NAME_packed i32 [rows, columns / n]: n =
        32 / bits fields of an int32, low bits first, biased by 2^(bits - 1), and zero points packed along the rows.
        NAME_g_idx: the group of each column
    gptq
        BASE.qweight i32 [columns / n, rows], BASE.qzeros i32 [groups, rows / n] (less 1 but in gptq_v2), BASE.scales
        [groups, rows], BASE.g_idx: of BASE.weight
    awq
        BASE.qweight i32 [columns, rows / 8], BASE.qzeros i32 [groups, rows / 8], BASE.scales [groups, rows]; the fields
        of an int32 are rows 0, 2, 4, 6, 1, 3, 5, 7

A value is (integer or 8-bit float - zero point) * scale, computed in f32 with one rounding.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .config import Config
from .tensor import StoredTensor

_EIGHT = ("F8_E4M3", "F8_E5M2", "I8")
_AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)
Tensors = Mapping[str, StoredTensor]
ReadRows = Callable[[int, int], np.ndarray]  # (start, stop) -> f32 [stop - start, columns]


@dataclass(frozen=True)
class Matrix:
    """What a quantized matrix is called and made of; `parts` are the tensors that are used up."""

    weight: str
    shape: tuple[int, int]
    rows: ReadRows
    parts: tuple[str, ...]


# (name of the tensor with the integers, matrix)
Matrices = Iterator[tuple[str, Matrix]]


def _scaled(tensors: Tensors, section: Config) -> Matrices:
    """8-bit values in their places and scales beside them."""
    section.expects("quant_algo", "FP8", None)
    block = _block(section.get("weight_block_size"), section, "weight_block_size")
    for name, tensor in tensors.items():
        if tensor.dtype in _EIGHT:
            names = (f"{name}_scale_inv", f"{name}_scale", f"{name.removesuffix('weight')}scale")
            scale = next((scale for scale in names if scale in tensors), None)
            if scale is not None:
                yield name, _in_place(tensors, name, scale, block)


def _in_place(tensors: Tensors, name: str, scale: str, block: tuple[int, int] | None) -> Matrix:
    tensor, shape = tensors[name], _matrix_shape(tensors[name])
    zero, order = (tensors.get(f"{name}_{end}") for end in ("zero_point", "g_idx"))
    factor = _spread(tensors[scale], shape, block, order)
    less = _spread(zero, shape, block, order) if zero is not None else None
    table = _TABLES.get(str(tensor.dtype))

    def rows(start: int, stop: int) -> np.ndarray:
        raw = tensor.raw(np.dtype("i1"), start * shape[1], stop * shape[1]).reshape(-1, shape[1])
        values = raw.astype(np.float32) if table is None else table[raw.view(np.uint8)]
        return (values if less is None else values - less(start, stop)) * factor(start, stop)

    return Matrix(name, shape, rows, (scale, f"{name}_zero_point", f"{name}_g_idx"))


def _compressed(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/neuralmagic/compressed-tensors, compressors/quantized_compressors."""
    formats = [section.get("format")]
    block = None
    for key in section.section("config_groups").data:
        group = section.section("config_groups").section(key)
        formats.append(group.get("format"))
        weights = group.section("weights")
        weights.expects("type", "int", "float")
        block = block or _block(weights.get("block_structure"), weights, "block_structure")
    for name_of in formats:
        if name_of not in (None, "float-quantized", "int-quantized", "naive-quantized", "pack-quantized", "dense"):
            raise UnsupportedError(
                f"{section.where}: format = {shown(name_of)} cannot be read. Give the checkpoint it was made from."
            )
    for key in ("transform_config", "sparsity_config"):
        inner = section.get(key)
        if inner and not (isinstance(inner, dict) and inner.get("format") == "dense"):
            raise UnsupportedError(f"{section.where}: {key} is not supported. Give the checkpoint it was made from.")
    for name, tensor in tensors.items():
        if name.endswith("_packed"):
            yield name, _packed(tensors, name.removesuffix("_packed"))
        elif tensor.dtype in _EIGHT and f"{name}_scale" in tensors:
            yield name, _in_place(tensors, name, f"{name}_scale", block)


def _packed(tensors: Tensors, name: str) -> Matrix:
    packed = tensors[f"{name}_packed"]
    stored = _need(tensors, f"{name}_shape", "I64", "I32")
    sizes = stored.raw(np.dtype("<i8" if stored.dtype == "I64" else "<i4"), 0, stored.size).tolist()
    n_rows, n_words = _matrix_shape(packed)
    if packed.dtype != "I32" or len(sizes) != 2 or sizes[0] != n_rows or sizes[1] < 1:
        raise CheckpointError(f"{shown(name)} has packed rows {list(packed.shape)} for the shape {sizes}.")
    shape = (n_rows, sizes[1])
    bits = next((b for b in (4, 8, 2) if -(-shape[1] // (32 // b)) == n_words), 0)
    if not bits:
        raise UnsupportedError(
            f"{shown(name)}: {n_words} words for {shape[1]} columns are neither 2, 4 nor 8 bits each."
        )
    zero, order = (tensors.get(f"{name}_{end}") for end in ("zero_point", "g_idx"))
    scale = _need(tensors, f"{name}_scale")
    factor = _spread(scale, shape, None, order)
    bias = 1 << (bits - 1)
    less: ReadRows | None = None
    if zero is not None and zero.dtype == "I32":
        less = _packed_zeros(zero, shape, bits, order)
    elif zero is not None:
        less = _spread(zero, shape, None, order)

    def rows(start: int, stop: int) -> np.ndarray:
        words = packed.raw(np.dtype("<u4"), start * n_words, stop * n_words).reshape(-1, n_words)
        values = _fields(words, bits)[:, : shape[1]].astype(np.float32) - np.float32(bias)
        return (values if less is None else values - less(start, stop)) * factor(start, stop)

    ends = ("packed", "shape", "scale", "zero_point", "g_idx")
    return Matrix(name, shape, rows, tuple(f"{name}_{end}" for end in ends))


def _packed_zeros(zero: StoredTensor, shape: tuple[int, int], bits: int, order: StoredTensor | None) -> ReadRows:
    n, (n_words, n_groups) = 32 // bits, _matrix_shape(zero)
    if n_words != -(-shape[0] // n):
        raise CheckpointError(f"{shown(zero.name)} has shape {list(zero.shape)}, expected {-(-shape[0] // n)} rows.")
    group = _groups(zero.name, shape[1], n_groups, order)

    def rows(start: int, stop: int) -> np.ndarray:
        first = start // n
        words = zero.raw(np.dtype("<u4"), first * n_groups, -(-stop // n) * n_groups).reshape(-1, n_groups)
        every = _fields(words.T, bits).T[start - first * n : stop - first * n]
        return every.astype(np.float32)[:, group] - np.float32(1 << (bits - 1))

    return rows


def _gptq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/AutoGPTQ/AutoGPTQ, nn_modules/qlinear."""
    section.expects("checkpoint_format", "gptq", "gptq_v2")
    bits = section.integer("bits")
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{section.where}: GPTQ of {bits} bits cannot be read. Give the original checkpoint.")
    added = 0 if section.get("checkpoint_format") == "gptq_v2" else 1
    mask, n = (1 << bits) - 1, 32 // bits
    for name in tensors:
        if not name.endswith(".qweight"):
            continue
        base = name.removesuffix("qweight")
        weight, zeros, scales = (_need(tensors, base + end) for end in ("qweight", "qzeros", "scales"))
        (n_words, n_rows), (n_groups, _) = _matrix_shape(weight), _matrix_shape(scales)
        shape = (n_rows, n_words * n)
        wanted = ((weight, (n_words, n_rows)), (zeros, (n_groups, -(-n_rows // n))), (scales, (n_groups, n_rows)))
        _check_shapes(wanted)
        group = _groups(name, shape[1], n_groups, tensors.get(base + "g_idx"))

        def rows(
            start: int,
            stop: int,
            weight: StoredTensor = weight,
            zeros: StoredTensor = zeros,
            scales: StoredTensor = scales,
            group: np.ndarray = group,
        ) -> np.ndarray:
            values = _fields(_columns(weight, start, stop).T, bits)
            first = start // n
            less = _fields(_columns(zeros, first, -(-stop // n)), bits)[:, start - first * n : stop - first * n]
            less = ((less + added) & mask).T[:, group]
            weights: np.ndarray = (values - less).astype(np.float32) * _columns(scales, start, stop).T[:, group]
            return weights

        yield name, Matrix(base + "weight", shape, rows, tuple(base + e for e in ("qzeros", "scales", "g_idx")))


def _awq(tensors: Tensors, section: Config) -> Matrices:
    """See github.com/casper-hansen/AutoAWQ, utils/packing_utils."""
    section.expects("version", "gemm", "GEMM")
    section.expects("bits", 4)
    order = np.argsort(_AWQ_ROWS)
    for name in tensors:
        if not name.endswith(".qweight"):
            continue
        base = name.removesuffix("qweight")
        weight, zeros, scales = (_need(tensors, base + end) for end in ("qweight", "qzeros", "scales"))
        (n_columns, n_words), (n_groups, _) = _matrix_shape(weight), _matrix_shape(scales)
        shape = (8 * n_words, n_columns)
        _check_shapes(((weight, (n_columns, n_words)), (zeros, (n_groups, n_words)), (scales, (n_groups, shape[0]))))
        group = _groups(name, n_columns, n_groups, None)

        def rows(
            start: int,
            stop: int,
            weight: StoredTensor = weight,
            zeros: StoredTensor = zeros,
            scales: StoredTensor = scales,
            group: np.ndarray = group,
        ) -> np.ndarray:
            first, last = start // 8, -(-stop // 8)

            def of(tensor: StoredTensor) -> np.ndarray:
                fields = _fields(_columns(tensor, first, last), 4).reshape(tensor.shape[0], -1, 8)[:, :, order]
                return fields.reshape(tensor.shape[0], -1)[:, start - 8 * first : stop - 8 * first].T

            whole = (of(weight) - of(zeros)[:, group]).astype(np.float32)
            weights: np.ndarray = whole * _columns(scales, start, stop).T[:, group]
            return weights

        yield name, Matrix(base + "weight", shape, rows, tuple(base + e for e in ("qzeros", "scales")))


METHODS: dict[str, Callable[[Tensors, Config], Matrices]] = {
    "fp8": _scaled,
    "fbgemm_fp8": _scaled,
    "modelopt": _scaled,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "awq": _awq,
}


def _spread(
    scale: StoredTensor, shape: tuple[int, int], block: tuple[int, int] | None, order: StoredTensor | None
) -> ReadRows:
    """Scales or zero points for the values of some rows: f32, in a shape that broadcasts over the rows."""
    if scale.size == 1:
        return lambda start, stop: _numbers(scale, 0, 1).reshape(1, 1)
    given = scale.shape if len(scale.shape) > 1 else (*scale.shape, 1)
    if block and given == tuple(-(-n // size) for n, size in zip(shape, block, strict=True)):
        high, columns = block[0], np.arange(shape[1]) // block[1]
    elif len(given) == 2 and given[0] == shape[0]:
        high, columns = 1, _groups(scale.name, shape[1], given[1], order)
    else:
        raise CheckpointError(f"{shown(scale.name)} has shape {list(scale.shape)} for a matrix {list(shape)}.")

    def rows(start: int, stop: int) -> np.ndarray:
        first, last = start // high, -(-stop // high)
        some = _numbers(scale, first * given[1], last * given[1]).reshape(-1, given[1])
        return some[np.arange(start, stop) // high - first][:, columns]

    return rows


def _groups(name: str, n_columns: int, n_groups: int, order: StoredTensor | None) -> np.ndarray:
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


def _fields(words: np.ndarray, bits: int) -> np.ndarray:
    """u32 [n, words] -> i32 [n, words * 32 / bits], low bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    fields = (words.astype(np.uint32)[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)
    return fields.reshape(len(words), -1).astype(np.int32)


def _columns(tensor: StoredTensor, start: int, stop: int) -> np.ndarray:
    """Columns [start, stop) of a matrix of words or f32: one read per row, or one for all."""
    n_rows, n = tensor.shape

    def read(begin: int, end: int) -> np.ndarray:
        if tensor.dtype == "I32":
            return tensor.raw(np.dtype("<u4"), begin, end)
        return tensor.floats(begin, end)

    if (start, stop) == (0, n):
        return read(0, tensor.size).reshape(n_rows, n)
    return np.stack([read(i * n + start, i * n + stop) for i in range(n_rows)])


def _numbers(tensor: StoredTensor, start: int, stop: int) -> np.ndarray:
    """f32 of scales, including power-of-two scales (E8M0), or of 8-bit zero points."""
    if tensor.dtype == "F8_E8M0":
        return np.ldexp(np.float32(1), tensor.raw(np.dtype("u1"), start, stop).astype(np.int32) - 127)
    if tensor.dtype in ("I8", "U8"):
        return tensor.raw(np.dtype("i1" if tensor.dtype == "I8" else "u1"), start, stop).astype(np.float32)
    return tensor.floats(start, stop)


def _need(tensors: Tensors, name: str, *kinds: str) -> StoredTensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(
            f"the checkpoint lacks {shown(name)}, which its quantized weights need. Download it again."
        )
    if kinds and tensor.dtype not in kinds:
        raise CheckpointError(f"{shown(name)} is of type {tensor.dtype}, expected {' or '.join(kinds)}.")
    return tensor


def _matrix_shape(tensor: StoredTensor) -> tuple[int, int]:
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise UnsupportedError(f"{shown(tensor.name)} is quantized and of shape {list(tensor.shape)}, no matrix.")
    return tensor.shape[0], tensor.shape[1]


def _check_shapes(wanted: tuple[tuple[StoredTensor, tuple[int, int]], ...]) -> None:
    for tensor, shape in wanted:
        if tensor.shape != shape:
            raise CheckpointError(f"{shown(tensor.name)} has shape {list(tensor.shape)}, expected {list(shape)}.")


def _block(value: object, section: Config, key: str) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise section.wrong(key, "two positive integers")
    return value[0], value[1]


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


_TABLES = {"F8_E4M3": _table(4, 7), "F8_E5M2": _table(5, 15)}
