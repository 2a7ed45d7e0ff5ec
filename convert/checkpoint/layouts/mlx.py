"""MLX: see github.com/ml-explore/mlx, ops `quantize` and `dequantize`. A module is quantized if it has BASE.scales.

    affine  BASE.weight u32 [rows, columns * bits / 32]: a row is a stream of bits, low bits first; bits 2, 3, 4, 5, 6
            or 8. BASE.scales and BASE.biases [rows, columns / group_size]: q * scale + bias
    mxfp4   BASE.weight: 4-bit floats, BASE.scales u8 [rows, columns / 32]: exponents
    mxfp8   BASE.weight: F8_E4M3, BASE.scales u8 [rows, columns / 32]: exponents
    nvfp4   BASE.weight: 4-bit floats, BASE.scales u8 [rows, columns / 16]: F8_E4M3

A module's own bits, group_size and mode are in the settings under its name. Experts are stacked: all of these may have
a dimension more. `mlx_families` names the tensors as in the checkpoint that was converted.
"""

from dataclasses import replace

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.types import GGMLType

from ..config import Config
from ..tensor import StoredTensor
from .block_floats import ReadRows
from .matrix import Matrices, Matrix, Tensors, bytes_of, fields, fp4, kind_of, need, numbers, powers, row_bytes, scaled

IDLE = ("quant_method",)
_MODES = {"affine": None, "mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # bits, group_size
_BITS = (2, 3, 4, 5, 6, 8)


def mlx(tensors: Tensors, section: Config) -> Matrices:
    """Matrices in all modes, by the names in the folder."""
    _settings(section, "")
    for name, tensor in tensors.items():
        base = name.removesuffix("weight")
        if name.endswith(".weight") and base + "scales" in tensors:
            yield name, _matrix(tensors, base, tensor, _settings(section, base.removesuffix(".")))
    for key, value in section.data.items():
        if isinstance(value, dict):  # of a module, which may have no tensors here
            _settings(section, key)
        elif isinstance(value, bool):
            section.get(key)


def _settings(section: Config, module: str) -> tuple[str, int, int]:
    """Mode, bits and group_size of a module: its own, or the settings of all modules."""
    own = section.section(module) if isinstance(section.data.get(module), dict) else section
    mode = own.string("mode", default=None) or section.string("mode", default="affine")
    if mode not in _MODES:
        own.expects("mode", *_MODES)
    fixed = _MODES[mode]
    bits = own.integer("bits", default=section.get("bits") or 4)
    group = own.integer("group_size", default=section.get("group_size") or 64)
    if fixed is not None and (bits, group) != fixed:
        own.expects("bits", fixed[0])
        own.expects("group_size", fixed[1])
        bits, group = fixed
    own.expects("bits", *_BITS)
    if own is not section:
        own.refuse_unread(())
    return mode, bits, group


def _matrix(tensors: Tensors, base: str, words: StoredTensor, how: tuple[str, int, int]) -> Matrix:
    mode, bits, group = how
    name, scales = base + "weight", tensors[base + "scales"]
    if words.dtype != "U32" or not 2 <= len(words.shape) <= 3 or 0 in words.shape:
        raise CheckpointError(f"{shown(name)} is {kind_of(words)}, expected U32 [rows, words] in mode {mode}.")
    shape = (*words.shape[:-1], row_bytes(words) * 8 // bits)
    wanted = (*shape[:-1], shape[-1] // group)
    if row_bytes(words) * 8 % bits or shape[-1] % group or scales.shape != wanted:
        raise CheckpointError(
            f"{shown(scales.name)} is {kind_of(scales)}, expected {list(wanted)} for {list(shape)} of {bits} bits in "
            f"groups of {group}."
        )
    if mode in ("mxfp4", "nvfp4"):
        return fp4(name, words, scales, GGMLType[mode.upper()], (scales.name,))
    if mode == "mxfp8":
        if scales.dtype != "U8":
            raise CheckpointError(f"{shown(scales.name)} is {kind_of(scales)}, expected U8 in mode mxfp8.")
        floats = bytes_of(replace(words, dtype="F8_E4M3", shape=shape))
        return Matrix(name, shape, scaled(floats, powers(scales)), (scales.name,))
    biases = need(tensors, base + "biases")
    if biases.shape != scales.shape:
        raise CheckpointError(f"{shown(biases.name)} is {kind_of(biases)}, expected {list(scales.shape)}.")
    return Matrix(name, shape, _affine(words, scales, biases, bits, group), (scales.name, biases.name))


def _affine(words: StoredTensor, scales: StoredTensor, biases: StoredTensor, bits: int, group: int) -> ReadRows:
    n_words, n_groups = words.shape[-1], scales.shape[-1]

    def rows(start: int, stop: int) -> np.ndarray:
        stream = words.raw(np.dtype("<u4"), start * n_words, stop * n_words).reshape(-1, n_words)
        codes = _codes(stream, bits).astype(np.float32).reshape(-1, n_groups, group)
        factor, more = (
            numbers(one, start * n_groups, stop * n_groups).reshape(-1, n_groups, 1) for one in (scales, biases)
        )
        values: np.ndarray = codes * factor + more
        return values.reshape(len(stream), -1)

    return rows


def _codes(words: np.ndarray, bits: int) -> np.ndarray:
    """u32 [rows, words] -> integers [rows, columns] of a stream of bits."""
    if 32 % bits == 0:
        return fields(words, bits)
    # eight codes are in as many bytes as a code has bits
    eight = np.zeros((len(words), words.shape[1] * 4 // bits, 8), np.uint8)
    eight[:, :, :bits] = words.view(np.uint8).reshape(len(words), -1, bits)
    shifts = np.arange(0, 8 * bits, bits, dtype=np.uint64)
    codes = (eight.view("<u8") >> shifts).astype(np.uint8) & ((1 << bits) - 1)
    return codes.reshape(len(words), -1)
