"""Keys and values as ggml's blocks, and in llama.cpp's basis, for its session files.

    q8_0    f16 scale, i8 [32]
    q4_0    f16 scale, u8 [16]: code j in the low half of byte j, code j + 16 in the high half
    q4_1    f16 scale, f16 minimum, u8 [16]
    iq4_nl  f16 scale, u8 [16]
    q5_0    f16 scale, u32 with the fifth bits, u8 [16]
    q5_1    f16 scale, f16 minimum, u32, u8 [16]

Codes are moved, not computed again, wherever both programs store in the same basis: heads of a multiple of 64 values.
llama.cpp rotates all quantized keys and values of such heads (src/llama-kv-cache.cpp, PR 21038), and no others; older
builds, and the variable LLAMA_ATTN_ROT_DISABLE, rotate none. Source: ggml-common.h.
"""

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import GROUP, LARGEST_BLOCK_OF_VALUES, KVType
from .kv_codec import Parts, decoded, encoded, packed_codes, transformed, unpacked_codes

LEAST_BLOCK = 64  # llama.cpp rotates heads of its multiples


def llama_basis(kind: KVType, width: int, *, values: bool, rotated: bool) -> int:
    """Block of the transform in llama.cpp; 0: none. rotated: whether the file's program rotates."""
    if not rotated or not kind.quantized or width % LEAST_BLOCK:
        return 0
    return LARGEST_BLOCK_OF_VALUES if values else width & -width


def moved(parts: Parts, kind: KVType, width: int, source: int, target: int) -> Parts:
    """Planes from one basis in another, rounded once more unless the bases are the same. source, target: blocks."""
    if source == target:
        return parts
    return encoded(transformed(transformed(decoded(parts, kind, width), source), target), kind)


def row_bytes(kind: KVType, width: int) -> int:
    """Bytes of `width` values; 0: ggml has no such row, since a block has 32 values."""
    if not kind.quantized:
        return width * kind.codes.size
    codes = (4 if ".high" in kind.has else 0) + (GROUP // 2 if kind.packed else GROUP)
    return 0 if width % GROUP else width // GROUP * (kind.group + codes)


def blocks_of(parts: Parts, kind: KVType) -> npt.NDArray[np.uint8]:
    """Planes [..., element] of whole groups -> u8 [..., bytes]."""
    codes = parts[""]
    if not kind.quantized:
        return np.ascontiguousarray(codes).view(np.uint8)
    fields = [_bytes(parts[name][..., None], "<f2") for name in (".scale", ".min") if name in parts]
    if not kind.packed:
        fields.append(_bytes(codes.reshape(*codes.shape[:-1], -1, GROUP), "i1"))
    else:
        number = unpacked_codes(codes, parts.get(".high")).reshape(*codes.shape[:-1], -1, GROUP)
        if ".high" in kind.has:
            bits = np.bitwise_or.reduce((number >> 4).astype(np.uint32) << np.arange(GROUP, dtype=np.uint32), axis=-1)
            fields.append(_bytes(bits[..., None], "<u4"))
        low = (number & 15).astype(np.uint8)
        fields.append((low[..., : GROUP // 2] | low[..., GROUP // 2 :] << 4).astype(np.uint8))
    blocks = np.concatenate(fields, axis=-1)
    return blocks.reshape(*blocks.shape[:-2], -1)


def parts_of(blocks: npt.NDArray[np.uint8], kind: KVType) -> Parts:
    """Inverse of `blocks_of`."""
    if not kind.quantized:
        return {"": np.ascontiguousarray(blocks).view(kind.codes.dtype)}
    blocks = blocks.reshape(*blocks.shape[:-1], -1, row_bytes(kind, GROUP))
    parts: Parts = {}
    at = 0
    for name in (".scale", ".min"):
        if name in kind.has:
            parts[name] = np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0]
            at += 2
    if not kind.packed:
        return {"": np.ascontiguousarray(blocks[..., at:]).view(np.int8).reshape(*blocks.shape[:-2], -1), **parts}
    high: npt.NDArray[np.int64] | int = 0
    if ".high" in kind.has:
        bits = np.ascontiguousarray(blocks[..., at : at + 4]).view("<u4")
        high = (bits >> np.arange(GROUP, dtype=np.uint32) & 1).astype(np.int64) << 4
        at += 4
    low = np.concatenate([blocks[..., at:] & 15, blocks[..., at:] >> 4], axis=-1).astype(np.int64)
    parts |= packed_codes((low + high).reshape(*blocks.shape[:-2], -1))
    return {plane.name: parts[plane.name] for plane in kind.planes}


def _bytes(x: np.ndarray, dtype: str) -> npt.NDArray[np.uint8]:
    """The last axis as bytes."""
    return np.ascontiguousarray(x, dtype).view(np.uint8)
