"""Activations as 8-bit codes: integer columns and tiles for pack.py, in the forms that it lists.

x = d * q with d = max |x| / 127 of a block of 32 (f32; llama.cpp rounds it to f16), q = x / d rounded to nearest even.
"""

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import ISA

V8F, V8I, V16I16, V32I8 = Vec(F32, 8), Vec(I32, 8), Vec(I16, 16), Vec(I8, 32)
LINES = 3  # 4-byte numbers per column and block beside the dwords
BLOCK = 128  # bytes of 32 floats
WIDE = 512  # values of sixteen blocks
EIGHT_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # the order of blocks in the lanes of wide_columns.py


def chain_place(e: Emitter, i: Value, n: Value) -> Value:
    """The index of unit i of n after sorting into 16 chains of units c, c + 16, c + 32..."""
    b = e.b
    chain = b.and_(i, const(I64, 15))
    longer = e.intr("smin", chain, b.and_(n, const(I64, 15)))
    begin = b.add(b.mul(chain, b.lshr(n, const(I64, 4))), longer)
    return b.add(begin, b.lshr(i, const(I64, 4)))


def maximum(e: Emitter, a: Value, c: Value) -> Value:
    """Maximum of magnitudes as bits; a NaN is larger than all numbers, so it stays."""
    return e.intr("smax", a, c)


def _magnitudes(e: Emitter, parts: list[Value]) -> Value:
    """Largest |x| of four vectors, lane by lane, as bits."""
    bits = [e.b.and_(e.b.bitcast(v, V8I), const(V8I, 0x7FFFFFFF)) for v in parts]
    return maximum(e, maximum(e, bits[0], bits[1]), maximum(e, bits[2], bits[3]))


def steps_of(e: Emitter, peak: Value, most: int = 127) -> tuple[Value, Value]:
    """Largest magnitudes (f32) -> (d, 1 / d), with 1 / 0 = 0, for codes up to `most`."""
    b, ty = e.b, peak.type
    one = const(ty, float(most))
    positive = b.fcmp_ordered(">", peak, const(ty, 0.0))
    return b.fmul(peak, const(ty, 1 / most)), b.select(positive, b.fdiv(one, peak), const(ty, 0.0))


def codes_of(e: Emitter, v: Value, inverse: Value, most: int = 127) -> Value:
    """<8 x f32> -> <8 x i32>, rounded to nearest even.

    Clamped: 127 / peak overflows for the smallest magnitudes, and a NaN (which d keeps) must not become a wild integer.
    """
    b = e.b
    scaled = b.fmul(v, inverse)
    for comparison, bound in ((">", -float(most)), ("<", float(most))):
        scaled = b.select(b.fcmp_ordered(comparison, scaled, const(V8F, bound)), scaled, const(V8F, bound))
    if e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx.cvt.ps2dq.256", V8I, scaled)
    return b.fptosi(e.intr("rint", scaled), V8I)


def _quantize8(e: Emitter, sources: list[Value]) -> tuple[list[list[Value]], Value]:
    """8 blocks of 32 floats -> (four vectors of 8 codes (i32) per block, <8 x f32> d)."""
    b = e.b
    blocks = [[e.load(V8F, p, 32 * k) for k in range(4)] for p in sources]
    peaks = maximum(e, *e.reduce8([_magnitudes(e, parts) for parts in blocks], lambda a, c: maximum(e, a, c)))
    d, inverse = steps_of(e, b.bitcast(peaks, V8F))
    scales = [e.splat(e.lane(inverse, j), 8) for j in range(8)]
    return [[codes_of(e, v, scale) for v in parts] for parts, scale in zip(blocks, scales, strict=True)], d


def _as_bytes(e: Emitter, q: list[Value]) -> tuple[Value, list[int]]:
    """Four vectors of 8 codes -> (<8 x i32> of four s8 each, the dword of the block in each lane)."""
    b = e.b
    if e.isa.x86 and e.isa.dot != "plain":
        words = [e.call("llvm.x86.avx2.packssdw", V16I16, q[k], q[k + 1]) for k in (0, 2)]
        return b.bitcast(e.call("llvm.x86.avx2.packsswb", V32I8, *words), V8I), [0, 2, 4, 6, 1, 3, 5, 7]
    return b.bitcast(b.trunc(e.cat(e.cat(q[0], q[1]), e.cat(q[2], q[3])), V32I8), V8I), list(range(8))


def as_words(e: Emitter, q: list[Value]) -> tuple[Value, list[int]]:
    """Two vectors of 8 codes -> (<8 x i32> of two s16 each, the dword of the half block in each lane)."""
    if e.isa.x86 and e.isa.dot != "plain":
        return e.b.bitcast(e.call("llvm.x86.avx2.packssdw", V16I16, *q), V8I), [0, 1, 4, 5, 2, 3, 6, 7]
    return e.b.bitcast(e.b.trunc(e.cat(q[0], q[1]), V16I16), V8I), list(range(8))


def _byte_pairs(e: Emitter, v: Value) -> Value:
    """<8 x i32> of four s8 -> <16 x i16>, neighbours added."""
    if e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, const(V32I8, 1), e.b.bitcast(v, V32I8))
    wide = e.b.sext(e.b.bitcast(v, V32I8), Vec(I16, 32))
    return e.b.add(e.shuffle(wide, list(range(0, 32, 2))), e.shuffle(wide, list(range(1, 32, 2))))


def _word_pairs(e: Emitter, v: Value) -> Value:
    """<16 x i16> -> <8 x i32>, neighbours added."""
    wide = e.b.sext(v, Vec(I32, 16))
    return e.b.add(e.shuffle(wide, list(range(0, 16, 2))), e.shuffle(wide, list(range(1, 16, 2))))


def _low_high(e: Emitter, low: Value, high: Value) -> Value:
    """Two <8 x i32> -> one with the i16 `low` and `high` in each lane."""
    b = e.b
    return b.or_(b.and_(low, const(V8I, 0xFFFF)), b.shl(high, const(V8I, 16)))


class _Column:
    """A column in one of the forms of pack.py, where codes and numbers of blocks are put. is_sorted: 0 or 1, for form
    `columns`."""

    def __init__(self, e: Emitter, form: str, out: Value, K: Value, is_sorted: Value) -> None:
        b = e.b
        self.e, self.form, self.out, self.K, self.is_sorted = e, form, out, K, is_sorted
        self.padded = padded_length(e, K) if form == "wide" else K
        self._d = e.at(out, self.padded)
        self._sums = e.at(self._d, b.lshr(self.padded, const(I64, 3)))
        self.order = EIGHT_PLACES if form == "wide" else tuple(range(8))  # of blocks given to `put_eight`

    def put_eight(self, turn: Value, dwords: list[Value], d: Value, sums: Value) -> None:
        """Put blocks 8 turn .. 8 turn + 7. dwords: <8 x i32> of each, in `order`, as are the lanes of d and sums."""
        e, b = self.e, self.e.b
        i = b.shl(turn, const(I64, 3))
        o, target = b.shl(i, const(I64, 2)), b.shl(i, const(I64, 5))

        def put(vectors: list[Value], target: Value = target, step: int = 32) -> None:
            for k, v in enumerate(vectors):
                e.store(v, self.out, b.add(target, const(I64, step * k)))

        if self.form in ("columns", "qwords"):
            in_sixteens = b.icmp_unsigned("<", b.lshr(turn, const(I64, 1)), b.lshr(self.K, const(I64, 9)))
            is_other = in_sixteens if self.form == "qwords" else b.icmp_signed("!=", self.is_sorted, const(I64, 0))
            with b.if_else(is_other) as (other, as_they_are):
                with other:
                    put(_transposed_qwords(e, dwords) if self.form == "qwords" else e.transpose(dwords))
                with as_they_are:
                    put(dwords)
        elif self.form == "wide":
            second = b.mul(b.and_(turn, const(I64, 1)), const(I64, 256 - 32))
            put(e.transpose(dwords), b.sub(target, second), 64)
        else:
            put(dwords)
        e.store(d, self._d, o)
        e.store(sums, self._sums, o)

    def put_one(self, i: Value, codes: Value, d: Value, sums: list[Value]) -> None:
        """Put block i. codes <8 x i32>, d f32, sums: an i16 of each half."""
        e, b = self.e, self.e.b
        o = b.shl(i, const(I64, 2))
        if self.form == "wide":
            eighth = b.and_(i, const(I64, 7))
            lane = b.add(b.lshr(eighth, const(I64, 1)), b.shl(b.and_(eighth, const(I64, 1)), const(I64, 2)))
            o = b.shl(b.add(b.sub(i, eighth), lane), const(I64, 2))
            target = b.add(b.shl(b.lshr(i, const(I64, 4)), const(I64, 9)), b.and_(o, const(I64, 63)))
            for k in range(8):
                e.store(e.lane(codes, k), self.out, b.add(target, const(I64, 64 * k)))
        else:
            e.store(codes, self.out, b.shl(i, const(I64, 5)))
        e.store(d, self._d, o)
        for h, total in enumerate(sums):
            e.store(total, self._sums, b.add(o, const(I64, 2 * h)))

    def end(self, b1: Value) -> None:
        """Pad with zeros, if block b1 - 1 is the last one."""
        b = self.e.b
        n_blocks, padded = (b.lshr(n, const(I64, 5)) for n in (self.K, self.padded))
        end = b.select(b.icmp_signed("==", b1, n_blocks), padded, n_blocks)
        zeros = const(V8I, 0), const(F32, 0.0), [const(I16, 0)] * 2
        self.e.loop(end, lambda i, _: self.put_one(i, *zeros), start=n_blocks)


def make_int_column(form: str):
    """Piece for blocks b0 .. b1 - 1 of one column; b0 is a multiple of 16. is_sorted: see _Column."""

    def int_column(e: Emitter, x, out, K, b0, b1, is_sorted):
        b, column = e.b, _Column(e, form, out, K, is_sorted)

        def eight(turn, _):
            block = b.shl(turn, const(I64, 3 + BLOCK.bit_length() - 1))
            blocks, d = _quantize8(e, [e.at(x, b.add(block, const(I64, BLOCK * k))) for k in column.order])
            packed = [_as_bytes(e, q) for q in blocks]
            dwords = [e.shuffle(v, [order.index(s) for s in range(8)]) for v, order in packed]
            quads = [_word_pairs(e, _byte_pairs(e, v)) for v in dwords]
            column.put_eight(turn, dwords, d, _half_sums(e, quads))

        turns = b.lshr(b1, const(I64, 3))
        e.loop(turns, eight, start=b.lshr(b0, const(I64, 3)))

        def single(i, _):
            parts = [e.load(V8F, x, b.add(b.mul(i, const(I64, BLOCK)), const(I64, 32 * k))) for k in range(4)]
            bits = _magnitudes(e, parts)
            for n in (4, 2, 1):
                bits = maximum(e, e.part(bits, 0, n), e.part(bits, n, n))
            d, inverse = steps_of(e, b.bitcast(e.lane(bits, 0), F32))
            q = [codes_of(e, v, e.splat(inverse, 8)) for v in parts]
            codes = b.trunc(e.cat(e.cat(q[0], q[1]), e.cat(q[2], q[3])), V32I8)
            sums = [b.trunc(e.halving_sum(b.add(q[k], q[k + 1])), I16) for k in (0, 2)]
            column.put_one(i, b.bitcast(codes, V8I), d, sums)

        e.loop(b1, single, start=e.intr("smax", b0, b.shl(turns, const(I64, 3))))
        column.end(b1)

    return emit("i64,i64,i64,i64,i64,i64->void")(int_column)


def padded_length(e: Emitter, K: Value) -> Value:
    """K rounded up to whole sixteens of blocks: the length of a column in form `wide`."""
    return e.b.and_(e.b.add(K, const(I64, WIDE - 1)), const(I64, -WIDE))


def _transposed_qwords(e: Emitter, groups: list[Value]) -> list[Value]:
    """8 x <8 x i32> of a group each -> the first qword of every group, then the second of every group..."""
    v = [e.b.bitcast(group, Vec(I64, 4)) for group in groups]
    quarters: list[list[Value]] = []  # of four groups: qword j of each
    for f in (0, 4):
        pairs = [[e.shuffle(v[k], [j, 4 + j], v[k + 1]) for k in (f, f + 2)] for j in range(4)]
        quarters.append([e.cat(*pair) for pair in pairs])
    return [e.b.bitcast(quarter[j], V8I) for j in range(4) for quarter in quarters]


def _half_sums(e: Emitter, quads: list[Value]) -> Value:
    """8 x 8 sums of four codes -> <8 x i32>: per block, the sums of its two halves as i16."""
    return _low_high(e, *e.reduce8(quads, e.b.add))


def make_int_tile(form: str, isa: ISA | None = None):
    """Piece: blocks b0 .. b1 - 1 of 8 columns, whose row addresses are in `rows`, -> a tile of `cols` columns."""
    steps = 16 if form == "s16" else 8

    def int_tile(e: Emitter, rows, out, cols, b0, b1, n_blocks, n):
        b = e.b
        line = b.shl(cols, const(I64, 2))  # bytes of one step
        sources = [e.load(I64, rows, 8 * j) for j in range(8)]

        def put(v: Value, base: Value, k: int) -> None:
            e.store(v, base, b.mul(line, const(I64, k)))

        def block(i, _):
            base = e.at(out, b.mul(chain_place(e, i, n_blocks), b.mul(line, const(I64, steps + LINES))))
            blocks, d = _quantize8(e, [e.at(p, b.mul(i, const(I64, BLOCK))) for p in sources])
            put(d, base, steps)
            for h in (0, 1):
                if form == "s16":
                    packed = [as_words(e, q[2 * h : 2 * h + 2]) for q in blocks]
                    lanes = e.transpose([v for v, _ in packed])
                    by_step = [lanes[packed[0][1].index(k)] for k in range(8)]
                    for k, v in enumerate(by_step):
                        put(v, base, 8 * h + k)
                    sums = [_word_pairs(e, b.bitcast(v, V16I16)) for v in by_step]
                    even, odd = (_total(e, sums[first::2]) for first in (0, 1))
                    put(_low_high(e, even, odd), base, steps + 1 + h)
            if form != "s16":
                packed = [_as_bytes(e, q) for q in blocks]
                lanes = e.transpose([v for v, _ in packed])
                by_step = [lanes[packed[0][1].index(k)] for k in range(8)]
                for k, v in enumerate(_octets(e, by_step) if form == "octets" else by_step):
                    put(v, base, k)
                sums_of_two = [_byte_pairs(e, v) for v in by_step]
                first, second = (_total(e, sums_of_two[4 * h : 4 * h + 4]) for h in (0, 1))
                if form == "dots":
                    put(_word_pairs(e, b.add(first, second)), base, steps + 1)
                    put(_word_pairs(e, second), base, steps + 2)
                else:
                    put(b.bitcast(first, V8I), base, steps + 1)
                    put(b.bitcast(second, V8I), base, steps + 2)

        e.loop(b1, block, start=b0)

    return emit("i64,i64,i64,i64,i64,i64,i64->void", isa)(int_tile)


def _octets(e: Emitter, by_step: list[Value]) -> list[Value]:
    """The dwords of 8 columns step by step -> of each two steps, both dwords of columns 0 to 3, then of 4 to 7."""
    orders = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
    return [e.shuffle(by_step[k], order, by_step[k + 1]) for k in range(0, 8, 2) for order in orders]


def _total(e: Emitter, values: list[Value]) -> Value:
    """Sum of four vectors of integers."""
    return e.b.add(e.b.add(values[0], values[1]), e.b.add(values[2], values[3]))
