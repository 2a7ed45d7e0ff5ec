"""bitsandbytes: see github.com/bitsandbytes-foundation/bitsandbytes, functional.py.

4 bits (nf4, fp4)
    NAME u8 [values / 2, 1], or the same bytes as another type: all rows one after the other, the first of two in
    the high bits. NAME.quant_map f32 [16]: the values of the codes. NAME.absmax: of blocks of 64 or so values, which
    may lie in two rows. NAME.quant_state.bitsandbytes__KIND u8: JSON with blocksize and shape
    Doubly quantized: absmax u8 is a code of NAME.nested_quant_map f32 [256], times NAME.nested_absmax f32 of blocks
    of nested_blocksize, plus nested_offset
8 bits
    NAME i8 [rows, columns], BASE.SCB f32 [rows]: 127 times the scale. BASE.weight_format u8: 0
"""

import json
import math

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from ..config import Config
from ..tensor import OTHER_SIZES, Dtype, StoredTensor
from .block_floats import ReadRows
from .matrix import Matrices, Matrix, Tensors, bytes_of, kind_of, matrix_shape, need, numbers, scaled

# Settings that change no stored value: the tensors show how each matrix is stored.
IDLE = (
    "quant_method", "_load_in_4bit", "_load_in_8bit", "load_in_4bit", "load_in_8bit", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight", "llm_int8_skip_modules", "llm_int8_threshold",
)  # fmt: skip
KINDS = ("nf4", "fp4")
_STATE = ".quant_state.bitsandbytes__"


def bitsandbytes(tensors: Tensors, section: Config) -> Matrices:
    """Matrices of 4 and of 8 bits."""
    section.expects("bnb_4bit_quant_type", *KINDS)
    for name, tensor in tensors.items():
        if _STATE in name:
            weight, _, kind = name.partition(_STATE)
            if kind not in KINDS:
                raise UnsupportedError(f"{shown(name)}: bitsandbytes' {shown(kind)} is not read; nf4 and fp4 are.")
            yield weight, _four_bits(tensors, weight, tensor)
        elif tensor.dtype == "I8" and name.endswith("weight") and f"{name.removesuffix('weight')}SCB" in tensors:
            yield name, _eight_bits(tensors, name, tensor)


def _eight_bits(tensors: Tensors, name: str, tensor: StoredTensor) -> Matrix:
    base, shape = name.removesuffix("weight"), matrix_shape(tensor)
    scale, order = tensors[base + "SCB"], tensors.get(base + "weight_format")
    if scale.size != shape[0]:
        raise CheckpointError(
            f"{shown(scale.name)} is {kind_of(scale)}, expected one number for each of {shape[0]} rows."
        )
    if order is not None and numbers(order, 0, 1)[0] != 0:
        raise UnsupportedError(f"{shown(order.name)} is {numbers(order, 0, 1)[0]:g}: only rows in order (0) are read.")

    def factor(start: int, stop: int) -> np.ndarray:
        return (numbers(scale, start, stop) / np.float32(127))[:, None]

    return Matrix(name, shape, scaled(bytes_of(tensor), factor), (base + "SCB", base + "weight_format"))


def _four_bits(tensors: Tensors, name: str, state_tensor: StoredTensor) -> Matrix:
    state = _state(state_tensor)
    shape, block = _shape(state, state_tensor), state.integer("blocksize")
    size = math.prod(shape)
    weight, table = need(tensors, name), need(tensors, name + ".quant_map")
    absmax = need(tensors, name + ".absmax")
    nested = [name + end for end in (".nested_absmax", ".nested_quant_map")]
    n_bytes = weight.size * (weight.dtype.itemsize if isinstance(weight.dtype, Dtype) else OTHER_SIZES[weight.dtype])
    if n_bytes != -(-size // 2) or table.size != 16 or absmax.size != -(-size // block):
        raise CheckpointError(
            f"{shown(name)} has {n_bytes} bytes, {absmax.size} scales and {table.size} values of codes for "
            f"{list(shape)} in blocks of {block}. Download it again."
        )
    values = numbers(table, 0, 16)
    scales = _scales(tensors, absmax, nested, state)
    columns = shape[1]

    def rows(start: int, stop: int) -> np.ndarray:
        first, last = start * columns, stop * columns
        pairs = weight.raw(np.dtype("u1"), first // 2, -(-last // 2))
        codes = np.stack((pairs >> 4, pairs & 15), axis=1).reshape(-1)[first % 2 :][: last - first]
        begin = first // block
        some = scales(begin, -(-last // block))
        result: np.ndarray = values[codes] * some[np.arange(first, last) // block - begin]
        return result.reshape(-1, columns)

    return Matrix(name, shape, rows, (state_tensor.name, table.name, absmax.name, *nested))


def _scales(tensors: Tensors, absmax: StoredTensor, nested: list[str], state: Config) -> ReadRows:
    """Scales of blocks: (start, stop) -> f32 [stop - start]."""
    if state.get("nested_blocksize") is None and absmax.dtype != "U8":
        return lambda start, stop: numbers(absmax, start, stop)
    of_blocks, table = (need(tensors, name) for name in nested)
    block, offset = state.integer("nested_blocksize"), np.float32(state.number("nested_offset", positive=False))
    if absmax.dtype != "U8" or table.size != 256 or of_blocks.size != -(-absmax.size // block):
        raise CheckpointError(
            f"{shown(nested[0])} is {kind_of(of_blocks)} and {shown(nested[1])} {kind_of(table)}, which do not fit "
            f"{absmax.size} scales in blocks of {block}."
        )
    values, largest = numbers(table, 0, 256), numbers(of_blocks, 0, of_blocks.size)

    def scales(start: int, stop: int) -> np.ndarray:
        codes = absmax.raw(np.dtype("u1"), start, stop)
        result: np.ndarray = values[codes] * largest[np.arange(start, stop) // block] + offset
        return result

    return scales


def _state(tensor: StoredTensor) -> Config:
    """The JSON in a tensor of bytes."""
    try:
        found = json.loads(tensor.raw(np.dtype("u1"), 0, tensor.size).tobytes().decode())
    except (ValueError, RecursionError):
        found = None
    if tensor.dtype != "U8" or not isinstance(found, dict):
        raise CheckpointError(f"{shown(tensor.name)} is not a JSON object in bytes. Download it again.")
    state = Config(found, shown(tensor.name))
    state.expects("quant_type", *KINDS)
    return state


def _shape(state: Config, tensor: StoredTensor) -> tuple[int, int]:
    shape = state.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape):
        raise state.wrong("shape", "rows and columns")
    return shape[0], shape[1]
