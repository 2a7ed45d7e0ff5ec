"""Block formats: one file per format, which opens with its layout; here the table of all and the walk over arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import UnsupportedError
from ..types import TRAITS, GGMLType, row_nbytes
from .float import decode_bf16, decode_f16, decode_f32, decode_i32, encode_bf16, encode_f16, encode_f32
from .fp4 import decode_mxfp4, decode_nvfp4, encode_mxfp4, encode_nvfp4
from .iq1 import decode_iq1_m, decode_iq1_s, encode_iq1_m, encode_iq1_s
from .iq2 import decode_iq2_s, decode_iq2_xs, decode_iq2_xxs, encode_iq2_s, encode_iq2_xs, encode_iq2_xxs
from .iq3 import decode_iq3_s, decode_iq3_xxs, encode_iq3_s, encode_iq3_xxs
from .iq4 import decode_iq4_nl, decode_iq4_xs, encode_iq4_nl, encode_iq4_xs
from .prism import decode_pq2_0, decode_ptq1_0, encode_pq2_0, encode_ptq1_0
from .q1_0 import decode_q1_0, encode_q1_0
from .q2_0 import decode_q2_0, encode_q2_0
from .q2_k import decode_q2_k, encode_q2_k
from .q3_k import decode_q3_k, encode_q3_k
from .q4_0 import decode_q4_0, encode_q4_0, encode_q4_0_weighted
from .q4_1 import decode_q4_1, encode_q4_1, encode_q4_1_weighted
from .q4_k import decode_q4_k, encode_q4_k
from .q5 import decode_q5_0, decode_q5_1, encode_q5_0, encode_q5_0_weighted, encode_q5_1, encode_q5_1_weighted
from .q5_k import decode_q5_k, encode_q5_k
from .q6_k import decode_q6_k, encode_q6_k
from .q8_0 import decode_q8_0, encode_q8_0
from .ternary import decode_tq1_0, decode_tq2_0, encode_tq1_0, encode_tq2_0

__all__ = ["FORMATS", "Format", "can_encode", "decode", "encode"]

# Values handled at a time: what a format holds besides input and output then stays in the L2 cache, and several threads
# do not fight for memory bandwidth.
CHUNK = 1 << 17


@dataclass(frozen=True)
class Format:
    """`encode(x f32 [n, block], out u8 [n, nbytes])` and `decode(raw u8 [n, nbytes], out f32 [n, block])`.

    NaN, infinity and scales beyond f16 raise nothing. Their blocks decode to NaN or infinity, for callers to see; but a
    search may pass over a NaN: look for NaN in the input. Without `encode` a type can only be read. `weighted(x, out,
    importance f32 [n, block])` makes the errors small where importance is great; without it importance changes nothing.
    With `row_weights` its third argument is the result of `kernels.columns.row_weights`.
    """

    encode: Callable[[np.ndarray, np.ndarray], None] | None
    decode: Callable[[np.ndarray, np.ndarray], None]
    weighted: Callable[[np.ndarray, np.ndarray, np.ndarray], None] | None = None
    row_weights: bool = False


FORMATS: dict[GGMLType, Format] = {
    GGMLType.F32: Format(encode_f32, decode_f32),
    GGMLType.F16: Format(encode_f16, decode_f16),
    GGMLType.BF16: Format(encode_bf16, decode_bf16),
    GGMLType.I32: Format(None, decode_i32),
    GGMLType.Q1_0: Format(encode_q1_0, decode_q1_0),
    GGMLType.Q2_0: Format(encode_q2_0, decode_q2_0),
    GGMLType.Q4_0: Format(encode_q4_0, decode_q4_0, encode_q4_0_weighted, row_weights=True),
    GGMLType.Q4_1: Format(encode_q4_1, decode_q4_1, encode_q4_1_weighted, row_weights=True),
    GGMLType.Q5_0: Format(encode_q5_0, decode_q5_0, encode_q5_0_weighted, row_weights=True),
    GGMLType.Q5_1: Format(encode_q5_1, decode_q5_1, encode_q5_1_weighted, row_weights=True),
    GGMLType.Q8_0: Format(encode_q8_0, decode_q8_0),
    GGMLType.Q2_K: Format(encode_q2_k, decode_q2_k, encode_q2_k),
    GGMLType.Q3_K: Format(encode_q3_k, decode_q3_k, encode_q3_k),
    GGMLType.Q4_K: Format(encode_q4_k, decode_q4_k, encode_q4_k),
    GGMLType.Q5_K: Format(encode_q5_k, decode_q5_k, encode_q5_k),
    GGMLType.Q6_K: Format(encode_q6_k, decode_q6_k, encode_q6_k),
    GGMLType.IQ4_NL: Format(encode_iq4_nl, decode_iq4_nl, encode_iq4_nl),
    GGMLType.IQ4_XS: Format(encode_iq4_xs, decode_iq4_xs, encode_iq4_xs),
    GGMLType.IQ1_S: Format(encode_iq1_s, decode_iq1_s, encode_iq1_s),
    GGMLType.IQ1_M: Format(encode_iq1_m, decode_iq1_m, encode_iq1_m),
    GGMLType.IQ2_XXS: Format(encode_iq2_xxs, decode_iq2_xxs, encode_iq2_xxs),
    GGMLType.IQ2_XS: Format(encode_iq2_xs, decode_iq2_xs, encode_iq2_xs),
    GGMLType.IQ2_S: Format(encode_iq2_s, decode_iq2_s, encode_iq2_s),
    GGMLType.IQ3_XXS: Format(encode_iq3_xxs, decode_iq3_xxs, encode_iq3_xxs),
    GGMLType.IQ3_S: Format(encode_iq3_s, decode_iq3_s, encode_iq3_s),
    GGMLType.TQ1_0: Format(encode_tq1_0, decode_tq1_0),
    GGMLType.TQ2_0: Format(encode_tq2_0, decode_tq2_0),
    GGMLType.MXFP4: Format(encode_mxfp4, decode_mxfp4),
    GGMLType.NVFP4: Format(encode_nvfp4, decode_nvfp4),
    GGMLType.PQ2_0: Format(encode_pq2_0, decode_pq2_0, encode_pq2_0),
    GGMLType.PTQ1_0: Format(encode_ptq1_0, decode_ptq1_0, encode_ptq1_0),
}
assert FORMATS.keys() == TRAITS.keys()


def can_encode(kind: GGMLType) -> bool:
    """Whether weights can be stored as `kind`, not only read."""
    return FORMATS[kind].encode is not None


def encode(
    kind: GGMLType, x: np.ndarray, out: np.ndarray | None = None, importance: np.ndarray | None = None
) -> np.ndarray:
    """x f32 [..., n] -> u8 [..., row_nbytes], into `out` (C order) when given.

    importance f32 [n]: how much the square of an error in each column matters, e.g. the mean square of what the column
    is multiplied by. FormatError: rows that are not whole blocks. UnsupportedError: a type that can only be read.
    """
    traits = TRAITS[kind]
    encoder = FORMATS[kind].encode
    if encoder is None:
        names = ", ".join(k.name for k in FORMATS if can_encode(k))
        raise UnsupportedError(f"{kind.name} can only be read by this version, not written. Choose one of {names}.")
    x = np.ascontiguousarray(x, dtype=np.float32)
    shape = (*x.shape[:-1], row_nbytes(kind, x.shape[-1]))
    out = np.empty(shape, np.uint8) if out is None else out
    assert out.shape == shape and out.dtype == np.uint8 and out.flags.c_contiguous
    with np.errstate(all="ignore"):
        if importance is not None and FORMATS[kind].weighted is not None:
            _encode_weighted(kind, x.reshape(-1, x.shape[-1]), out.reshape(-1, shape[-1]), importance)
            return out
        values, raw = x.reshape(-1, traits.block), out.reshape(-1, traits.nbytes)
        step = CHUNK // traits.block
        for i in range(0, len(values), step):
            encoder(values[i : i + step], raw[i : i + step])
    return out


def _encode_weighted(kind: GGMLType, x: np.ndarray, out: np.ndarray, importance: np.ndarray) -> None:
    """x f32 [row, n], out u8 [row, nbytes], importance f32 [n]."""
    from ..kernels.columns import row_sums, row_weights

    traits, rule, n = TRAITS[kind], FORMATS[kind], x.shape[1]
    assert importance.shape == (n,) and importance.dtype == np.float32 and rule.weighted is not None
    step = max(1, CHUNK // n)
    for i in range(0, len(x), step):
        part = x[i : i + step]
        w = np.broadcast_to(importance, part.shape)
        if rule.row_weights:
            w = row_weights(part, importance, row_sums(part, squares=True) / np.float32(n))
        blocks = out[i : i + step].reshape(-1, traits.nbytes)
        rule.weighted(part.reshape(-1, traits.block), blocks, np.ascontiguousarray(w).reshape(-1, traits.block))


def decode(kind: GGMLType, raw: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """raw u8 [..., row_nbytes] -> f32 [..., n], into `out` (C order) when given; otherwise F32 is only viewed."""
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
