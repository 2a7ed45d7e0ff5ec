"""Sixteen groups of a row for 512-bit products: eight registers of codes, and the scales of two super-blocks at once.

The numbers are the same as in k_quants.py; only the instructions differ.
"""

from collections.abc import Callable

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I8, I16, I32, Emitter, Value, Vec, const
from ..emit.isa import ISA, has
from .base import Groups, IntBlock, eight_groups
from .pairs import PAIRS, fields, numbers_of_pairs, numbers_of_sixteen
from .wide_grids import WIDE_GRIDS
from .wide_small import QWORDS, WIDE_SMALL

V16I8, V32I8, V8I32, V16I32, V32I16 = Vec(I8, 16), Vec(I8, 32), Vec(I32, 8), Vec(I32, 16), Vec(I16, 32)
Numbers = tuple[Value, list[Value], Value | None]  # scale and minima <16 x f32>, factors <32 x i16>


def _both(e: Emitter, kind: GGMLType, p: Value, offset: int) -> Value:
    """<32 x i8>: 16 bytes at `offset` of each of two blocks."""
    return e.cat(*(e.load(V16I8, p, k * TRAITS[kind].nbytes + offset) for k in (0, 1)))


def _halves(e: Emitter, both: Value, word: int) -> Value:
    """<16 x f32>: the f16 at index `word` of each block's 16 bytes, repeated for its eight groups."""
    words = e.b.bitcast(both, Vec(I16, 16))
    return e.half(e.shuffle(words, [word] * 8 + [8 + word] * 8))


def _dwords(e: Emitter, both: Value, places: list[int]) -> Value:
    """<8 x i32>: the dwords `places` of each block's 16 bytes."""
    return e.shuffle(e.b.bitcast(both, V8I32), places + [4 + k for k in places])


def _moved(e: Emitter, v: Value, right: list[int], masks: list[int]) -> Value:
    """Dwords of v rotated right by `right` bits, then masked with `masks` in each of their bytes."""
    b, n = e.b, v.type.count // len(right)
    if any(right):
        v = e.intr("fshr", v, v, const(v.type, right * n))
    return b.and_(v, const(v.type, [mask * 0x01010101 for mask in masks] * n))


def _q4_k(kind: GGMLType) -> "Callable[[Emitter, Value], Numbers]":
    def numbers(e: Emitter, p: Value) -> Numbers:
        b, head = e.b, _both(e, kind, p, 0)
        low = _moved(e, _dwords(e, head, [1, 3, 2, 3]), [0, 0, 0, 4], [63, 15, 63, 15])
        top = _moved(e, _dwords(e, head, [1, 1, 2, 2]), [2] * 4, [0, 48, 0, 48])
        six = b.bitcast(b.or_(low, top), V32I8)  # eight scales and eight minima of each block
        scales, mins = (
            e.to_f32(b.zext(e.shuffle(six, [*range(k, k + 8), *range(k + 16, k + 24)]), V16I32)) for k in (0, 8)
        )
        return b.fmul(_halves(e, head, 0), scales), [b.fmul(_halves(e, head, 1), mins)], None

    return numbers


def _q2_k(e: Emitter, p: Value) -> Numbers:
    b, tail = e.b, _both(e, GGMLType.Q2_K, p, 68)
    words = b.zext(_both(e, GGMLType.Q2_K, p, 0), V32I16)
    wide = b.bitcast(words, V16I32)
    first = b.and_(b.lshr(wide, const(V16I32, 4)), const(V16I32, 15))
    smallest = _halves(e, tail, 7)
    mins = [b.fmul(smallest, e.to_f32(v)) for v in (first, b.lshr(wide, const(V16I32, 20)))]
    return _halves(e, tail, 6), mins, b.and_(words, const(V32I16, 15))


def _q3_k(e: Emitter, p: Value) -> Numbers:
    b, tail = e.b, _both(e, GGMLType.Q3_K, p, 94)

    def dwords(firsts: list[int]) -> Value:
        return b.bitcast(e.shuffle(tail, [16 * k + f + i for k in (0, 1) for f in firsts for i in range(4)]), V8I32)

    low = _moved(e, dwords([2, 6, 2, 6]), [0, 0, 4, 4], [15] * 4)
    top = _moved(e, dwords([10] * 4), [28, 30, 0, 2], [48] * 4)
    six = b.bitcast(b.or_(low, top), V32I8)
    return _halves(e, tail, 7), [], b.sub(b.zext(six, V32I16), const(V32I16, 32))


def _q6_k(e: Emitter, p: Value) -> Numbers:
    return _halves(e, _both(e, GGMLType.Q6_K, p, 194), 7), [], e.b.sext(_both(e, GGMLType.Q6_K, p, 192), V32I16)


def _iq4_xs(e: Emitter, p: Value) -> Numbers:
    b, head = e.b, _both(e, GGMLType.IQ4_XS, p, 0)
    dwords = b.bitcast(head, V8I32)
    top, low = (e.shuffle(dwords, [k] * 8 + [4 + k] * 8) for k in (0, 1))
    low = b.and_(b.lshr(low, const(V16I32, list(range(0, 32, 4)) * 2)), const(V16I32, 15))
    top = b.and_(b.lshr(top, const(V16I32, list(range(12, 28, 2)) * 2)), const(V16I32, 48))
    scales = e.to_f32(b.sub(b.or_(low, top), const(V16I32, 32)))
    return b.fmul(_halves(e, head, 0), scales), [], None


def _tq2_0(e: Emitter, p: Value) -> Numbers:
    return _halves(e, _both(e, GGMLType.TQ2_0, p, 50), 7), [], None


def _tq1_0(e: Emitter, p: Value) -> Numbers:
    return _halves(e, _both(e, GGMLType.TQ1_0, p, 38), 7), [], None


def _ptq1_0(e: Emitter, p: Value) -> Numbers:
    nbytes = TRAITS[GGMLType.PTQ1_0].nbytes
    scales = fields(e, V32I16, p, 4 * nbytes, [k * nbytes + 26 for k in range(4)])
    return e.half(e.shuffle(scales, [k // 4 for k in range(16)])), [], None


NUMBERS: dict[GGMLType, Callable[[Emitter, Value], Numbers]] = {
    GGMLType.Q2_K: _q2_k,
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k(GGMLType.Q4_K),
    GGMLType.Q5_K: _q4_k(GGMLType.Q5_K),
    GGMLType.Q6_K: _q6_k,
    GGMLType.IQ4_XS: _iq4_xs,
    GGMLType.TQ1_0: _tq1_0,
    GGMLType.PTQ1_0: _ptq1_0,
    GGMLType.TQ2_0: _tq2_0,
}
TABLES = ("avx512vbmi", "gfni")  # CPU features that the rules in wide_grids.py and wide_small.py need


def has_sixteen(kind: GGMLType, isa: ISA) -> bool:
    """Whether there is a rule for sixteen groups of this type."""
    special = kind in WIDE_GRIDS or kind in WIDE_SMALL or kind in QWORDS
    return isa.lanes == 16 and (kind in PAIRS or (special and _has_tables(isa)))


def by_qwords(kind: GGMLType, isa: ISA) -> bool:
    """Whether `sixteen_groups` gives the codes in the order of wide_small.QWORDS."""
    return isa.lanes == 16 and kind in QWORDS and _has_tables(isa)


def _has_tables(isa: ISA) -> bool:
    return all(has(isa, name) for name in TABLES)


def sixteen_groups(e: Emitter, kind: GGMLType, block: IntBlock, p: Value) -> Groups:
    """Unpack sixteen groups from p on: codes 8 x <64 x i8>, which include the bias `bias_of(block)`; scale and mins
    <16 x f32>, subs <32 x i16>. A register of codes has two groups, except `by_qwords`."""
    if kind in WIDE_GRIDS:
        return WIDE_GRIDS[kind](e, p)
    halves = [p, e.at(p, 8 // block.groups * block.nbytes)]
    rules = WIDE_SMALL | QWORDS if _has_tables(e.isa) else {}
    codes = rules[kind](e, p) if kind in rules else [v for q in halves for v in PAIRS[kind](e, q)]
    if kind in NUMBERS:
        return Groups(codes, *NUMBERS[kind](e, p))
    numbers = numbers_of_sixteen(e, block, p)
    if numbers is not None:
        return Groups(codes, *numbers)
    two = [numbers_of_pairs(e, block, q, eight_groups(e, block, q)) for q in halves]
    assert two[0].subs is None and not two[0].mins
    return Groups(codes, e.cat(two[0].scale, two[1].scale), [])
