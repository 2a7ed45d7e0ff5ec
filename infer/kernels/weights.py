"""How the rows of each weight type are read: as 32 floats, or as 32 small integers and a scale.

These are the only places of the core that know the block layouts (documented in quant/ggml/formats). A new type needs
an entry in `FLOAT_BLOCKS` and, if its weights are integers times one scale per 32, one in `INT_BLOCKS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...quant.ggml.types import GGMLType
from .emit import F32, I8, I16, I32, Emitter, Value, Vec, const

V16I8 = Vec(I8, 16)


def _f32(e: Emitter, p: Value) -> tuple[Value, Value]:
    return e.load(Vec(F32, 16), p), e.load(Vec(F32, 16), p, 64)


def _f16(e: Emitter, p: Value) -> tuple[Value, Value]:
    return e.half(e.load(Vec(I16, 16), p)), e.half(e.load(Vec(I16, 16), p, 32))


def _bf16(e: Emitter, p: Value) -> tuple[Value, Value]:
    return e.bfloat(e.load(Vec(I16, 16), p)), e.bfloat(e.load(Vec(I16, 16), p, 32))


def _nibbles(e: Emitter, p: Value) -> tuple[Value, Value]:
    """The two halves of a Q4_0 block as u8 codes 0..15."""
    packed = e.load(V16I8, p, 2)
    return e.b.and_(packed, const(V16I8, 15)), e.b.lshr(packed, const(V16I8, 4))


def _q4_0(e: Emitter, p: Value) -> tuple[Value, Value]:
    d = e.splat(e.half(e.load(I16, p)), 16)

    def weights(codes: Value) -> Value:
        return e.b.fmul(e.to_f32(e.b.sub(e.b.zext(codes, Vec(I32, 16)), const(Vec(I32, 16), 8))), d)

    low, high = _nibbles(e, p)
    return weights(low), weights(high)


def _q8_0(e: Emitter, p: Value) -> tuple[Value, Value]:
    d = e.splat(e.half(e.load(I16, p)), 16)

    def weights(offset: int) -> Value:
        return e.b.fmul(e.to_f32(e.b.sext(e.load(V16I8, p, offset), Vec(I32, 16))), d)

    return weights(2), weights(18)


@dataclass(frozen=True)
class FloatBlock:
    """32 consecutive weights as two vectors of 16 f32; exact for every type here."""

    nbytes: int
    load: Callable[[Emitter, Value], tuple[Value, Value]]


FLOAT_BLOCKS: dict[GGMLType, FloatBlock] = {
    GGMLType.F32: FloatBlock(128, _f32),
    GGMLType.F16: FloatBlock(64, _f16),
    GGMLType.BF16: FloatBlock(64, _bf16),
    GGMLType.Q4_0: FloatBlock(18, _q4_0),
    GGMLType.Q8_0: FloatBlock(34, _q8_0),
}


@dataclass(frozen=True)
class IntBlock:
    """32 weights = d * (code - bias). `load` gives the codes: signed when bias is 0, else unsigned and below 2 * bias.

    d is an f16 at byte 0 of the block.
    """

    nbytes: int
    bias: int
    load: Callable[[Emitter, Value], Value]


INT_BLOCKS: dict[GGMLType, IntBlock] = {
    GGMLType.Q4_0: IntBlock(18, 8, lambda e, p: e.cat(*_nibbles(e, p))),
    GGMLType.Q8_0: IntBlock(34, 0, lambda e, p: e.load(Vec(I8, 32), p, 2)),
}
