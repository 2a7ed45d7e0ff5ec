"""Types with blocks of 32, 64 or 128 weights (layouts: quant/ggml/formats)."""

from hybrid.quant.ggml.formats.fp4 import HALF_E4M3
from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import V32I8, FloatBlock, Groups, IntBlock, Scale, Unpack, bit_select, nibble_codes, nibbles

# values of the 16 codes: of IQ4_NL and IQ4_XS; of MXFP4 (E2M1), doubled
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _q4_0(e: Emitter, p: Value) -> Groups:
    return Groups([nibble_codes(e, p, 2)], e.load(I16, p), [])


def _q4_1(e: Emitter, p: Value) -> Groups:
    return Groups([nibble_codes(e, p, 4)], e.load(I16, p), [e.load(I16, p, 2)])


def _fifth_bit(e: Emitter, p: Value, offset: int) -> Value:
    return e.b.or_(nibble_codes(e, p, offset + 4), bit_select(e, e.load(I32, p, offset), 16))


def _q5_0(e: Emitter, p: Value) -> Groups:
    return Groups([_fifth_bit(e, p, 2)], e.load(I16, p), [])


def _q5_1(e: Emitter, p: Value) -> Groups:
    return Groups([_fifth_bit(e, p, 4)], e.load(I16, p), [e.load(I16, p, 2)])


def _q8_0(e: Emitter, p: Value) -> Groups:
    return Groups([e.load(V32I8, p, 2)], e.load(I16, p), [])


def _iq4_nl(e: Emitter, p: Value) -> Groups:
    return Groups([e.lookup16(IQ4_VALUES, nibble_codes(e, p, 2))], e.load(I16, p), [])


def _mxfp4(e: Emitter, p: Value) -> Groups:
    return Groups([e.lookup16(E2M1_VALUES, nibble_codes(e, p, 1))], e.b.zext(e.load(I8, p), I16), [])


def _half_power_of_two(e: Emitter, x: Value) -> Value:
    """E8M0 bits x (i16) -> 2^(x - 128) as f32; subnormal for 0 and 1."""
    b = e.b
    many = isinstance(x.type, Vec)
    ty = Vec(I32, x.type.count) if many else I32
    wide = b.zext(x, ty)
    normal = b.shl(b.sub(wide, const(ty, 1)), const(ty, 23))
    tiny = b.shl(const(ty, 1 << 21), wide)
    bits = b.select(b.icmp_signed("<", wide, const(ty, 2)), tiny, normal)
    return b.bitcast(bits, e.f32_like(x))


def _q1_0(e: Emitter, p: Value) -> Groups:
    """Codes 0 and 2 with a bias of 1."""
    return Groups([bit_select(e, e.load(I32, p, 2 + 4 * k), 2) for k in range(4)], e.load(I16, p), [])


def _fours(e: Emitter, p: Value, n_group: int) -> Groups:
    """Four 2-bit codes in a byte; the scale is first."""
    b = e.b
    codes = []
    for k in range(n_group):
        # every byte four times, shifted so that each lane's two bits are lowest
        packed = e.shuffle(e.load(Vec(I8, 8), p, 2 + 8 * k), [j // 4 for j in range(32)])
        codes.append(b.and_(b.lshr(packed, const(V32I8, [0, 2, 4, 6] * 8)), const(V32I8, 3)))
    return Groups(codes, e.load(I16, p), [])


def _q2_0(e: Emitter, p: Value) -> Groups:
    return _fours(e, p, 2)


def _pq2_0(e: Emitter, p: Value) -> Groups:
    return _fours(e, p, 4)


def digits(e: Emitter, v: Value, n: int) -> Value:
    """Digit n of the base-3 numbers in bytes, the first being 0: floor((byte * 3^n mod 256) * 3 / 256)."""
    b, wide = e.b, Vec(I16, v.type.count)
    shifted = b.mul(v, const(v.type, 3**n))
    return b.trunc(b.lshr(b.mul(b.zext(shifted, wide), const(wide, 3)), const(wide, 8)), v.type)


def _ptq1_0(e: Emitter, p: Value) -> Groups:
    first, second, last = e.load(Vec(I8, 16), p, 0), e.load(Vec(I8, 8), p, 16), e.load(Vec(I8, 2), p, 24)
    whole, rest = [digits(e, first, n) for n in range(5)], [digits(e, second, n) for n in range(5)]
    ends = [digits(e, last, n) for n in range(4)]
    eight = e.cat(e.cat(ends[0], ends[1]), e.cat(ends[2], ends[3]))
    codes = [e.cat(whole[0], whole[1]), e.cat(whole[2], whole[3]), e.cat(whole[4], e.cat(rest[0], rest[1]))]
    codes.append(e.cat(e.cat(rest[2], rest[3]), e.cat(rest[4], eight)))
    return Groups(codes, e.load(I16, p, 26), [])


def _nvfp4(e: Emitter, p: Value) -> list[Value]:
    scales = e.table("half_e4m3", HALF_E4M3.tobytes())
    out = []
    for j in range(4):
        d = e.load(F32, scales, e.b.shl(e.b.zext(e.load(I8, p, j), I64), const(I64, 2)))
        low, high = nibbles(e, e.load(Vec(I8, 8), p, 4 + 8 * j))
        codes = e.lookup16(E2M1_VALUES, e.cat(low, high))
        out.append(e.b.fmul(e.to_f32(e.b.sext(codes, Vec(I32, 16))), e.splat(d, 16)))
    return out


# The scale of 16 weights is an 8-bit float, not an integer, so products with NVFP4 are always in f32.
NVFP4 = FloatBlock(64, TRAITS[GGMLType.NVFP4].nbytes, _nvfp4)


def _small(
    kind: GGMLType, bias: int | None, largest: int, unpack: Unpack, *, n_min: int = 0, scale: Scale = Emitter.half
) -> IntBlock:
    return IntBlock(TRAITS[kind].block, TRAITS[kind].nbytes, bias, largest, unpack, n_min=n_min, scale=scale)


SMALL: dict[GGMLType, IntBlock] = {
    GGMLType.Q1_0: _small(GGMLType.Q1_0, 1, 1, _q1_0),
    GGMLType.Q2_0: _small(GGMLType.Q2_0, 1, 2, _q2_0),
    GGMLType.PQ2_0: _small(GGMLType.PQ2_0, 1, 2, _pq2_0),
    GGMLType.PTQ1_0: _small(GGMLType.PTQ1_0, 1, 1, _ptq1_0),
    GGMLType.Q4_0: _small(GGMLType.Q4_0, 8, 8, _q4_0),
    GGMLType.Q4_1: _small(GGMLType.Q4_1, 0, 15, _q4_1, n_min=1),
    GGMLType.Q5_0: _small(GGMLType.Q5_0, 16, 16, _q5_0),
    GGMLType.Q5_1: _small(GGMLType.Q5_1, 0, 31, _q5_1, n_min=1),
    GGMLType.Q8_0: _small(GGMLType.Q8_0, None, 128, _q8_0),
    GGMLType.IQ4_NL: _small(GGMLType.IQ4_NL, None, 127, _iq4_nl),
    GGMLType.MXFP4: _small(GGMLType.MXFP4, None, 12, _mxfp4, scale=_half_power_of_two),
}
