"""Eight groups for 512-bit products: codes in four registers, each with group 2k, then group 2k + 1.

Codes are u8 here; signed codes include `bias_of`. Types without a rule in PAIRS are multiplied in 256-bit registers:
types with codebooks are bound by their look-ups, and would only become slower.
"""

from collections.abc import Callable, Sequence

from hybrid.quant.ggml.types import TRAITS, GGMLType

from ..emit.emitter import I1, I8, I16, I32, I64, Emitter, Value, Vec, const
from ..emit.isa import has
from .base import Groups, IntBlock
from .small import E2M1_VALUES, IQ4_VALUES

V32I8, V64I8, V16I32, V32I16 = Vec(I8, 32), Vec(I8, 64), Vec(I32, 16), Vec(I16, 32)
WINDOW = 64  # bytes of a register


def _twice(e: Emitter, p: Value, offset: int) -> Value:
    """32 bytes, twice."""
    return e.b.bitcast(e.shuffle(e.load(Vec(I64, 4), p, offset), [0, 1, 2, 3] * 2), V64I8)


def bits(e: Emitter, v: Value, places: Sequence[int], n: int, to: int = 0) -> Value:
    """n bits of every byte, moved to bit `to`; `places`: their first bit in each half (quarter, eighth) of v."""
    b = e.b
    each = 16 // len(places)  # dwords
    if has(e.isa, "gfni"):
        return e.call("llvm.x86.vgf2p8affineqb.512", V64I8, v, _matrices(places, n, to), const(I8, 0))
    # dwords are rotated; bits from a neighbouring byte are masked off
    amounts = [(to - place) % 32 for place in places for _ in range(each)]
    if any(amounts):
        wide = b.bitcast(v, V16I32)
        v = b.bitcast(e.intr("fshl", wide, wide, const(V16I32, amounts)), V64I8)
    return b.and_(v, const(V64I8, ((1 << n) - 1) << to))


def _matrices(places: Sequence[int], n: int, to: int) -> Value:
    """Eight 8 x 8 bit matrices: row 7 - i (a byte) selects the bits of a byte whose sum is bit i of the result."""
    matrices: list[int] = []
    for place in places:
        rows = [1 << place + 7 - i - to if to <= 7 - i < to + n else 0 for i in range(8)]
        matrices += [row - 256 if row > 127 else row for row in rows] * (8 // len(places))
    return const(V64I8, matrices)


def _q4_k(e: Emitter, p: Value) -> list[Value]:
    return [bits(e, _twice(e, p, 16 + 32 * j), (0, 4), 4) for j in range(4)]


def _q5_k(e: Emitter, p: Value) -> list[Value]:
    top = _twice(e, p, 16)
    low = [bits(e, _twice(e, p, 48 + 32 * j), (0, 4), 4) for j in range(4)]
    return [e.b.or_(v, bits(e, top, (2 * j, 2 * j + 1), 1, 4)) for j, v in enumerate(low)]


def _q6_k(e: Emitter, p: Value) -> list[Value]:
    codes = []
    for n in range(2):
        low, top = e.load(V64I8, p, 64 * n), _twice(e, p, 128 + 32 * n)
        for j in (0, 1):
            nibbles, places = bits(e, low, (4 * j, 4 * j), 4), (4 * j, 4 * j + 2)
            codes.append(e.b.or_(nibbles, bits(e, top, places, 2, 4)))
    return codes


def _q3_k(e: Emitter, p: Value) -> list[Value]:
    top, codes = _twice(e, p, 0), []
    for n in range(2):
        packed = _twice(e, p, 32 + 32 * n)
        for j in (0, 2):
            low = bits(e, packed, (2 * j, 2 * j + 2), 2)
            codes.append(e.b.or_(low, bits(e, top, (4 * n + j, 4 * n + j + 1), 1, 2)))
    return codes


def _two_bits(offset: int) -> "Pairs":
    """The rule for 2-bit codes, four groups in 32 bytes, from `offset` on."""

    def pairs(e: Emitter, p: Value) -> list[Value]:
        packed = [_twice(e, p, offset + 32 * n) for n in range(2)]
        return [bits(e, v, (2 * j, 2 * j + 2), 2) for v in packed for j in (0, 2)]

    return pairs


def _nibbles(e: Emitter, quads: Value) -> Value:
    """The low four bits of the bytes in the first and third quarter, the high four bits in the others."""
    return bits(e, quads, (0, 4, 0, 4), 4)


def bias_of(block: IntBlock) -> int:
    """The bias of codes in this module: signed codes get one that makes them unsigned and, if possible, small."""
    if not block.signed:
        return block.bias or 0
    return 16 if block.largest < 16 else 128


def _table(values: Sequence[int], added: int = 128) -> list[int]:
    """Values plus `added`, as bytes."""
    return [(value + added + 128) % 256 - 128 for value in values]


def _two_of_sixteen(e: Emitter, both: Value) -> Value:
    """<4 x i64>, 16 bytes of nibbles of each of two groups -> <64 x i8>, their 4-bit numbers."""
    return _nibbles(e, e.b.bitcast(e.shuffle(both, [0, 1, 0, 1, 2, 3, 2, 3]), V64I8))


def _iq4_xs(e: Emitter, p: Value) -> list[Value]:
    numbers = [_two_of_sixteen(e, e.load(Vec(I64, 4), p, 8 + 32 * j)) for j in range(4)]
    return [e.lookup16(_table(IQ4_VALUES), v) for v in numbers]


def _mxfp4(e: Emitter, p: Value) -> list[Value]:
    codes = []
    for k in range(0, 8, 2):
        both = e.cat(*(e.load(Vec(I64, 2), p, j * TRAITS[GGMLType.MXFP4].nbytes + 1) for j in (k, k + 1)))
        codes.append(e.lookup16(_table(E2M1_VALUES, 16), _two_of_sixteen(e, both)))
    return codes


def _q8_0(e: Emitter, p: Value) -> list[Value]:
    nbytes = TRAITS[GGMLType.Q8_0].nbytes
    pairs = [e.cat(*(e.load(V32I8, p, j * nbytes + 2) for j in (k, k + 1))) for k in range(0, 8, 2)]
    return [e.b.xor(v, const(V64I8, -128)) for v in pairs]


def _q1_0(e: Emitter, p: Value) -> list[Value]:
    nbytes = TRAITS[GGMLType.Q1_0].nbytes
    bits = [e.load(I64, p, block * nbytes + 2 + 8 * half) for block in range(2) for half in range(2)]
    return [e.b.select(e.b.bitcast(v, Vec(I1, 64)), const(V64I8, 2), const(V64I8, 0)) for v in bits]


def _small_nibbles(e: Emitter, p: Value, nbytes: int, offset: int) -> list[Value]:
    """4-bit codes of eight blocks of `nbytes` (even), whose nibbles begin at `offset`.

    Two blocks are read in 64 bytes, chosen not to reach beyond the eight blocks.
    """
    codes = []
    for k in range(0, 8, 2):
        begin = min(k * nbytes, 8 * nbytes - WINDOW)
        window = e.load(V32I16, p, begin)
        words = [(j * nbytes + offset - begin) // 2 + i for j in (k, k, k + 1, k + 1) for i in range(8)]
        codes.append(_nibbles(e, e.b.bitcast(e.shuffle(window, words), V64I8)))
    return codes


def _four(kind: GGMLType, offset: int) -> "Pairs":
    return lambda e, p: _small_nibbles(e, p, TRAITS[kind].nbytes, offset)


def _five(kind: GGMLType, offset: int) -> "Pairs":
    """The rule for 5-bit codes; a block's nibbles begin at `offset`, and its fifth bits are the 32 bits before."""
    nbytes = TRAITS[kind].nbytes

    def pairs(e: Emitter, p: Value) -> list[Value]:
        b, codes = e.b, []
        for k, nibbles in enumerate(_small_nibbles(e, p, nbytes, offset)):
            # a sum, not `or`: x86 has masked addition of bytes
            codes.append(b.select(_fifth_bits(e, p, nbytes, offset, 2 * k), b.add(nibbles, const(V64I8, 16)), nibbles))
        return codes

    return pairs


def _fifth_bits(e: Emitter, p: Value, nbytes: int, offset: int, block: int) -> Value:
    """<64 x i1>: the bits of the four bytes before `offset`, of this block and of the next."""
    b = e.b
    if has(e.isa, "avx512vbmi"):
        begin = min(block * nbytes, 8 * nbytes - WINDOW)
        places = [j * nbytes + offset - 4 + i - begin for j in (block, block + 1) for i in range(4) for _ in range(8)]
        spread = e.shuffle(e.load(V64I8, p, begin), places)
        return b.icmp_unsigned("!=", b.and_(spread, const(V64I8, [1, 2, 4, 8, 16, 32, 64, -128] * 8)), const(V64I8, 0))
    first, second = (b.zext(e.load(I32, p, j * nbytes + offset - 4), I64) for j in (block, block + 1))
    return b.bitcast(b.or_(first, b.shl(second, const(I64, 32))), Vec(I1, 64))


def _iq4_nl(e: Emitter, p: Value) -> list[Value]:
    return [e.lookup16(_table(IQ4_VALUES), v) for v in _small_nibbles(e, p, TRAITS[GGMLType.IQ4_NL].nbytes, 2)]


def numbers_of_pairs(e: Emitter, block: IntBlock, p: Value, g: Groups) -> Groups:
    """g with scales and minima of eight blocks read in windows, not one by one; g itself unless blocks have 32 weights
    and an even number of bytes, at most 24 (Q8_0's scales are too far apart)."""
    if block.weights != 32 or block.nbytes % 2 or block.nbytes > 24:
        return g
    each = range(1 + block.n_min)
    words = fields(e, V32I16, p, 8 * block.nbytes, [k * block.nbytes + 2 * field for field in each for k in range(8)])
    scale, *mins = (e.part(words, 8 * field, 8) for field in each)
    return Groups(g.codes, block.scale(e, scale), [e.b.fneg(e.half(v)) for v in mins], g.subs)


def numbers_of_sixteen(e: Emitter, block: IntBlock, p: Value) -> tuple[Value, list[Value]] | None:
    """(scale, minima) of sixteen groups of small blocks, <16 x f32>, read in windows; None if windows do not pay."""
    n = block.groups
    total = 16 // n * block.nbytes
    if block.weights == 256 or (block.nbytes > 24 and n < 4) or total < WINDOW:
        return None
    if block.nbytes % 2:
        if not has(e.isa, "avx512vbmi"):
            return None
        scale = e.b.zext(fields(e, V64I8, p, total, [k // n * block.nbytes for k in range(16)]), Vec(I16, 16))
        return block.scale(e, scale), []
    each = range(1 + block.n_min)
    places = [k * block.nbytes + 2 * field for field in each for k in range(16 // n)]
    words = fields(e, V32I16, p, total, places)
    scale, *mins = (e.shuffle(words, [16 // n * field + k // n for k in range(16)]) for field in each)
    return block.scale(e, scale), [e.b.fneg(e.half(v)) for v in mins]


def fields(e: Emitter, ty: Vec, p: Value, nbytes: int, places: list[int]) -> Value:
    """The elements of `ty` at byte offsets `places` in the `nbytes` bytes from p on, from as few 64-byte loads as
    possible."""
    n = ty.count
    size = WINDOW // n
    left, lanes, gathered = sorted(places), {}, None
    while left:
        begin = min(left[0], nbytes - WINDOW)
        inside = [place for place in left if place + size <= begin + WINDOW]
        window, first = e.load(ty, p, begin), 0 if gathered is None else len(lanes)
        chosen = list(range(first)) + [(n if first else 0) + (place - begin) // size for place in inside]
        chosen += [0] * (n - len(chosen))
        gathered = e.shuffle(window if gathered is None else gathered, chosen, window if first else None)
        lanes.update({place: first + i for i, place in enumerate(inside)})
        left = left[len(inside) :]
    return e.shuffle(gathered, [lanes[place] for place in places])


Pairs = Callable[[Emitter, Value], list[Value]]
PAIRS: dict[GGMLType, Pairs] = {
    GGMLType.Q4_0: _four(GGMLType.Q4_0, 2),
    GGMLType.Q4_1: _four(GGMLType.Q4_1, 4),
    GGMLType.Q5_0: _five(GGMLType.Q5_0, 6),
    GGMLType.Q5_1: _five(GGMLType.Q5_1, 8),
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q1_0: _q1_0,
    GGMLType.IQ4_NL: _iq4_nl,
    GGMLType.MXFP4: _mxfp4,
    GGMLType.IQ4_XS: _iq4_xs,
    GGMLType.Q2_K: _two_bits(16),
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
    GGMLType.TQ2_0: _two_bits(0),
}
