"""HQQ (Badri and Shaji 2023): see github.com/mobiusml/hqq, core/quantize.py and bitpack.py.

    BASE.W_q, BASE.scale, BASE.zero, and numbers as tensors: BASE.shape, nbits, group_size, axis

The values of a matrix, one row after the other, are [groups, group_size] with scales and zeros [groups, 1] (axis 1), or
[group_size, groups] with [1, groups] (axis 0). Its rows are packed in equal parts, the first part in the highest bits:
2 of 4 bits, 4 of 2 or 8 of 1 in a byte, 10 of 3 bits in an i32. A value is (q - zero) * scale.
"""

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from ..config import Config
from ..tensor import StoredTensor
from .matrix import Matrices, Matrix, Tensors, kind_of, need, numbers

# Settings that change no stored value: the tensors of each matrix repeat the others.
IDLE = ("quant_method", "skip_modules", "dynamic_config")
_IDLE_OF_WEIGHTS = ("group_size", "axis", "channel_wise", "optimize", "round_zero")
_PER_WORD = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}
_IDLE_PARTS = ("W_q", "scale", "zero", "shape", "nbits", "group_size", "axis", "channel_wise", "compute_dtype",
               "encoded_state_dict", "offload_meta", "optimize", "packing", "quant_scale", "quant_zero", "round_zero",
               "stores_quant_config", "unpack_view_dtype", "view_as_float", "meta_scale", "meta_zero")  # fmt: skip


def hqq(tensors: Tensors, section: Config) -> Matrices:
    """Matrices of 1 to 8 bits."""
    settings = section.section("quant_config")
    for key in ("scale_quant_params", "zero_quant_params"):
        settings.expects(key)
    of_weights = settings.section("weight_quant_params")
    of_weights.expects("nbits", *_PER_WORD)
    of_weights.expects("view_as_float", False)
    of_weights.refuse_unread(_IDLE_OF_WEIGHTS)
    settings.refuse_unread(("offload_meta",))
    for name in tensors:
        if name.endswith(".W_q"):
            yield name, _matrix(tensors, name.removesuffix("W_q"))


def _matrix(tensors: Tensors, base: str) -> Matrix:
    def integer(end: str) -> int:
        return _integers(need(tensors, base + end))[0]

    for end in ("quant_scale", "quant_zero", "view_as_float"):
        if base + end in tensors and integer(end):
            raise UnsupportedError(f"{shown(base + end)} is 1: HQQ with {end} is not read, only without.")
    bits, axis, shape = integer("nbits"), integer("axis"), _integers(need(tensors, base + "shape"))
    if bits not in _PER_WORD or axis not in (0, 1) or len(shape) != 2 or min(shape) < 1:
        raise UnsupportedError(f"{shown(base + 'W_q')}: HQQ of {bits} bits, axis {axis}, shape {shape} is not read.")
    size = shape[0] * shape[1]
    group = integer("group_size") if base + "group_size" in tensors else shape[axis]
    words, scale, zero = (need(tensors, base + end) for end in ("W_q", "scale", "zero"))
    if group < 1 or size % group:
        raise CheckpointError(f"{shown(base + 'group_size')} = {group} is no divisor of {size} values.")
    n_groups, per_word = size // group, _PER_WORD[bits]
    high, wide = (n_groups, group) if axis == 1 else (group, n_groups)
    step = -(-high // per_word)
    kind = "I32" if bits == 3 else "U8"
    if (words.dtype, words.shape) != (kind, (step, wide)):
        raise CheckpointError(f"{shown(words.name)} is {kind_of(words)}, expected {kind} {[step, wide]}.")
    for one in (scale, zero):
        if one.size != n_groups:
            raise CheckpointError(f"{shown(one.name)} is {kind_of(one)}, expected {n_groups} values.")
    stored = np.dtype("<u4" if bits == 3 else "u1")

    def rows(start: int, stop: int) -> np.ndarray:
        first, last = start * shape[1], stop * shape[1]
        codes = np.empty(last - first, np.float32)
        for part in range(per_word):
            begin = part * step * wide
            low, end = max(first, begin), min(last, begin + step * wide)
            if low < end:
                some = words.raw(stored, low - begin, end - begin)
                codes[low - first : end - first] = some >> stored.type(bits * (per_word - 1 - part)) & (1 << bits) - 1
        i = np.arange(first, last)
        of_group = i // wide if axis == 1 else i % wide
        low, end = (int(of_group.min()), int(of_group.max()) + 1)
        less, factor = (numbers(one, low, end)[of_group - low] for one in (zero, scale))
        values: np.ndarray = (codes - less) * factor
        return values.reshape(-1, shape[1])

    return Matrix(base + "weight", (shape[0], shape[1]), rows, tuple(base + part for part in _IDLE_PARTS))


def _integers(tensor: StoredTensor) -> list[int]:
    kinds = {"I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "u1"}
    if tensor.dtype not in kinds or tensor.size < 1:
        raise CheckpointError(f"{shown(tensor.name)} is {kind_of(tensor)}, expected integers.")
    found: list[int] = tensor.raw(np.dtype(kinds[str(tensor.dtype)]), 0, tensor.size).tolist()
    return found
