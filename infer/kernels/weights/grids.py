"""IQ1, IQ2, IQ3: groups of 4 or 8 weights from a codebook, with signs (layouts: quant/ggml/formats).

The codebooks become constants of the kernel. IQ1's weights, grid +- 1/8, have integer codes in eighths.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from hybrid.quant.ggml.formats.grids import grid
from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .base import V16I8, V16I16, V32I8, Groups, IntBlock, Unpack, in_memory, lanes_of, nibbles, signs_of

V2I8, V8I32 = Vec(I8, 2), Vec(I32, 8)


@cache
def _codebook(kind: GGMLType) -> bytes:
    """The entries of 4 or 8 signed bytes, in order; IQ1's in eighths."""
    values = grid(kind).astype(np.int8)
    return (values * 8 if kind in (GGMLType.IQ1_S, GGMLType.IQ1_M) else values).tobytes()


def _codes(e: Emitter, kind: GGMLType, places: Value, item: Any = I8, step: int = 0, mask: int = 0) -> list[Value]:
    """8 groups of 32 codes, from the codebook. places: address of the entries' indices (`item`: I8 or I16), adjacent
    within a group; groups `step` bytes apart (0: adjacent also). mask: bits of an index; 0: all."""
    b, n, bits = e.b, 32 // grid(kind).shape[1], item.width
    book = e.table(f"grid_{kind.name.lower()}", _codebook(kind))
    entry = I64 if n == 4 else I32
    # several indices with one load: the processor cannot keep a load per index in flight
    word = I32 if n * bits == 32 else I64
    per_word, mask = word.width // bits, mask or (1 << bits) - 1
    codes = []
    for g in range(8):
        parts = []
        for k in range(n):
            if k % per_word == 0:
                several = b.zext(e.load(word, places, ((step or n * bits // 8) * g) + k * bits // 8), I64)
            place = b.and_(b.lshr(several, const(I64, k % per_word * bits)), const(I64, mask))
            parts.append(e.load(entry, book, b.mul(place, const(I64, entry.width // 8))))
        codes.append(b.bitcast(lanes_of(e, parts), V32I8))
    return codes


def _signs(e: Emitter, place: Value) -> list[Value]:
    """The signs of 8 groups, each from an i32 of bits at `place`."""
    return [signs_of(e, e.load(I32, place, 4 * g)) for g in range(8)]


def _with_parity(e: Emitter, seven: Value) -> Value:
    """<32 x i8> of seven bits -> with their parity as the eighth bit."""
    odd = [-128 if k.bit_count() % 2 else 0 for k in range(16)]
    low, high = nibbles(e, seven)
    return e.b.xor(e.b.xor(e.lookup16(odd, low), e.lookup16(odd, high)), seven)


def _seven_bit_signs(e: Emitter, words: Value) -> Value:
    """Four times 7 bits of each of <8 x i32> -> <32 x i8> of sign bits, the eighth bit being the parity."""
    b, ty = e.b, words.type
    moved = [b.and_(b.shl(words, const(ty, k)), const(ty, 127 << 8 * k)) for k in range(4)]
    return _with_parity(e, b.bitcast(b.or_(b.or_(moved[0], moved[1]), b.or_(moved[2], moved[3])), V32I8))


def _higher(e: Emitter, p: Value, offset: int, low: Value, times: list[int], mask: int) -> Value:
    """<16 x i16>: indices whose low bytes are `low` <16 x i8>. A byte at p + offset holds the higher bits of len(times)
    indices; index k takes the bits of `mask` in byte * times[k % len(times)]."""
    b = e.b
    n = len(times)
    spread = e.shuffle(e.load(Vec(I8, 16 // n), p, offset), [k // n for k in range(16)])
    high = b.mul(b.zext(spread, V16I16), const(V16I16, times * (16 // n)))
    return b.or_(b.zext(low, V16I16), b.and_(high, const(V16I16, mask)))


def _word(e: Emitter, p: Value, offset: int) -> Value:
    return e.b.zext(e.load(I16, p, offset), I32)


def _bits(e: Emitter, x: Value, place: int, n: int, to: int = 0) -> Value:
    """Bits place .. place + n - 1 of an i32, moved to bit `to`."""
    b = e.b
    return b.shl(b.and_(b.lshr(x, const(I32, place)), const(I32, (1 << n) - 1)), const(I32, to))


def _fields(e: Emitter, p: Value, kind: ir.IntType, lanes: list[int], shifts: list[int], bits: int) -> Value:
    """<n x i32>: lane k has `bits` bits, from bit shifts[k] on, of integer lanes[k] of the array at p."""
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
    """n 4-bit numbers, the low one of each byte first."""
    return _fields(e, p, I8, [k // 2 for k in range(n)], [4 * (k % 2) for k in range(n)], 4)


def _d(e: Emitter, p: Value, factor: float) -> Value:
    return e.splat(e.b.fmul(e.half(e.load(I16, p)), const(F32, factor)), 8)


def _iq2_xxs(e: Emitter, p: Value) -> Groups:
    words = e.shuffle(e.load(Vec(I32, 16), p, 2), list(range(1, 16, 2)))
    signs = in_memory(e, p, [_seven_bit_signs(e, words)])
    codes = _codes(e, GGMLType.IQ2_XXS, e.at(p, 2), step=8)
    numbers = e.b.lshr(words, const(words.type, 28))
    return Groups(codes, _scales(e, p, numbers, 0.125), [], signs=_signs(e, signs))


def _iq2_xs(e: Emitter, p: Value) -> Groups:
    b = e.b
    words = [e.load(V16I16, p, 2 + 32 * k) for k in (0, 1)]
    seven = b.trunc(e.cat(*(b.lshr(v, const(V16I16, 9)) for v in words)), V32I8)
    signs = in_memory(e, p, [_with_parity(e, seven)])
    codes = _codes(e, GGMLType.IQ2_XS, e.at(p, 2), I16, mask=511)
    subs = _odd_subs(e, _nibbles(e, e.at(p, 66), 16))
    return Groups(codes, _d(e, p, 0.125), [], subs, _signs(e, signs))


def _iq2_s(e: Emitter, p: Value) -> Groups:
    places = [_higher(e, p, 66 + 4 * k, e.load(V16I8, p, 2 + 16 * k), [256, 64, 16, 4], 3 << 8) for k in (0, 1)]
    codes = _codes(e, GGMLType.IQ2_S, in_memory(e, p, places), I16)
    subs = _odd_subs(e, _nibbles(e, e.at(p, 74), 16))
    return Groups(codes, _d(e, p, 0.125), [], subs, _signs(e, e.at(p, 34)))


def _iq3_xxs(e: Emitter, p: Value) -> Groups:
    words = e.load(V8I32, p, 66)
    signs = in_memory(e, p, [_seven_bit_signs(e, words)])
    codes = _codes(e, GGMLType.IQ3_XXS, e.at(p, 2))
    scales = _scales(e, p, e.b.lshr(words, const(V8I32, 28)), 0.25)
    return Groups(codes, scales, [], signs=_signs(e, signs))


def _iq3_s(e: Emitter, p: Value) -> Groups:
    times = [1 << 8 - k for k in range(8)]
    places = [_higher(e, p, 66 + 2 * k, e.load(V16I8, p, 2 + 16 * k), times, 1 << 8) for k in range(4)]
    codes = _codes(e, GGMLType.IQ3_S, in_memory(e, p, places), I16)
    scales = _scales(e, p, _nibbles(e, e.at(p, 106), 8), 1.0)
    return Groups(codes, scales, [], signs=_signs(e, e.at(p, 74)))


def _shifted(e: Emitter, book: Value, p: Value, masks: list[int]) -> Value:
    """Codes plus 1, or minus 1 in the eights whose flag is set; `masks`: bits of the four flags in the i16 at p."""
    b = e.b
    word = e.shuffle(e.load(V2I8, p), [int(mask > 255) for mask in masks for _ in range(8)])
    flags = b.and_(word, const(V32I8, [_signed(mask >> 8 or mask) for mask in masks for _ in range(8)]))
    minus_two = b.shl(b.sext(b.icmp_unsigned("!=", flags, const(V32I8, 0)), V32I8), const(V32I8, 1))
    return b.add(b.add(book, const(V32I8, 1)), minus_two)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _iq1_s(e: Emitter, p: Value) -> Groups:
    b, places = e.b, []
    for k in (0, 1):
        words = e.shuffle(e.load(Vec(I16, 4), p, 34 + 8 * k), [j // 4 for j in range(16)])
        # bits 3 j to 3 j + 2 become bits 8 to 10
        moved = b.mul(words, const(V16I16, [256, 32, 4, 0] * 4))
        last = b.and_(b.lshr(words, const(V16I16, 1)), const(V16I16, [0, 0, 0, -1] * 4))
        high = b.and_(b.or_(moved, last), const(V16I16, 7 << 8))
        places.append(b.or_(b.zext(e.load(V16I8, p, 2 + 16 * k), V16I16), high))
    book = _codes(e, GGMLType.IQ1_S, in_memory(e, p, places), I16)
    codes = [_shifted(e, v, e.at(p, 34 + 2 * g), [1 << 15] * 4) for g, v in enumerate(book)]
    numbers = _fields(e, e.at(p, 34), I16, list(range(8)), [12] * 8, 3)
    return Groups(codes, _scales(e, p, numbers, 0.125), [])


def _iq1_m(e: Emitter, p: Value) -> Groups:
    b = e.b
    places = [_higher(e, p, 32 + 8 * k, e.load(V16I8, p, 16 * k), [256, 16], 7 << 8) for k in (0, 1)]
    book = _codes(e, GGMLType.IQ1_M, in_memory(e, p, places), I16)
    masks = [1 << (4 * k + 3) for k in range(4)]
    codes = [_shifted(e, v, e.at(p, 32 + 2 * g), masks) for g, v in enumerate(book)]
    words, bits = e.at(p, 48), const(I32, 0)
    for k in range(4):
        bits = b.or_(bits, _bits(e, _word(e, words, 2 * k), 12, 4, 4 * k))
    d = b.fmul(e.half(b.trunc(bits, I16)), const(F32, 0.125))
    numbers = _fields(e, words, I16, [k // 4 for k in range(16)], [3 * (k % 4) for k in range(16)], 3)
    return Groups(codes, e.splat(d, 8), [], _odd_subs(e, numbers))


def _grid(kind: GGMLType, largest: int, unpack: Unpack, subs: bool = False) -> IntBlock:
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
