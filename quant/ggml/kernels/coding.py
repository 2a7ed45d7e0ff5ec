"""Compiled encoders and decoders for `quantize`: the bytes and values of `formats`, several times as fast.

A type's kernels are compiled on first use. Types without kernels here use `formats`, whose searches are kernels.
"""

from collections.abc import Callable

import numpy as np

from .. import formats
from ..types import GGMLType, row_nbytes
from . import direct, fp4, halves, k_decoders, recode, ternary

Kernel = Callable[[np.ndarray, np.ndarray], None]

# encoder(x f32 flat, out flat), decoder(raw flat, out f32 flat); of the floats raw is u16, else u8
_FLOATS: dict[GGMLType, tuple[Kernel, Kernel]] = {
    GGMLType.F16: (halves.encode_f16, halves.decode_f16),
    GGMLType.BF16: (halves.encode_bf16, halves.decode_bf16),
}
_ENCODERS: dict[GGMLType, Kernel] = {
    GGMLType.Q1_0: ternary.encode_q1_0,
    GGMLType.Q2_0: ternary.encode_q2_0,
    GGMLType.TQ1_0: ternary.encode_tq1_0,
    GGMLType.TQ2_0: ternary.encode_tq2_0,
    GGMLType.MXFP4: fp4.encode_mxfp4,
}
_DECODERS: dict[GGMLType, Kernel] = {
    GGMLType.Q1_0: ternary.decode_q1_0,
    GGMLType.Q2_0: ternary.decode_q2_0,
    GGMLType.Q4_0: direct.decode_q4_0,
    GGMLType.Q4_1: direct.decode_q4_1,
    GGMLType.Q5_0: direct.decode_q5_0,
    GGMLType.Q5_1: direct.decode_q5_1,
    GGMLType.Q8_0: direct.decode_q8_0,
    GGMLType.Q2_K: k_decoders.decode_q2_k,
    GGMLType.Q3_K: k_decoders.decode_q3_k,
    GGMLType.Q4_K: k_decoders.decode_q4_k,
    GGMLType.Q5_K: k_decoders.decode_q5_k,
    GGMLType.Q6_K: k_decoders.decode_q6_k,
    GGMLType.IQ4_NL: k_decoders.decode_iq4_nl,
    GGMLType.IQ4_XS: k_decoders.decode_iq4_xs,
    GGMLType.TQ1_0: ternary.decode_tq1_0,
    GGMLType.TQ2_0: ternary.decode_tq2_0,
    GGMLType.MXFP4: fp4.decode_mxfp4,
}
KINDS = {*_FLOATS, *_DECODERS}  # types that have kernels, at least to decode


def encode(kind: GGMLType, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
    """`formats.encode` of x f32 [row, n] into out u8 [row, row_nbytes], both in C order."""
    weighted = importance is not None and formats.FORMATS[kind].weighted is not None
    assert x.flags.c_contiguous and out.flags.c_contiguous
    assert out.shape == (len(x), row_nbytes(kind, x.shape[1]))
    if not weighted and recode.can_recode(GGMLType.F32, kind, x.shape[1]):
        recode.recode(GGMLType.F32, kind, x.view(np.uint8), out, np.empty((len(x), 3)))
    elif kind in _FLOATS and _aligned(out):
        _FLOATS[kind][0](x.reshape(-1), out.reshape(-1).view(np.uint16))
    elif kind in _ENCODERS and not weighted:
        _ENCODERS[kind](x.reshape(-1), out.reshape(-1))
    else:
        formats.encode(kind, x, out, importance)


def decode(kind: GGMLType, raw: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`formats.decode` of raw u8 [row, row_nbytes]: into out f32 [row, n], C order, or for F32 a view."""
    if kind not in KINDS or (kind in _FLOATS and not _aligned(raw)):
        return formats.decode(kind, raw, None if kind is GGMLType.F32 else out)
    if kind in _FLOATS:
        _FLOATS[kind][1](raw.reshape(-1).view(np.uint16), out.reshape(-1))
    else:
        _DECODERS[kind](raw.reshape(-1), out.reshape(-1))
    return out


def _aligned(raw: np.ndarray) -> bool:
    return raw.flags.c_contiguous and raw.ctypes.data % 2 == 0
