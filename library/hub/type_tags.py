"""The weight type in a GGUF file's name, and its bits per weight."""

import re
from pathlib import PurePosixPath

from hybrid.quant.ggml.types import FileType

DEFAULT = "Q4_K_M"

# Bits per weight of an 8 B Llama in this type (llama-quantize's table), for finding the nearest type.
BITS = {
    FileType.IQ1_S: 2.00, FileType.IQ1_M: 2.15, FileType.IQ2_XXS: 2.38, FileType.IQ2_XS: 2.59, FileType.IQ2_S: 2.74,
    FileType.IQ2_M: 2.93, FileType.IQ3_XXS: 3.25, FileType.IQ3_XS: 3.50, FileType.IQ3_S: 3.66, FileType.IQ3_M: 3.76,
    FileType.IQ4_XS: 4.46, FileType.IQ4_NL: 4.68, FileType.Q1_0: 1.13, FileType.Q2_0: 2.13, FileType.TQ1_0: 1.69,
    FileType.TQ2_0: 2.06, FileType.Q2_K: 3.16, FileType.Q2_K_S: 2.97, FileType.Q3_K_S: 3.64, FileType.Q3_K_M: 4.00,
    FileType.Q3_K_L: 4.30, FileType.Q4_0: 4.66, FileType.Q4_1: 5.12, FileType.Q4_K_S: 4.67, FileType.Q4_K_M: 4.89,
    FileType.Q5_0: 5.21, FileType.Q5_1: 5.65, FileType.Q5_K_S: 5.57, FileType.Q5_K_M: 5.70, FileType.Q6_K: 6.56,
    FileType.Q8_0: 8.50, FileType.MXFP4_MOE: 4.25, FileType.NVFP4: 4.50, FileType.F16: 16.0, FileType.BF16: 16.0,
    FileType.F32: 32.0, FileType.PQ2_0: 2.13, FileType.PTQ1_0: 1.75,
}  # fmt: skip

# Other names of file types, and names of mixes that begin with one of ours.
_SAME = {
    "FP16": "F16", "FP32": "F32", "MXFP4": "MXFP4_MOE", "Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M",
    "Q6_K_M": "Q6_K", "Q8": "Q8_0", "Q4": "Q4_K_M", "Q5": "Q5_K_M", "Q6": "Q6_K", "Q2": "Q2_K", "Q3": "Q3_K_M",
}  # fmt: skip
_LIKE = {
    "Q2_K_L": (FileType.Q2_K, 0.1), "Q2_K_XL": (FileType.Q2_K, 0.2), "Q3_K_XL": (FileType.Q3_K_L, 0.1),
    "Q4_K_L": (FileType.Q4_K_M, 0.1), "Q4_K_XL": (FileType.Q4_K_M, 0.15), "Q5_K_L": (FileType.Q5_K_M, 0.1),
    "Q5_K_XL": (FileType.Q5_K_M, 0.15), "Q6_K_L": (FileType.Q6_K, 0.1), "Q6_K_XL": (FileType.Q6_K, 0.5),
    "Q8_K_XL": (FileType.Q8_0, 2.0), "IQ3_XL": (FileType.IQ3_M, 0.1), "IQ2_XL": (FileType.IQ2_M, 0.1),
}  # fmt: skip

_TAG = re.compile(
    r"(?<![A-Z0-9])((?:UD|I1)[-_.])?"
    r"(IQ[1-4]_(?:XXS|XS|XL|S|M|L|NL)|TQ[12]_0|Q[1-8]_[01](?:_[48]_[48])?|Q[2-8]_K(?:_(?:XXL|XL|L|M|S|XS))?"
    r"|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32|Q[2-8])(?![A-Z0-9_])"
)


def normal(tag: str) -> str:
    """The normal spelling of a tag, in upper case: `ud-q4_k_xl` is UD-Q4_K_XL, `fp16` is F16."""
    match = _TAG.fullmatch(tag.strip().upper())
    if match is None:
        return tag.strip().upper()
    maker, base = match[1], _SAME.get(match[2], match[2])
    return f"{maker[:-1]}-{base}" if maker else base


def plain(tag: str) -> str:
    """A tag without its maker: Q4_K_M for UD-Q4_K_M and I1-Q4_K_M."""
    name = tag.upper().removeprefix("UD-").removeprefix("I1-")
    return _SAME.get(name, name)


def of_file(path: str) -> str:
    """The tag in a file's name, or else in its folder's; "" if neither has a tag."""
    whole = PurePosixPath(path)
    for part in (whole.name.removesuffix(".gguf"), *reversed(whole.parts[:-1])):
        found = list(_TAG.finditer(part.upper()))
        if found:
            return normal(found[-1][0])
    return ""


def without(path: str) -> str:
    """A file's name without its tag, in lower case: the same for all types of one model."""
    return _TAG.sub("", PurePosixPath(path).name.removesuffix(".gguf").upper()).strip("-_. ").lower()


def bits(tag: str) -> float | None:
    """Bits per weight; None for an unknown tag."""
    name = plain(tag)
    if name in FileType.__members__:
        return BITS[FileType[name]]
    if name in _LIKE:
        base, more = _LIKE[name]
        return BITS[base] + more
    return None
