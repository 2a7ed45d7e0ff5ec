"""IQ1, IQ2, IQ3: groups of 4 or 8 weights from a codebook, with signs (layouts: quant/ggml/formats).

The codebooks become constants of the kernel. A product of IQ1's weights grid +- 1/8 is kept whole by codes of eighths.
"""

from functools import cache

import numpy as np

from hybrid.quant.ggml.formats.grids import grid, sign_bytes
from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import V16I16, V32I8, Groups, IntBlock, lanes_of, negate_where

V2I8 = Vec(I8, 2)


@cache
def _codebook(kind: GGMLType) -> bytes:
    """One entry of 4 or 8 signed bytes after the other; IQ1's in eighths."""
    values = grid(kind).astype(np.int8)
    return (values * 8 if kind in (GGMLType.IQ1_S, GGMLType.IQ1_M) else values).tobytes()


def _entries(e: Emitter, kind: GGMLType, places: list[Value]) -> Value:
    """32 codes: the codebook's entries at four (8 weights each) or eight (4 each) places."""
    book = e.table(f"grid_{kind.name.lower()}", _codebook(kind))
    size, ty = (8, I64) if len(places) == 4 else (4, I32)
    parts = [e.load(ty, book, e.b.mul(e.b.zext(i, I64), const(I64, size))) for i in places]
    return e.b.bitcast(lanes_of(e, parts), V32I8)


def _seven_bit_signs(e: Emitter, word: Value) -> Value:
    """Four times 7 bits of an i32 -> 32 sign bits."""
    b = e.b
    table = e.table("sign_bytes", sign_bytes().tobytes())
    out = const(I32, 0)
    for k in range(4):
        index = b.and_(b.lshr(word, const(I32, 7 * k)), const(I32, 127))
        byte = b.zext(e.load(I8, table, b.zext(index, I64)), I32)
        out = b.or_(out, b.shl(byte, const(I32, 8 * k)))
    return out


def _byte(e: Emitter, p: Value, offset: int) -> Value:
    return e.b.zext(e.load(I8, p, offset), I32)


def _word(e: Emitter, p: Value, offset: int) -> Value:
    return e.b.zext(e.load(I16, p, offset), I32)


def _bits(e: Emitter, x: Value, place: int, n: int, to: int = 0) -> Value:
    """Bits place..place + n - 1 of an i32, moved to `to`."""
    b = e.b
    return b.shl(b.and_(b.lshr(x, const(I32, place)), const(I32, (1 << n) - 1)), const(I32, to))


def _fields(e: Emitter, p: Value, kind, lanes: list[int], shifts: list[int], bits: int) -> Value:
    """<n x i32>: `bits` bits of the integers at p, from `shifts` on; `lanes` says which integer."""
    b, ty = e.b, Vec(I32, len(lanes))
    words = b.zext(e.shuffle(e.load(Vec(kind, max(lanes) + 1), p), lanes), ty)
    return b.and_(b.lshr(words, const(ty, shifts)), const(ty, (1 << bits) - 1))


def _scales(e: Emitter, p: Value, numbers: Value, factor: float) -> Value:
    """<8 x f32>: d * factor * (2 n + 1) for eight n."""
    b = e.b
    d = b.fmul(e.half(e.load(I16, p)), const(F32, factor))
    return b.fmul(e.splat(d, 8), e.to_f32(_odd(e, numbers)))


def _odd(e: Emitter, n: Value) -> Value:
    return e.b.add(e.b.shl(n, const(n.type, 1)), const(n.type, 1))


def _odd_subs(e: Emitter, numbers: Value) -> Value:
    """<16 x i16> of 2 n + 1."""
    return e.b.trunc(_odd(e, numbers), V16I16)


def _nibbles(e: Emitter, p: Value, n: int) -> Value:
    """n numbers of four bits, the low ones of a byte first."""
    return _fields(e, p, I8, [k // 2 for k in range(n)], [4 * (k % 2) for k in range(n)], 4)


def _d(e: Emitter, p: Value, factor: float) -> Value:
    return e.splat(e.b.fmul(e.half(e.load(I16, p)), const(F32, factor)), 8)


def _iq2_xxs(e: Emitter, p: Value) -> Groups:
    codes = []
    for g in range(8):
        at = 2 + 8 * g
        word = e.load(I32, p, at + 4)
        book = _entries(e, GGMLType.IQ2_XXS, [_byte(e, p, at + k) for k in range(4)])
        codes.append(negate_where(e, _seven_bit_signs(e, word), book))
    numbers = _fields(e, e.at(p, 2), I32, [2 * k + 1 for k in range(8)], [28] * 8, 4)
    return Groups(codes, _scales(e, p, numbers, 0.125), [])


def _iq2_xs(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes = []
    table = e.table("sign_bytes", sign_bytes().tobytes())
    for g in range(8):
        words = [_word(e, p, 2 + 8 * g + 2 * k) for k in range(4)]
        signs = const(I32, 0)
        for k, word in enumerate(words):
            byte = b.zext(e.load(I8, table, b.zext(b.lshr(word, const(I32, 9)), I64)), I32)
            signs = b.or_(signs, b.shl(byte, const(I32, 8 * k)))
        book = _entries(e, GGMLType.IQ2_XS, [_bits(e, word, 0, 9) for word in words])
        codes.append(negate_where(e, signs, book))
    return Groups(codes, _d(e, p, 0.125), [], _odd_subs(e, _nibbles(e, e.at(p, 66), 16)))


def _iq2_s(e: Emitter, p: Value) -> Groups:
    codes = []
    for g in range(8):
        top = _byte(e, p, 66 + g)
        places = [e.b.or_(_byte(e, p, 2 + 4 * g + k), _bits(e, top, 2 * k, 2, 8)) for k in range(4)]
        book = _entries(e, GGMLType.IQ2_S, places)
        codes.append(negate_where(e, e.load(I32, p, 34 + 4 * g), book))
    return Groups(codes, _d(e, p, 0.125), [], _odd_subs(e, _nibbles(e, e.at(p, 74), 16)))


def _iq3_xxs(e: Emitter, p: Value) -> Groups:
    codes = []
    for g in range(8):
        word = e.load(I32, p, 66 + 4 * g)
        book = _entries(e, GGMLType.IQ3_XXS, [_byte(e, p, 2 + 8 * g + k) for k in range(8)])
        codes.append(negate_where(e, _seven_bit_signs(e, word), book))
    numbers = _fields(e, e.at(p, 66), I32, list(range(8)), [28] * 8, 4)
    return Groups(codes, _scales(e, p, numbers, 0.25), [])


def _iq3_s(e: Emitter, p: Value) -> Groups:
    codes = []
    for g in range(8):
        top = _byte(e, p, 66 + g)
        places = [e.b.or_(_byte(e, p, 2 + 8 * g + k), _bits(e, top, k, 1, 8)) for k in range(8)]
        book = _entries(e, GGMLType.IQ3_S, places)
        codes.append(negate_where(e, e.load(I32, p, 74 + 4 * g), book))
    return Groups(codes, _scales(e, p, _nibbles(e, e.at(p, 106), 8), 1.0), [])


def _shifted(e: Emitter, book: Value, p: Value, masks: list[int]) -> Value:
    """Codes plus 1, minus 1 for the eights whose flag is set: four masks of the i16 at p."""
    b = e.b
    word = e.shuffle(e.load(V2I8, p), [int(mask > 255) for mask in masks for _ in range(8)])
    flags = b.and_(word, const(V32I8, [_signed(mask >> 8 or mask) for mask in masks for _ in range(8)]))
    minus_two = b.shl(b.sext(b.icmp_unsigned("!=", flags, const(V32I8, 0)), V32I8), const(V32I8, 1))
    return b.add(b.add(book, const(V32I8, 1)), minus_two)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _iq1_s(e: Emitter, p: Value) -> Groups:
    codes = []
    for g in range(8):
        at = 34 + 2 * g
        top = _word(e, p, at)
        places = [e.b.or_(_byte(e, p, 2 + 4 * g + k), _bits(e, top, 3 * k, 3, 8)) for k in range(4)]
        codes.append(_shifted(e, _entries(e, GGMLType.IQ1_S, places), e.at(p, at), [1 << 15] * 4))
    numbers = _fields(e, e.at(p, 34), I16, list(range(8)), [12] * 8, 3)
    return Groups(codes, _scales(e, p, numbers, 0.125), [])


def _iq1_m(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes = []
    for g in range(8):
        at = 32 + 2 * g
        top = _word(e, p, at)
        places = [b.or_(_byte(e, p, 4 * g + k), _bits(e, top, 4 * k, 3, 8)) for k in range(4)]
        masks = [1 << (4 * k + 3) for k in range(4)]
        codes.append(_shifted(e, _entries(e, GGMLType.IQ1_M, places), e.at(p, at), masks))
    words, bits = e.at(p, 48), const(I32, 0)
    for k in range(4):
        bits = b.or_(bits, _bits(e, _word(e, words, 2 * k), 12, 4, 4 * k))
    d = b.fmul(e.half(b.trunc(bits, I16)), const(F32, 0.125))
    numbers = _fields(e, words, I16, [k // 4 for k in range(16)], [3 * (k % 4) for k in range(16)], 3)
    return Groups(codes, e.splat(d, 8), [], _odd_subs(e, numbers))


def _grid(kind: GGMLType, largest: int, unpack, subs: bool = False) -> IntBlock:
    return IntBlock(256, TRAITS[kind].nbytes, None, largest, unpack, subs=subs)


GRIDS: dict[GGMLType, IntBlock] = {
    GGMLType.IQ1_S: _grid(GGMLType.IQ1_S, 9, _iq1_s),
    GGMLType.IQ1_M: _grid(GGMLType.IQ1_M, 9, _iq1_m, subs=True),
    GGMLType.IQ2_XXS: _grid(GGMLType.IQ2_XXS, 43, _iq2_xxs),
    GGMLType.IQ2_XS: _grid(GGMLType.IQ2_XS, 43, _iq2_xs, subs=True),
    GGMLType.IQ2_S: _grid(GGMLType.IQ2_S, 43, _iq2_s, subs=True),
    GGMLType.IQ3_XXS: _grid(GGMLType.IQ3_XXS, 62, _iq3_xxs),
    GGMLType.IQ3_S: _grid(GGMLType.IQ3_S, 15, _iq3_s),
}
