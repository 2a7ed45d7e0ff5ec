"""IQ1, IQ2, IQ3: groups of 4 or 8 weights from a codebook, with signs (layouts: quant/ggml/formats).

The codebooks become constants of the kernel. A product of IQ1's weights grid +- 1/8 is kept whole by codes of eighths.
"""

from functools import cache

import numpy as np

from ....quant.ggml.formats.grids import grid, sign_bytes
from ....quant.ggml.types import TRAITS, GGMLType
from ..emit import F32, I8, I16, I32, I64, Emitter, Value, const
from .base import V16I16, V32I8, Groups, IntBlock, lanes_of, negate_where


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


def _scales(e: Emitter, p: Value, odd: list[Value], factor: float) -> Value:
    """<8 x f32>: d * factor * (2 n + 1) for eight n."""
    b = e.b
    d = b.fmul(e.half(e.load(I16, p)), const(F32, factor))
    numbers = lanes_of(e, odd)
    return b.fmul(e.splat(d, 8), e.to_f32(_odd(e, numbers)))


def _odd(e: Emitter, n: Value) -> Value:
    return e.b.add(e.b.shl(n, const(n.type, 1)), const(n.type, 1))


def _odd_subs(e: Emitter, numbers: list[Value]) -> Value:
    """<16 x i16> of 2 n + 1."""
    return e.b.trunc(_odd(e, lanes_of(e, numbers)), V16I16)


def _d(e: Emitter, p: Value, factor: float) -> Value:
    return e.splat(e.b.fmul(e.half(e.load(I16, p)), const(F32, factor)), 8)


def _iq2_xxs(e: Emitter, p: Value) -> Groups:
    codes, numbers = [], []
    for g in range(8):
        at = 2 + 8 * g
        word = e.load(I32, p, at + 4)
        book = _entries(e, GGMLType.IQ2_XXS, [_byte(e, p, at + k) for k in range(4)])
        codes.append(negate_where(e, _seven_bit_signs(e, word), book))
        numbers.append(e.b.lshr(word, const(I32, 28)))
    return Groups(codes, _scales(e, p, numbers, 0.125), [])


def _iq2_xs(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes, numbers = [], []
    table = e.table("sign_bytes", sign_bytes().tobytes())
    for g in range(8):
        words = [_word(e, p, 2 + 8 * g + 2 * k) for k in range(4)]
        signs = const(I32, 0)
        for k, word in enumerate(words):
            byte = b.zext(e.load(I8, table, b.zext(b.lshr(word, const(I32, 9)), I64)), I32)
            signs = b.or_(signs, b.shl(byte, const(I32, 8 * k)))
        book = _entries(e, GGMLType.IQ2_XS, [_bits(e, word, 0, 9) for word in words])
        codes.append(negate_where(e, signs, book))
        scales = _byte(e, p, 66 + g)
        numbers += [_bits(e, scales, 0, 4), _bits(e, scales, 4, 4)]
    return Groups(codes, _d(e, p, 0.125), [], _odd_subs(e, numbers))


def _iq2_s(e: Emitter, p: Value) -> Groups:
    codes, numbers = [], []
    for g in range(8):
        top = _byte(e, p, 66 + g)
        places = [e.b.or_(_byte(e, p, 2 + 4 * g + k), _bits(e, top, 2 * k, 2, 8)) for k in range(4)]
        book = _entries(e, GGMLType.IQ2_S, places)
        codes.append(negate_where(e, e.load(I32, p, 34 + 4 * g), book))
        scales = _byte(e, p, 74 + g)
        numbers += [_bits(e, scales, 0, 4), _bits(e, scales, 4, 4)]
    return Groups(codes, _d(e, p, 0.125), [], _odd_subs(e, numbers))


def _iq3_xxs(e: Emitter, p: Value) -> Groups:
    codes, numbers = [], []
    for g in range(8):
        word = e.load(I32, p, 66 + 4 * g)
        book = _entries(e, GGMLType.IQ3_XXS, [_byte(e, p, 2 + 8 * g + k) for k in range(8)])
        codes.append(negate_where(e, _seven_bit_signs(e, word), book))
        numbers.append(e.b.lshr(word, const(I32, 28)))
    return Groups(codes, _scales(e, p, numbers, 0.25), [])


def _iq3_s(e: Emitter, p: Value) -> Groups:
    codes, numbers = [], []
    for g in range(8):
        top = _byte(e, p, 66 + g)
        places = [e.b.or_(_byte(e, p, 2 + 8 * g + k), _bits(e, top, k, 1, 8)) for k in range(8)]
        book = _entries(e, GGMLType.IQ3_S, places)
        codes.append(negate_where(e, e.load(I32, p, 74 + 4 * g), book))
        numbers.append(_bits(e, _byte(e, p, 106 + g // 2), 4 * (g % 2), 4))
    return Groups(codes, _scales(e, p, numbers, 1.0), [])


def _shifted(e: Emitter, book: Value, negative: list[Value]) -> Value:
    """Codes plus 1, minus 1 for the eights whose flag (i32, 0 or 1) is set."""
    b = e.b
    deltas = [b.trunc(b.sub(const(I32, 1), b.shl(flag, const(I32, 1))), I8) for flag in negative]
    eights = [e.splat(d, 32 // len(deltas)) for d in deltas]
    while len(eights) > 1:
        eights = [e.cat(eights[i], eights[i + 1]) for i in range(0, len(eights), 2)]
    return b.add(book, eights[0])


def _iq1_s(e: Emitter, p: Value) -> Groups:
    codes, numbers = [], []
    for g in range(8):
        top = _word(e, p, 34 + 2 * g)
        places = [e.b.or_(_byte(e, p, 2 + 4 * g + k), _bits(e, top, 3 * k, 3, 8)) for k in range(4)]
        codes.append(_shifted(e, _entries(e, GGMLType.IQ1_S, places), [_bits(e, top, 15, 1)]))
        numbers.append(_bits(e, top, 12, 3))
    return Groups(codes, _scales(e, p, numbers, 0.125), [])


def _iq1_m(e: Emitter, p: Value) -> Groups:
    b = e.b
    codes, numbers = [], []
    words = [_word(e, p, 48 + 2 * k) for k in range(4)]
    for g in range(8):
        tops = [_byte(e, p, 32 + 2 * g + h) for h in (0, 1)]
        places = [b.or_(_byte(e, p, 4 * g + k), _bits(e, tops[k // 2], 4 * (k % 2), 3, 8)) for k in range(4)]
        flags = [_bits(e, tops[k // 2], 4 * (k % 2) + 3, 1) for k in range(4)]
        codes.append(_shifted(e, _entries(e, GGMLType.IQ1_M, places), flags))
        numbers += [_bits(e, words[g // 2], 6 * (g % 2) + 3 * h, 3) for h in (0, 1)]
    bits = const(I32, 0)
    for k, word in enumerate(words):
        bits = b.or_(bits, _bits(e, word, 12, 4, 4 * k))
    d = b.fmul(e.half(b.trunc(bits, I16)), const(F32, 0.125))
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
