"""Experts that are published in MXFP4 (OCP Microscaling Formats 1.0): kept as blocks, since GGUF has the same.

    gpt-oss
        NAME_blocks u8 [expert, row, block, 16]   byte k of a block holds weight 2 k (low 4 bits) and 2 k + 1 (high)
        NAME_scales u8 [expert, row, block]       E8M0: the exponent of a power of two, plus 127
    compressed-tensors, format mxfp4-pack-quantized (Kimi K3)
        NAME_packed u8 [row, block * 16]          the same bytes, of one expert
        NAME_scale u8 [row, block]                the same
    DeepSeek-V4, beside matrices in FP8
        BASE.weight i8 [row, block * 16]          the same
        BASE.scale E8M0 [row, block]              the same

quant/ggml/formats/fp4.py has GGUF's order: exponent first, byte k holds weights k and k + 16. Only bits are moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.types import TRAITS, GGMLType

from .tensor import Dtype, StoredTensor

METHOD = "mxfp4"
PACKED_FORMAT = "mxfp4-pack-quantized"
BLOCKS, SCALES = "_blocks", "_scales"
PACKED, SCALE = "_packed", "_scale"
_WEIGHT, _BESIDE = ".weight", ".scale"
_BLOCK, _NBYTES = TRAITS[GGMLType.MXFP4].block, TRAITS[GGMLType.MXFP4].nbytes
_LARGEST = 252  # exponent of a scale; with a larger one the largest weight of a block overflows f32


@dataclass(frozen=True)
class BlockTensor(StoredTensor):
    """MXFP4 matrices [expert, row, column], or one [row, column]. `file` and `offset` are the blocks'; read as numbers,
    their `dtype` is F32."""

    scales: StoredTensor | None = None

    @property
    def kept(self) -> Dtype | str:
        return GGMLType.MXFP4.name

    @property
    def block_type(self) -> GGMLType | None:
        return GGMLType.MXFP4

    def part(self, start: tuple[int, ...], shape: tuple[int, ...]) -> StoredTensor:
        raise UnsupportedError(f"{shown(self.name)} is MXFP4 and cannot be taken apart.")

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """[start, stop) of the first dimension as GGUF blocks, u8 [stop - start, bytes]. CheckpointError: a scale is
        NaN or too large."""
        return self._blocks(start, stop, self.size // self.shape[0]).reshape(stop - start, -1)

    def read(self, start: int, stop: int) -> np.ndarray:
        begin, end = start // _BLOCK, -(-stop // _BLOCK)
        values = formats.decode(GGMLType.MXFP4, self._blocks(begin, end, _BLOCK).reshape(1, -1)).reshape(-1)
        return values[start - begin * _BLOCK : stop - begin * _BLOCK]

    def _blocks(self, start: int, stop: int, n: int) -> np.ndarray:
        """Pieces [start, stop) of n weights each: u8 [block, 17]."""
        assert self.scales is not None
        n_block = n // _BLOCK
        out = np.empty(((stop - start) * n_block, _NBYTES), np.uint8)
        exponents = self.scales.raw(np.dtype("u1"), start * n_block, stop * n_block)
        if exponents.size and int(exponents.max()) > _LARGEST:
            raise CheckpointError(
                f"{shown(self.scales.name)} holds scales that are NaN or too large (in {self.file.where}). "
                "The checkpoint is damaged."
            )
        out[:, 0] = exponents
        pairs = self.raw(np.dtype("u1"), start * n // 2, stop * n // 2).reshape(-1, _BLOCK // 2)
        codes = np.empty((len(pairs), _BLOCK), np.uint8)
        codes[:, 0::2], codes[:, 1::2] = pairs & 15, pairs >> 4
        out[:, 1:] = codes[:, : _BLOCK // 2] | codes[:, _BLOCK // 2 :] << 4
        return out


def with_blocks(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, with each pair of blocks and scales as one tensor under the blocks' name."""
    used = {name.removesuffix(BLOCKS) + SCALES for name in tensors if name.endswith(BLOCKS)}
    return {
        name: _joined(tensors, name) if name.endswith(BLOCKS) else tensor
        for name, tensor in tensors.items()
        if name not in used
    }


def with_packed(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, with each packed matrix and its scales as one tensor under the matrix's name."""
    used = {name.removesuffix(PACKED) + SCALE for name in tensors if name.endswith(PACKED)}
    return {
        name.removesuffix(PACKED): _unpacked(tensors, name) if name.endswith(PACKED) else tensor
        for name, tensor in tensors.items()
        if name not in used
    }


def _unpacked(tensors: Mapping[str, StoredTensor], name: str) -> BlockTensor:
    base = name.removesuffix(PACKED)
    if base + SCALE not in tensors:
        raise CheckpointError(
            f"the checkpoint lacks {shown(base + SCALE)}, the scales of {shown(name)}. Download it again."
        )
    return _matrix(base, tensors[name], tensors[base + SCALE])


def _matrix(name: str, packed: StoredTensor, scales: StoredTensor) -> BlockTensor:
    """The matrix of one expert."""
    if packed.dtype not in ("U8", "I8") or len(packed.shape) != 2 or packed.shape[1] % (_BLOCK // 2):
        raise CheckpointError(
            f"{shown(packed.name)} is {_kind(packed)}, expected U8 [rows, blocks * {_BLOCK // 2}] in MXFP4."
        )
    n_row, n_block = packed.shape[0], packed.shape[1] // (_BLOCK // 2)
    if scales.dtype not in ("U8", "F8_E8M0") or scales.shape != (n_row, n_block):
        raise CheckpointError(f"{shown(scales.name)} is {_kind(scales)}, expected U8 {[n_row, n_block]}.")
    return BlockTensor(name, Dtype.F32, (n_row, n_block * _BLOCK), packed.file, packed.offset, scales=scales)


def with_weights(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, with each pair of bytes and power-of-two scales as one tensor; others are unchanged."""
    scales: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        beside = tensors.get(name.removesuffix(_WEIGHT) + _BESIDE) if name.endswith(_WEIGHT) else None
        if tensor.dtype in ("I8", "U8") and beside is not None and beside.dtype == "F8_E8M0":
            scales[name] = beside
    used = {tensor.name for tensor in scales.values()}
    return {
        name: _matrix(name, tensor, scales[name]) if name in scales else tensor
        for name, tensor in tensors.items()
        if name not in used
    }


def _joined(tensors: Mapping[str, StoredTensor], name: str) -> BlockTensor:
    blocks, other = tensors[name], name.removesuffix(BLOCKS) + SCALES
    if other not in tensors:
        raise CheckpointError(f"the checkpoint lacks {shown(other)}, the scales of {shown(name)}. Download it again.")
    scales = tensors[other]
    if blocks.dtype != "U8" or len(blocks.shape) != 4 or blocks.shape[3] != _BLOCK // 2:
        raise CheckpointError(
            f"{shown(name)} is {_kind(blocks)}, expected U8 [experts, rows, blocks, {_BLOCK // 2}] in MXFP4."
        )
    if scales.dtype not in ("U8", "F8_E8M0") or scales.shape != blocks.shape[:3]:
        raise CheckpointError(f"{shown(other)} is {_kind(scales)}, expected U8 {list(blocks.shape[:3])}.")
    n_expert, n_row, n_block = scales.shape
    return BlockTensor(name, Dtype.F32, (n_expert, n_row, n_block * _BLOCK), blocks.file, blocks.offset, scales=scales)


def _kind(tensor: StoredTensor) -> str:
    return f"{getattr(tensor.dtype, 'name', tensor.dtype)} {list(tensor.shape)}"
