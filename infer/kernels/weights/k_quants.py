"""Types with super-blocks of 256 weights whose codes are plain bits, K-quants first (layouts: quant/ggml/formats)."""

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import V16I8, V16I16, V32I8, Groups, IntBlock, Unpack, nibble_codes
from .small import IQ4_VALUES, Ternary

V8I8, V8I32 = Vec(I8, 8), Vec(I32, 8)


def _bytes(e: Emitter, low: Value, high: Value) -> Value:
    """Two i32 -> <8 x i8>."""
    wide = e.b.or_(e.b.zext(low, I64), e.b.shl(e.b.zext(high, I64), const(I64, 32)))
    return e.b.bitcast(wide, V8I8)


def _masked(e: Emitter, x: Value, shift: int, mask: int) -> Value:
    """(x >> shift) & mask in each byte of an i32."""
    return e.b.and_(e.b.lshr(x, const(I32, shift)), const(I32, mask * 0x01010101))


def _six_bits(e: Emitter, p: Value) -> tuple[Value, Value]:
    """The 8 scales and 8 minima of Q4_K and Q5_K, 6 bits each in 12 bytes at p -> two <8 x f32> of integers."""
    b = e.b
    u0, u1, u2 = (e.load(I32, p, o) for o in (0, 4, 8))

    def high(low: Value, top: Value) -> Value:
        return b.or_(low, b.shl(_masked(e, top, 6, 3), const(I32, 4)))

    scales = _bytes(e, _masked(e, u0, 0, 63), high(_masked(e, u2, 0, 15), u0))
    mins = _bytes(e, _masked(e, u1, 0, 63), high(_masked(e, u2, 4, 15), u1))
    return e.to_f32(b.zext(scales, V8I32)), e.to_f32(b.zext(mins, V8I32))


def _scaled(e: Emitter, p: Value, offset: int, by: Value) -> Value:
    """The f16 at p + offset times the vector `by`."""
    return e.b.fmul(e.splat(e.half(e.load(I16, p, offset)), by.type.count), by)


def _q4_k(e: Emitter, p: Value) -> Groups:
    scales, mins = _six_bits(e, e.at(p, 4))
    codes = []
    for j in range(4):
        packed = e.load(V32I8, p, 16 + 32 * j)
        codes += [e.b.and_(packed, const(V32I8, 15)), e.b.lshr(packed, const(V32I8, 4))]
    return Groups(codes, _scaled(e, p, 0, scales), [_scaled(e, p, 2, mins)])


def _q5_k(e: Emitter, p: Value) -> Groups:
    b = e.b
    scales, mins = _six_bits(e, e.at(p, 4))
    top = e.load(V32I8, p, 16)
    codes = []
    for j in range(4):
        packed = e.load(V32I8, p, 48 + 32 * j)
        for h, nibble in enumerate((b.and_(packed, const(V32I8, 15)), b.lshr(packed, const(V32I8, 4)))):
            codes.append(b.or_(nibble, _bit_at(e, top, 2 * j + h, 1, 4)))
    return Groups(codes, _scaled(e, p, 0, scales), [_scaled(e, p, 2, mins)])


def _bit_at(e: Emitter, v: Value, place: int, n: int, to: int) -> Value:
    """Bits place .. place + n - 1 of every byte, moved to bit `to`. x86 cannot shift bytes, so 16 bits are shifted."""
    b = e.b
    mask = const(v.type, ((1 << n) - 1) << to)
    wide = Vec(I16, v.type.count // 2)
    words = b.bitcast(v, wide)
    if place < to:
        words = b.shl(words, const(wide, to - place))
    elif place > to:
        words = b.lshr(words, const(wide, place - to))
    return b.and_(b.bitcast(words, v.type), mask)


def _q6_k(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes = []
    for n in range(2):
        low = [e.load(V32I8, p, 64 * n + 32 * k) for k in range(2)]
        top = e.load(V32I8, p, 128 + 32 * n)
        for j in range(4):
            nibble = _bit_at(e, low[j % 2], 0 if j < 2 else 4, 4, 0)
            codes.append(b.or_(nibble, _bit_at(e, top, 2 * j, 2, 4)))
    subs = b.sext(e.load(V16I8, p, 192), V16I16)
    return Groups(codes, e.splat(e.half(e.load(I16, p, 208)), 8), [], subs)


def _q3_k(e: Emitter, p: Value) -> Groups:
    b = e.b
    top = e.load(V32I8, p, 0)
    codes = []
    for n in range(2):
        packed = e.load(V32I8, p, 32 + 32 * n)
        codes += [b.or_(_bit_at(e, packed, 2 * j, 2, 0), _bit_at(e, top, 4 * n + j, 1, 2)) for j in range(4)]
    a0, a1, t = (e.load(I32, p, o) for o in (96, 100, 104))
    words = [
        b.or_(_masked(e, a, shift, 15), b.shl(_masked(e, t, 2 * i, 3), const(I32, 4)))
        for i, (a, shift) in enumerate(((a0, 0), (a1, 0), (a0, 4), (a1, 4)))
    ]
    scales = e.cat(_bytes(e, words[0], words[1]), _bytes(e, words[2], words[3]))
    subs = b.sub(b.zext(scales, V16I16), const(V16I16, 32))
    return Groups(codes, e.splat(e.half(e.load(I16, p, 108)), 8), [], subs)


def _q2_k(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes = []
    for n in range(2):
        packed = e.load(V32I8, p, 16 + 32 * n)
        codes += [_bit_at(e, packed, 2 * j, 2, 0) for j in range(4)]
    both = b.zext(e.load(V16I8, p, 0), V16I16)
    subs, mins = b.and_(both, const(V16I16, 15)), b.lshr(both, const(V16I16, 4))
    parts = [_scaled(e, p, 82, e.to_f32(v)) for v in e.even_odd(mins)]
    return Groups(codes, e.splat(e.half(e.load(I16, p, 80)), 8), parts, subs)


def _iq4_xs(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes = [e.lookup16(IQ4_VALUES, nibble_codes(e, p, 8 + 16 * k)) for k in range(8)]
    high = b.lshr(e.splat(b.zext(e.load(I16, p, 2), I32), 8), const(V8I32, list(range(0, 16, 2))))
    low = b.lshr(e.splat(e.load(I32, p, 4), 8), const(V8I32, list(range(0, 32, 4))))
    six = b.or_(b.and_(low, const(V8I32, 15)), b.shl(b.and_(high, const(V8I32, 3)), const(V8I32, 4)))
    return Groups(codes, _scaled(e, p, 0, e.to_f32(b.sub(six, const(V8I32, 32)))), [])


def _tq2_0(e: Emitter, p: Value) -> Groups:
    codes = []
    for j in range(2):
        packed = e.load(V32I8, p, 32 * j)
        codes += [_bit_at(e, packed, 2 * k, 2, 0) for k in range(4)]
    return Groups(codes, e.splat(e.half(e.load(I16, p, 64)), 8), [])


def _tq1_0(e: Emitter, p: Value) -> Groups:
    """In order: five digits of 32 bytes, five of 16, four of 4."""
    t = Ternary(e)
    whole, half, last = (t.load(p, n, offset) for n, offset in ((32, 0), (16, 32), (4, 48)))
    groups = [t.times(whole, n) for n in range(5)]
    twice = e.cat(half, t.times(half, 1))
    groups += [twice, t.times(twice, 2)]
    ends = e.cat(last, t.times(last, 1))
    groups.append(e.cat(t.times(half, 4), e.cat(ends, t.times(ends, 2))))
    return Groups([t.digits(v) for v in groups], e.splat(e.half(e.load(I16, p, 52)), 8), [])


def _super(
    kind: GGMLType, bias: int | None, largest: int, unpack: Unpack, *, subs: bool = False, n_min: int = 0
) -> IntBlock:
    return IntBlock(256, TRAITS[kind].nbytes, bias, largest, unpack, subs, n_min)


SUPER: dict[GGMLType, IntBlock] = {
    GGMLType.Q2_K: _super(GGMLType.Q2_K, 0, 3, _q2_k, subs=True, n_min=2),
    GGMLType.Q3_K: _super(GGMLType.Q3_K, 4, 4, _q3_k, subs=True),
    GGMLType.Q4_K: _super(GGMLType.Q4_K, 0, 15, _q4_k, n_min=1),
    GGMLType.Q5_K: _super(GGMLType.Q5_K, 0, 31, _q5_k, n_min=1),
    GGMLType.Q6_K: _super(GGMLType.Q6_K, 32, 32, _q6_k, subs=True),
    GGMLType.IQ4_XS: _super(GGMLType.IQ4_XS, None, 127, _iq4_xs),
    GGMLType.TQ1_0: _super(GGMLType.TQ1_0, 1, 1, _tq1_0),
    GGMLType.TQ2_0: _super(GGMLType.TQ2_0, 1, 1, _tq2_0),
}
