"""The tensor types of ggml and the file types of GGUF: the only place that knows their numbers and sizes."""

from dataclasses import dataclass
from enum import IntEnum

from .errors import FormatError

QUANTIZATION_VERSION = 2  # of general.quantization_version; ggml.h, GGML_QNT_VERSION


class GGMLType(IntEnum):
    """Types of weights, by their numbers in GGUF (ggml.h, `enum ggml_type`), and I32 for tables of integers, which are
    never multiplied with."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I32 = 26
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42
    PQ2_0 = 142  # of PrismML's llama.cpp, as is the next
    PTQ1_0 = 143


@dataclass(frozen=True)
class TypeTraits:
    """`block` consecutive weights of a row are stored in `nbytes` bytes."""

    block: int
    nbytes: int


TRAITS: dict[GGMLType, TypeTraits] = {
    GGMLType.F32: TypeTraits(1, 4),
    GGMLType.F16: TypeTraits(1, 2),
    GGMLType.BF16: TypeTraits(1, 2),
    GGMLType.I32: TypeTraits(1, 4),
    GGMLType.Q1_0: TypeTraits(128, 18),
    GGMLType.Q2_0: TypeTraits(64, 18),
    GGMLType.Q4_0: TypeTraits(32, 18),
    GGMLType.Q4_1: TypeTraits(32, 20),
    GGMLType.Q5_0: TypeTraits(32, 22),
    GGMLType.Q5_1: TypeTraits(32, 24),
    GGMLType.Q8_0: TypeTraits(32, 34),
    GGMLType.Q2_K: TypeTraits(256, 84),
    GGMLType.Q3_K: TypeTraits(256, 110),
    GGMLType.Q4_K: TypeTraits(256, 144),
    GGMLType.Q5_K: TypeTraits(256, 176),
    GGMLType.Q6_K: TypeTraits(256, 210),
    GGMLType.IQ4_NL: TypeTraits(32, 18),
    GGMLType.IQ4_XS: TypeTraits(256, 136),
    GGMLType.IQ1_S: TypeTraits(256, 50),
    GGMLType.IQ1_M: TypeTraits(256, 56),
    GGMLType.IQ2_XXS: TypeTraits(256, 66),
    GGMLType.IQ2_XS: TypeTraits(256, 74),
    GGMLType.IQ2_S: TypeTraits(256, 82),
    GGMLType.IQ3_XXS: TypeTraits(256, 98),
    GGMLType.IQ3_S: TypeTraits(256, 110),
    GGMLType.TQ1_0: TypeTraits(256, 54),
    GGMLType.TQ2_0: TypeTraits(256, 66),
    GGMLType.MXFP4: TypeTraits(32, 17),
    GGMLType.NVFP4: TypeTraits(64, 36),
    GGMLType.PQ2_0: TypeTraits(128, 34),
    GGMLType.PTQ1_0: TypeTraits(128, 28),
}
assert TRAITS.keys() == set(GGMLType)
NOT_WEIGHTS = frozenset({GGMLType.I32})

# Types of ggml that are not for weights, so that a file that uses one is not called damaged.
OTHER_TYPE_NAMES: dict[int, str] = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 27: "I64", 28: "F64"}


def other_maker(number: int) -> str:
    """The program that has a type of this number, which ggml does not have; "" if none is known."""
    if 97 <= number <= 99 or 133 <= number <= 158 or 202 <= number <= 399:
        return "ik_llama.cpp"
    return ""


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
    """The type of an array value, given by its elements' type."""

    element: ValueType


# struct and numpy letter of each fixed-size value; a BOOL is one byte, 0 or 1.
VALUE_CODE: dict[ValueType, str] = {
    ValueType.UINT8: "B", ValueType.INT8: "b", ValueType.UINT16: "H", ValueType.INT16: "h", ValueType.UINT32: "I",
    ValueType.INT32: "i", ValueType.FLOAT32: "f", ValueType.BOOL: "?", ValueType.UINT64: "Q", ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}  # fmt: skip


class FileType(IntEnum):
    """`general.file_type` (llama.h, `enum llama_ftype`): the type of most tensors of a file."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 7
    Q5_0 = 8
    Q5_1 = 9
    Q2_K = 10
    Q3_K_S = 11
    Q3_K_M = 12
    Q3_K_L = 13
    Q4_K_S = 14
    Q4_K_M = 15
    Q5_K_S = 16
    Q5_K_M = 17
    Q6_K = 18
    IQ2_XXS = 19
    IQ2_XS = 20
    Q2_K_S = 21
    IQ3_XS = 22
    IQ3_XXS = 23
    IQ1_S = 24
    IQ4_NL = 25
    IQ3_S = 26
    IQ3_M = 27
    IQ2_S = 28
    IQ2_M = 29
    IQ4_XS = 30
    IQ1_M = 31
    BF16 = 32
    TQ1_0 = 36
    TQ2_0 = 37
    MXFP4_MOE = 38
    NVFP4 = 39
    Q1_0 = 40
    Q2_0 = 41
    PQ2_0 = 141  # of PrismML's llama.cpp, as is the next
    PTQ1_0 = 143


# What llama-quantize gives a matrix for which it has no special rule. A trap: in a file called IQ2_S it is IQ2_XS.
FILE_TYPE_WEIGHT: dict[FileType, GGMLType] = {
    FileType.F32: GGMLType.F32,
    FileType.F16: GGMLType.F16,
    FileType.Q4_0: GGMLType.Q4_0,
    FileType.Q4_1: GGMLType.Q4_1,
    FileType.Q8_0: GGMLType.Q8_0,
    FileType.Q5_0: GGMLType.Q5_0,
    FileType.Q5_1: GGMLType.Q5_1,
    FileType.Q2_K: GGMLType.Q2_K,
    FileType.Q3_K_S: GGMLType.Q3_K,
    FileType.Q3_K_M: GGMLType.Q3_K,
    FileType.Q3_K_L: GGMLType.Q3_K,
    FileType.Q4_K_S: GGMLType.Q4_K,
    FileType.Q4_K_M: GGMLType.Q4_K,
    FileType.Q5_K_S: GGMLType.Q5_K,
    FileType.Q5_K_M: GGMLType.Q5_K,
    FileType.Q6_K: GGMLType.Q6_K,
    FileType.IQ2_XXS: GGMLType.IQ2_XXS,
    FileType.IQ2_XS: GGMLType.IQ2_XS,
    FileType.Q2_K_S: GGMLType.Q2_K,
    FileType.IQ3_XS: GGMLType.IQ3_S,
    FileType.IQ3_XXS: GGMLType.IQ3_XXS,
    FileType.IQ1_S: GGMLType.IQ1_S,
    FileType.IQ4_NL: GGMLType.IQ4_NL,
    FileType.IQ3_S: GGMLType.IQ3_S,
    FileType.IQ3_M: GGMLType.IQ3_S,
    FileType.IQ2_S: GGMLType.IQ2_XS,
    FileType.IQ2_M: GGMLType.IQ2_S,
    FileType.IQ4_XS: GGMLType.IQ4_XS,
    FileType.IQ1_M: GGMLType.IQ1_M,
    FileType.BF16: GGMLType.BF16,
    FileType.TQ1_0: GGMLType.TQ1_0,
    FileType.TQ2_0: GGMLType.TQ2_0,
    FileType.MXFP4_MOE: GGMLType.MXFP4,
    FileType.NVFP4: GGMLType.NVFP4,
    FileType.Q1_0: GGMLType.Q1_0,
    FileType.Q2_0: GGMLType.Q2_0,
    FileType.PQ2_0: GGMLType.PQ2_0,
    FileType.PTQ1_0: GGMLType.PTQ1_0,
}
assert FILE_TYPE_WEIGHT.keys() == set(FileType)


def row_nbytes(kind: GGMLType, n: int) -> int:
    """Bytes of a row of `n` weights. FormatError: the row is not a whole number of blocks."""
    traits = TRAITS[kind]
    if n % traits.block:
        raise FormatError(f"row of {n} values is not a multiple of {traits.block} ({kind.name})")
    return n // traits.block * traits.nbytes
