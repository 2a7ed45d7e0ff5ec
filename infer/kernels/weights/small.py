"""Types with blocks of 32, 64 or 128 weights (layouts: quant/ggml/formats)."""

from hybrid.quant.ggml.formats.fp4 import HALF_E4M3
from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import V16I16, V32I8, FloatBlock, Groups, IntBlock, Scale, Unpack, bit_select, nibble_codes, nibbles

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
    return Groups([_of_bytes(e, e.load(Vec(I8, 8), p, 2 + 8 * k)) for k in range(n_group)], e.load(I16, p), [])


def _of_bytes(e: Emitter, packed: Value) -> Value:
    """The four 2-bit codes of each of 8 bytes, the lowest first."""
    b, each = e.b, e.shuffle(packed, [j // 4 for j in range(32)])
    if not e.isa.x86 or e.isa.dot == "plain":
        return b.and_(b.lshr(each, const(V32I8, [0, 2, 4, 6] * 8)), const(V32I8, 3))
    # x86 has no shifts of bytes: in 16 bits with the low or the high nibble alone, a product shifts both codes
    nibbles = b.and_(b.bitcast(each, V16I16), const(V16I16, [0x0F00, 0xF000 - 0x10000] * 8))
    shifted = e.call("llvm.x86.avx2.pmulhu.w", V16I16, nibbles, const(V16I16, [1 << 8 | 1 << 14, 1 << 4 | 1 << 10] * 8))
    return b.bitcast(b.and_(shifted, const(V16I16, 0x0303)), V32I8)


def _q2_0(e: Emitter, p: Value) -> Groups:
    return _fours(e, p, 2)


def _pq2_0(e: Emitter, p: Value) -> Groups:
    return _fours(e, p, 4)


class Ternary:
    """Digits of base-3 numbers in bytes: digit n is floor((byte * 3^n mod 256) * 3 / 256)."""

    def __init__(self, e: Emitter) -> None:
        self.e = e

    def load(self, p: Value, n: int, offset: int) -> Value:
        """n bytes, minus 128: so they can be compared as signed ones, and times 3 that is itself modulo 256."""
        ty = Vec(I8, n)
        return self.e.b.xor(self.e.load(ty, p, offset), const(ty, -128))

    def times(self, v: Value, n: int) -> Value:
        """v * 3^n, modulo 256."""
        for _ in range(n):
            v = self.e.b.add(self.e.b.add(v, v), v)
        return v

    def digits(self, v: Value) -> Value:
        """0 for bytes below 86, 2 from 171 on."""
        b, ty = self.e.b, v.type
        first, second = (b.sext(b.icmp_signed(">", v, const(ty, most - 128)), ty) for most in (85, 170))
        return b.sub(b.sub(const(ty, 0), first), second)


def _ptq1_0(e: Emitter, p: Value) -> Groups:
    """In order: five digits of 16 bytes, five of 8, four of 2."""
    t = Ternary(e)
    first, second, last = (t.load(p, n, offset) for n, offset in ((16, 0), (8, 16), (2, 24)))
    whole = [e.cat(first, t.times(first, 1))]
    whole.append(t.times(whole[0], 2))
    fifth = t.times(e.part(whole[1], 0, 16), 2)
    rest = [e.cat(second, t.times(second, 1))]
    rest.append(t.times(rest[0], 2))
    ends = e.cat(last, t.times(last, 1))
    ends = e.cat(t.times(e.part(rest[1], 0, 8), 2), e.cat(ends, t.times(ends, 2)))
    groups = [*whole, e.cat(fifth, rest[0]), e.cat(rest[1], ends)]
    return Groups([t.digits(v) for v in groups], e.load(I16, p, 26), [])


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
