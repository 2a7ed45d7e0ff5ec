"""Block formats: one file per format, which opens with its layout; here the table of all and the walk over arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import UnsupportedError
from ..types import TRAITS, GGMLType, row_nbytes
from .float import decode_bf16, decode_f16, decode_f32, encode_bf16, encode_f16, encode_f32
from .q4_0 import decode_q4_0, encode_q4_0
from .q8_0 import decode_q8_0, encode_q8_0

__all__ = ["FORMATS", "Format", "can_encode", "decode", "encode"]

# Values handled at a time: what a format holds besides input and output then stays in the L2 cache, and several threads
# do not fight for memory bandwidth.
CHUNK = 1 << 16


@dataclass(frozen=True)
class Format:
    """`encode(x f32 [n, block], out u8 [n, nbytes])` and `decode(raw u8 [n, nbytes], out f32 [n, block])`.

    NaN, infinity and scales beyond f16 raise nothing: what they give decodes to NaN or infinity, for callers to see.
    Without `encode` a type can only be read.
    """

    encode: Callable[[np.ndarray, np.ndarray], None] | None
    decode: Callable[[np.ndarray, np.ndarray], None]


FORMATS: dict[GGMLType, Format] = {
    GGMLType.F32: Format(encode_f32, decode_f32),
    GGMLType.F16: Format(encode_f16, decode_f16),
    GGMLType.BF16: Format(encode_bf16, decode_bf16),
    GGMLType.Q4_0: Format(encode_q4_0, decode_q4_0),
    GGMLType.Q8_0: Format(encode_q8_0, decode_q8_0),
}


def can_encode(kind: GGMLType) -> bool:
    """Whether weights can be stored as `kind`, not only read."""
    return kind in FORMATS and FORMATS[kind].encode is not None


def encode(kind: GGMLType, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """x f32 [..., n] -> u8 [..., row_nbytes], into `out` (C order) when given.

    FormatError: rows that are not whole blocks. UnsupportedError: a type that can only be read.
    """
    traits = TRAITS[kind]
    encoder = FORMATS[kind].encode if kind in FORMATS else None
    if encoder is None:
        names = ", ".join(k.name for k in FORMATS if can_encode(k))
        raise UnsupportedError(f"{kind.name} can only be read by this version, not written. Choose one of {names}.")
    x = np.ascontiguousarray(x, dtype=np.float32)
    shape = (*x.shape[:-1], row_nbytes(kind, x.shape[-1]))
    out = np.empty(shape, np.uint8) if out is None else out
    assert out.shape == shape and out.dtype == np.uint8 and out.flags.c_contiguous
    values, raw = x.reshape(-1, traits.block), out.reshape(-1, traits.nbytes)
    step = CHUNK // traits.block
    with np.errstate(all="ignore"):
        for i in range(0, len(values), step):
            encoder(values[i : i + step], raw[i : i + step])
    return out


def decode(kind: GGMLType, raw: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """raw u8 [..., row_nbytes] -> f32 [..., n], into `out` (C order) when given; otherwise F32 is only viewed."""
    if kind not in FORMATS:
        raise UnsupportedError(f"{kind.name} cannot be decoded by this version.")
    traits = TRAITS[kind]
    assert raw.dtype == np.uint8 and raw.shape[-1] % traits.nbytes == 0
    raw = np.ascontiguousarray(raw)
    if kind is GGMLType.F32 and out is None and raw.ctypes.data % 4 == 0:
        return raw.view(np.float32)
    shape = (*raw.shape[:-1], raw.shape[-1] // traits.nbytes * traits.block)
    out = np.empty(shape, np.float32) if out is None else out
    assert out.shape == shape and out.dtype == np.float32 and out.flags.c_contiguous
    blocks, values = raw.reshape(-1, traits.nbytes), out.reshape(-1, traits.block)
    step = CHUNK // traits.block
    with np.errstate(all="ignore"):
        for i in range(0, len(blocks), step):
            FORMATS[kind].decode(blocks[i : i + step], values[i : i + step])
    return out
