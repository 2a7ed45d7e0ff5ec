"""The tensor types of ggml and the file types of GGUF: the only place that knows their numbers and sizes."""

from dataclasses import dataclass
from enum import IntEnum

from .errors import FormatError


class GGMLType(IntEnum):
    """Tensor types by the number stored in GGUF (ggml.h, `enum ggml_type`). Only those with a format here."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q8_0 = 8
    BF16 = 30


@dataclass(frozen=True)
class TypeTraits:
    """`block` consecutive weights of a row are stored in `nbytes` bytes."""

    block: int
    nbytes: int


TRAITS: dict[GGMLType, TypeTraits] = {
    GGMLType.F32: TypeTraits(1, 4),
    GGMLType.F16: TypeTraits(1, 2),
    GGMLType.BF16: TypeTraits(1, 2),
    GGMLType.Q4_0: TypeTraits(32, 18),
    GGMLType.Q8_0: TypeTraits(32, 34),
}

# Every type that ggml has, so that a file that uses one of ours-to-come is named instead of called damaged.
KNOWN_TYPE_NAMES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


class ValueType(IntEnum):
    """Types of metadata values by the number stored in GGUF (gguf.h, `enum gguf_type`)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


@dataclass(frozen=True)
class ArrayOf:
    """The type of an array value: that of its elements."""

    element: ValueType


# struct and numpy letter of each fixed-size value; a BOOL is one byte, 0 or 1.
VALUE_CODE: dict[ValueType, str] = {
    ValueType.UINT8: "B", ValueType.INT8: "b", ValueType.UINT16: "H", ValueType.INT16: "h", ValueType.UINT32: "I",
    ValueType.INT32: "i", ValueType.FLOAT32: "f", ValueType.BOOL: "?", ValueType.UINT64: "Q", ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}  # fmt: skip


class FileType(IntEnum):
    """`general.file_type` (llama.h, `enum llama_ftype`): what most tensors of a file are."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q8_0 = 7
    BF16 = 32


FILE_TYPE_WEIGHT: dict[FileType, GGMLType] = {
    FileType.F32: GGMLType.F32,
    FileType.F16: GGMLType.F16,
    FileType.Q4_0: GGMLType.Q4_0,
    FileType.Q8_0: GGMLType.Q8_0,
    FileType.BF16: GGMLType.BF16,
}


def row_nbytes(kind: GGMLType, n: int) -> int:
    """Bytes of a row of `n` weights. Raises FormatError when the row is not a whole number of blocks."""
    traits = TRAITS[kind]
    if n % traits.block:
        raise FormatError(f"row of {n} values is not a multiple of {traits.block} ({kind.name})")
    return n // traits.block * traits.nbytes
