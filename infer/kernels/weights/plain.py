"""F32, F16, BF16: weights without blocks."""

from collections.abc import Callable

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I16, Emitter, Value, Vec
from .base import V16F, FloatBlock

# Loads from an address: LOAD16 <16 x f32>, LOAD1 one f32.
LOAD16: dict[GGMLType, Callable[[Emitter, Value], Value]] = {
    GGMLType.F32: lambda e, p: e.load(V16F, p),
    GGMLType.F16: lambda e, p: e.half(e.load(Vec(I16, 16), p)),
    GGMLType.BF16: lambda e, p: e.bfloat(e.load(Vec(I16, 16), p)),
}
LOAD1: dict[GGMLType, Callable[[Emitter, Value], Value]] = {
    GGMLType.F32: lambda e, p: e.load(F32, p),
    GGMLType.F16: lambda e, p: e.half(e.load(I16, p)),
    GGMLType.BF16: lambda e, p: e.lane(e.bfloat(e.b.bitcast(e.load(I16, p), Vec(I16, 1))), 0),
}


def _block(kind: GGMLType) -> FloatBlock:
    size = TRAITS[kind].nbytes
    return FloatBlock(32, 32 * size, lambda e, p: [LOAD16[kind](e, e.at(p, o)) for o in (0, 16 * size)])


FLOATS: dict[GGMLType, FloatBlock] = {kind: _block(kind) for kind in LOAD16}
