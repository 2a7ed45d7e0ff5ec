"""compressed-tensors: see github.com/neuralmagic/compressed-tensors, compressors.

float-quantized, int-quantized, naive-quantized
    NAME f8 or i8 [rows, columns], NAME_scale: one for all, one per row, per block or per group of columns;
    NAME_zero_point, NAME_g_idx: the group of each column
pack-quantized
    NAME_packed i32 [rows, columns / n]: n = 32 / bits fields of a word, low bits first, biased by 2^(bits - 1);
    zero points are packed along the rows
nvfp4-pack-quantized
    NAME_packed u8 [rows, columns / 2], NAME_scale f8 [rows, columns / 16], NAME_weight_global_scale f32 [1], which
    divides
mxfp4-pack-quantized
    NAME_packed u8 [rows, columns / 2], NAME_scale u8 [rows, columns / 32]: exponents
mixed-precision
    each group of layers in one of these; the tensors show which one
"""

import re
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import GGMLType

from ..config import Config
from ..tensor import StoredTensor
from .block_floats import ReadRows
from .matrix import (
    EIGHT,
    Matrices,
    Matrix,
    Tensors,
    block_size,
    fields,
    fp4,
    groups,
    in_place,
    matrix_shape,
    need,
    number,
    spread,
)

FORMATS = ("float-quantized", "int-quantized", "naive-quantized", "pack-quantized", "nvfp4-pack-quantized",
           "mxfp4-pack-quantized", "mixed-precision", "dense")  # fmt: skip
# Settings that change no stored value.
IDLE = (
    "quant_method", "version", "quantization_status", "global_compression_ratio", "ignore", "kv_cache_scheme",
    "run_compressed",
)  # fmt: skip
_IDLE_OF_GROUP = ("input_activations", "output_activations")
_IDLE_OF_WEIGHTS = (
    "symmetric", "group_size", "dynamic", "actorder", "observer", "observer_kwargs",
    "scale_dtype", "zp_dtype",
)  # fmt: skip


@dataclass(frozen=True)
class _Group:
    """The layers of a group, and the sizes of its blocks if it has some."""

    targets: tuple[str, ...]
    block: tuple[int, int] | None

    def names(self, module: str) -> bool:
        """Whether a target is this module or a regular expression for it; others are names of classes."""
        return any(
            re.match(target[3:], module) is not None if target.startswith("re:") else target == module
            for target in self.targets
        )


def compressed_tensors(tensors: Tensors, section: Config) -> Matrices:
    """Matrices in all formats of these settings."""
    _check_format(section)
    named = _groups(section)
    for key in ("transform_config", "sparsity_config"):
        inner = section.get(key)
        if inner and not (isinstance(inner, dict) and inner.get("format") == "dense"):
            raise UnsupportedError(f"{section.where}: {key} is not supported. Give the checkpoint it was made from.")
    for name, tensor in tensors.items():
        if name.endswith("_packed"):
            yield name, _packed(tensors, name.removesuffix("_packed"))
        elif tensor.dtype in EIGHT and f"{name}_scale" in tensors:
            yield name, in_place(tensors, name, f"{name}_scale", _block_of(name, named))


def _check_format(section: Config) -> None:
    name = section.get("format")
    if name is not None and name not in FORMATS:
        raise UnsupportedError(
            f"{section.where}: format = {shown(name)} cannot be read. Give the checkpoint it was made from."
        )


def _groups(section: Config) -> list[_Group]:
    found = []
    for key in section.section("config_groups").data:
        group = section.section("config_groups").section(key)
        _check_format(group)
        targets = group.get("targets") or []
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise group.wrong("targets", "a list of names")
        for target in targets:
            try:
                re.compile(target[3:] if target.startswith("re:") else "")
            except re.error:
                raise group.wrong("targets", "regular expressions after re:") from None
        weights = group.section("weights")
        weights.expects("type", "int", "float")
        weights.expects("num_bits", 2, 4, 8)
        weights.expects("strategy", "tensor", "channel", "group", "block", "tensor_group")
        found.append(_Group(tuple(targets), block_size(weights.get("block_structure"), weights, "block_structure")))
        group.refuse_unread(_IDLE_OF_GROUP)
        weights.refuse_unread(_IDLE_OF_WEIGHTS)
    return found


def _block_of(name: str, named: list[_Group]) -> tuple[int, int] | None:
    """The block sizes of the group that has this weight: the group that names it, or else one of classes of layers."""
    module = name.rpartition(".")[0]
    group = next((g for g in named if g.names(module)), None)
    if group is None:
        by_class = [g for g in named if any(t.isidentifier() for t in g.targets) or not g.targets]
        group = next((g for g in by_class if g.block), None)
    return group.block if group else None


def _packed(tensors: Tensors, name: str) -> Matrix:
    packed = tensors[f"{name}_packed"]
    if packed.dtype in ("U8", "I8"):
        return _floats(tensors, name, packed)
    stored = need(tensors, f"{name}_shape", "I64", "I32")
    sizes = stored.raw(np.dtype("<i8" if stored.dtype == "I64" else "<i4"), 0, stored.size).tolist()
    n_rows, n_words = matrix_shape(packed)
    if packed.dtype != "I32" or len(sizes) != 2 or sizes[0] != n_rows or sizes[1] < 1:
        raise CheckpointError(f"{shown(name)} has packed rows {list(packed.shape)} for the shape {sizes}.")
    shape = (n_rows, sizes[1])
    bits = next((b for b in (4, 8, 2) if -(-shape[1] // (32 // b)) == n_words), 0)
    if not bits:
        raise UnsupportedError(
            f"{shown(name)}: {n_words} words for {shape[1]} columns are neither 2, 4 nor 8 bits each."
        )
    zero, order = (tensors.get(f"{name}_{end}") for end in ("zero_point", "g_idx"))
    scale = need(tensors, f"{name}_scale")
    factor = spread(scale, shape, None, order)
    bias = 1 << (bits - 1)
    less: ReadRows | None = None
    if zero is not None and zero.dtype == "I32":
        less = _packed_zeros(zero, shape, bits, order)
    elif zero is not None:
        less = spread(zero, shape, None, order)

    def rows(start: int, stop: int) -> np.ndarray:
        words = packed.raw(np.dtype("<u4"), start * n_words, stop * n_words).reshape(-1, n_words)
        values = fields(words, bits)[:, : shape[1]].astype(np.float32) - np.float32(bias)
        return (values if less is None else values - less(start, stop)) * factor(start, stop)

    ends = ("packed", "shape", "scale", "zero_point", "g_idx")
    return Matrix(name, shape, rows, tuple(f"{name}_{end}" for end in ends))


def _floats(tensors: Tensors, name: str, packed: StoredTensor) -> Matrix:
    scale, all_scale = f"{name}_scale", f"{name}_global_scale"
    parts = (scale, all_scale)
    if all_scale not in tensors and need(tensors, scale).dtype != "F8_E4M3":
        return fp4(name, packed, need(tensors, scale), GGMLType.MXFP4, parts)
    of_input = f"{name.removesuffix('weight')}input_global_scale"
    given = 1 / number(tensors, of_input) if of_input in tensors else 1.0
    factor = float(np.float32(1) / np.float32(number(tensors, all_scale)))
    return fp4(name, packed, need(tensors, scale), GGMLType.NVFP4, parts, factor, given)


def _packed_zeros(zero: StoredTensor, shape: tuple[int, int], bits: int, order: StoredTensor | None) -> ReadRows:
    n, (n_words, n_groups) = 32 // bits, matrix_shape(zero)
    if n_words != -(-shape[0] // n):
        raise CheckpointError(f"{shown(zero.name)} has shape {list(zero.shape)}, expected {-(-shape[0] // n)} rows.")
    group = groups(zero.name, shape[1], n_groups, order)

    def rows(start: int, stop: int) -> np.ndarray:
        first = start // n
        words = zero.raw(np.dtype("<u4"), first * n_groups, -(-stop // n) * n_groups).reshape(-1, n_groups)
        every = fields(words.T, bits).T[start - first * n : stop - first * n]
        return every.astype(np.float32)[:, group] - np.float32(1 << (bits - 1))

    return rows
