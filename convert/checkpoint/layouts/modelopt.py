"""ModelOpt of Nvidia: hf_quant_config.json, or the same in config.json.

    FP8, FP8_PER_CHANNEL_PER_TOKEN
        NAME f8 [rows, columns], NAME_scale f32: one for all, or one per row
    NVFP4, W4A16_NVFP4, W4A8_NVFP4_FP8, NVFP4_AWQ
        NAME u8 [rows, columns / 2], NAME_scale f8 [rows, columns / 16], NAME_scale_2 f32: of the matrix
    MXFP8
        NAME f8 [rows, columns], NAME_scale u8 [rows, columns / 32]: exponents
    W4A8_MXFP4_FP8
        NAME u8 [rows, columns / 2], NAME_scale u8 [rows, columns / 32]: exponents
    MIXED_PRECISION
        one of these per layer: quantized_layers

BASE.pre_quant_scale [columns] multiplies the inputs of a layer, and here its columns.
"""

from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import GGMLType

from ..config import Config
from ..tensor import StoredTensor
from .matrix import (
    Matrices,
    Matrix,
    Tensors,
    bytes_of,
    fp4,
    in_place,
    kind_of,
    matrix_shape,
    need,
    number,
    numbers,
    powers,
    scaled,
)

ALGORITHMS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8", "NVFP4_AWQ", "MXFP8",
              "W4A8_MXFP4_FP8")  # fmt: skip
# Settings that change no stored value: the layers left alone, the types of activations and caches.
IDLE = (
    "quant_method", "kv_cache_quant_algo", "kv_cache_scheme", "group_size", "exclude_modules", "ignore",
    "config_groups", "producer", "pre_quant_scale", "modules_to_not_convert",
)  # fmt: skip
_EXACT_INPUTS = "W4A16_NVFP4"
_PRE_SCALE = "pre_quant_scale"


def modelopt(tensors: Tensors, section: Config) -> Matrices:
    """Matrices; their tensors show the algorithm of each."""
    section.expects("quant_algo", *ALGORITHMS, "MIXED_PRECISION")
    section.expects("has_zero_point", False)
    layers = section.section("quantized_layers")
    for name in layers.data:
        layer = layers.section(name)
        layer.expects("quant_algo", *ALGORITHMS)
        layer.refuse_unread(("group_size",))
    for name, tensor in tensors.items():
        scale = f"{name}_scale"
        if name.endswith("weight") and scale in tensors and tensor.dtype in ("F8_E4M3", "F8_E5M2", "U8"):
            matrix = _with_pre_scale(_matrix(tensors, name, tensor, scale), tensors)
            exact = _algorithm_of(name, section, layers) == _EXACT_INPUTS
            packed = matrix.packed and replace(matrix.packed, exact_inputs=exact)
            yield name, replace(matrix, packed=packed)


def _algorithm_of(name: str, section: Config, layers: Config) -> Any:
    """The algorithm of a weight: of the innermost module around it that has its own, or of all."""
    module = name
    while module:
        module = module.rpartition(".")[0]
        if module in layers.data:
            return layers.section(module).get("quant_algo")
    return section.get("quant_algo")


def _matrix(tensors: Tensors, name: str, tensor: StoredTensor, scale: str) -> Matrix:
    parts, scales = (scale, f"{scale}_2"), tensors[scale]
    if tensor.dtype == "U8" and parts[1] in tensors:
        of_input = f"{name.removesuffix('weight')}input_scale"
        given = number(tensors, of_input) if of_input in tensors else 1.0
        return fp4(name, tensor, scales, GGMLType.NVFP4, parts, number(tensors, parts[1]), given)
    if tensor.dtype == "U8":
        if scales.dtype not in ("U8", "F8_E8M0"):
            need(tensors, parts[1])
        return fp4(name, tensor, scales, GGMLType.MXFP4, parts)
    if scales.dtype == "U8":
        return _mxfp8(name, tensor, scales)
    return in_place(tensors, name, scale, None)


def _mxfp8(name: str, tensor: StoredTensor, scales: StoredTensor) -> Matrix:
    shape = matrix_shape(tensor)
    if shape[1] % 32 or scales.shape != (shape[0], shape[1] // 32):
        raise CheckpointError(f"{shown(scales.name)} is {kind_of(scales)}, expected an exponent per 32 columns.")
    return Matrix(name, shape, scaled(bytes_of(tensor), powers(scales)), (scales.name,))


def _with_pre_scale(matrix: Matrix, tensors: Tensors) -> Matrix:
    name = matrix.weight.removesuffix("weight") + _PRE_SCALE
    if name not in tensors:
        return matrix
    scale = tensors[name]
    if scale.shape not in ((matrix.shape[1],), (1, matrix.shape[1])):
        raise UnsupportedError(f"{shown(name)} is {kind_of(scale)}, expected a factor for each column.")
    factors = numbers(scale, 0, scale.size)[None, :]
    return Matrix(matrix.weight, matrix.shape, scaled(matrix.rows, lambda start, stop: factors), (*matrix.parts, name))
