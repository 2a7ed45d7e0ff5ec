"""Attention on the stored codes of 4 and 5 bits: integer products, and no unpacked keys and values.

Queries are rounded to 8 bits, group by group of 32 values; weights times the scales of the values likewise, block by
block of 64 positions. So the sums over a group, and over a block, are exact integers, the same on every path:

    score   sum over groups g, ascending, of  d_q d_g sum q c  [+ m_g sum query]        q = rint(query / d_q)
    output  sum over blocks, ascending, of    d_w sum w c      [+ sum weight m]         w = rint(weight d / d_w)

with the codes c, scales d and minima m of the keys (for one position) or of the values (for one group of values). Codes
without a sign are taken less the middle one, 8 or 16, and minima as much higher, so that rounding loses little. On
random numbers it moves outputs by a twentieth of what the codes of 4 bits do. `exact` precision uses
attention_products.py instead.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..emit.emitter import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import has
from .attention_products import few_rows, scores_of_block
from .attention_tile import BLOCK, CODES_BYTES, HEAD, LANES, TILE_ROWS, Tile
from .kv import GROUP, K_LANES, KVType
from .kv_read import VECTOR, CodeWords, KeyReader, ValueReader, fifth_of, rounded_up

_INTS = Vec(I32, K_LANES)
_EIGHT, _BYTES, _SIXTY_FOUR = Vec(I32, 8), Vec(I8, 32), Vec(I8, 64)
_QUADS = BLOCK // 4
_WORDS = GROUP // 8  # words of a group
MOST_HEAD = 512  # widest head
UNPACKED = _QUADS * 4 * 32  # bytes of the codes of a group of values at all positions of a block
# groups of 16 positions that a number of rows is multiplied with at once: their sums stay in registers
_KEYS_OF = {1: 4, 4: 1} if LANES == 8 else {1: 4, 4: 2, 8: 1}
_VALUES_OF = (1, 2) if LANES == 8 else (1, 4)  # rows that are multiplied with values at once
FACTS = 2 * 4 * BLOCK  # bytes of scales and minima of a group at all positions of a block
ROUNDED = BLOCK + 16  # bytes of the rounded weights of a row: w i8 [BLOCK], f32 d_w, i32 bias * sum w, f32 sum weight m
assert CODES_BYTES >= UNPACKED + FACTS + ROUNDED * TILE_ROWS


def has_integer_form(keys: KVType, values: KVType, d_head: int) -> bool:
    """Whether attention over these types can use integer products."""
    return keys.packed and values.packed and d_head <= MOST_HEAD


class _Dots:
    """Sums of products of codes (bytes) with rounded numbers (s8), four to a lane of 32 bits. Exact.

    bias     number by which the codes are too large
    middle   of codes without a sign, which is a part of `bias`; 0: codes have a sign
    fitting  number of products whose sums of two fit 16 bits, where the path adds those first; 0: it does not
    """

    def __init__(self, e: Emitter, kind: KVType) -> None:
        self.e, isa = e, e.isa
        self.words = CodeWords(e, kind)
        self.signed = self.words.signed
        self.narrow = isa.dot == "avx2"
        self.vnni = isa.dot == "vnni"
        self.shifted = self.vnni and self.signed  # vpdpbusd multiplies u8 with s8
        self.middle = (16 if self.words.has_high else 8) if ".min" in kind.has else 0
        self.bias = 128 if self.shifted else kind.middle or self.middle
        self.fitting = (1 << 15) // (2 * 127 * self.words.largest) if self.narrow else 0

    def codes(self, words: Value) -> Value:
        """Bytes of codes as `add` takes them."""
        return self.e.b.xor(words, const(words.type, -2139062144)) if self.shifted else words

    def zero(self, lanes: int) -> Value:
        return const(Vec(I16, 2 * lanes) if self.narrow else Vec(I32, lanes), 0)

    def add(self, total: Value, codes: Value, x: Value) -> Value:
        """total + products; codes and x: u32 [lanes], 8 or 16."""
        e, b, n = self.e, self.e.b, codes.type.count
        codes, x = (b.bitcast(v, Vec(I8, 4 * n)) for v in (codes, x))
        if self.vnni:
            return e.call(f"llvm.x86.avx512.vpdpbusd.{32 * n}", total.type, total, codes, x)
        if self.narrow:
            if self.signed:
                x = e.call("llvm.x86.avx2.psign.b", _BYTES, x, codes)
                codes = e.call("llvm.abs.v32i8", _BYTES, codes, const(I1, 0))
            return b.add(total, e.call("llvm.x86.avx2.pmadd.ub.sw", Vec(I16, 16), codes, x))
        if e.isa.dot.startswith("neon"):
            parts = [
                e.sdot(e.part(total, k, 4), e.part(codes, 4 * k, 16), e.part(x, 4 * k, 16)) for k in range(0, n, 4)
            ]
            return e.cat(*parts) if len(parts) == 2 else e.cat(e.cat(*parts[:2]), e.cat(*parts[2:]))
        wide = Vec(I32, 4 * n)
        left = b.sext(codes, wide) if self.signed and not self.shifted else b.zext(codes, wide)
        products = b.mul(left, b.sext(x, wide))
        for k in range(4):
            total = b.add(total, e.shuffle(products, list(range(k, 4 * n, 4))))
        return total

    def wide(self, total: Value) -> Value:
        """The sums as i32 [lanes]."""
        if not self.narrow:
            return total
        return self.e.call("llvm.x86.avx2.pmadd.wd", _EIGHT, total, const(Vec(I16, 16), 1))


class _Sum:
    """A sum of products, made wide whenever its 16 bits are used up."""

    def __init__(self, dots: _Dots, lanes: int, start: Value | None = None) -> None:
        self.dots, self.lanes, self.n = dots, lanes, 0
        self.total, self.part = start, dots.zero(lanes)

    def add(self, codes: Value, x: Value) -> None:
        if not self.dots.narrow:
            self.part = self.dots.add(self.part if self.total is None else self.total, codes, x)
            self.total = self.part
            return
        self.part = self.dots.add(self.part, codes, x)
        self.n += 1
        if self.n == self.dots.fitting:
            self._flush()

    def _flush(self) -> None:
        wide = self.dots.wide(self.part)
        self.total = wide if self.total is None else self.dots.e.b.add(self.total, wide)
        self.part, self.n = self.dots.zero(self.lanes), 0

    def value(self) -> Value:
        if self.dots.narrow and self.n:
            self._flush()
        assert self.total is not None
        return self.total


# --- queries ----------------------------------------------------------------------------------------------------------
_FACTS = 3  # of a group of a rounded query
_LEFT = 4 * BLOCK // _FACTS // 4 * 4  # bytes for one of them in a row's room for scores
assert _LEFT >= 4 * MOST_HEAD // GROUP


def _places(e: Emitter, d_pad: Value) -> list[Value]:
    """Byte offsets in the row of a rounded query, after q i8 [group][32]: of d_q f32 [group], -bias * sum q i32 [group]
    and sum query f32 [group]."""
    b = e.b
    n = b.lshr(b.add(d_pad, const(I64, GROUP - 1)), const(I64, 5))
    return [b.mul(n, const(I64, GROUP + 4 * i)) for i in range(_FACTS)]


def make_round_queries(keys: KVType) -> Any:
    @emit("i64,i64,i64->void", apart=True)
    def round_queries(e, tile, n_row, d_head):
        """Round the queries of rows 0 .. n_row - 1 to 8 bits, in place: see `_places`."""
        b, bias = e.b, _Dots(e, keys).bias
        at = Tile(e, tile, d_head)
        places = _places(e, at.d_pad)

        def row(r: Value, _: list[Value]) -> None:
            query, left = b.add(at.query, b.mul(r, at.line)), at.weights(r)  # scores and weights come later

            def group(first: Value, _: list[Value]) -> None:
                zero = const(VECTOR, 0.0)
                place = b.shl(first, const(I64, 2))
                two = b.icmp_signed("<", b.add(first, const(I64, 16)), at.d_pad)
                later = b.select(two, b.add(place, const(I64, 64)), place)
                x = [e.load(VECTOR, query, place), b.select(two, e.load(VECTOR, query, later), zero)]
                check = e.fma(x[1], zero, b.fmul(x[0], zero))  # NaN if a value is infinite or NaN
                most = e.halving_max(e.intr("maxnum", *[e.intr("fabs", v) for v in x]))
                scale = b.fadd(b.fdiv(most, const(F32, 127.0)), e.halving_sum(check))
                inverse = _inverse(e, most)
                q = [_nearest(e, v, inverse) for v in x]
                for k, v in enumerate(q):
                    e.store(b.trunc(v, Vec(I8, 16)), b.add(query, first), 16 * k)
                index = b.lshr(first, const(I64, 3))
                lost = b.mul(e.halving_sum(b.add(*q)), const(I32, -bias))
                for i, fact in enumerate((scale, lost, e.halving_sum(b.fadd(*x)))):
                    e.store(fact, b.add(left, const(I64, _LEFT * i)), index)

            e.loop(at.d_pad, group, step=GROUP)

            def moved(i: Value, _: list[Value]) -> None:
                at = b.shl(i, const(I64, 2))
                for k, place in enumerate(places):
                    e.store(e.load(I32, b.add(left, const(I64, _LEFT * k)), at), b.add(query, place), at)

            e.loop(b.lshr(places[0], const(I64, 5)), moved)

        e.loop(n_row, row)

    return round_queries


def _inverse(e: Emitter, most: Value) -> Value:
    """127 / most in 16 lanes; 0 for 0."""
    usable = e.b.fcmp_ordered(">", most, const(F32, 0.0))
    return e.splat(e.b.select(usable, e.b.fdiv(const(F32, 127.0), most), const(F32, 0.0)), 16)


_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23: the sum's last bits are the nearest integer


def _nearest(e: Emitter, x: Value, inverse: Value) -> Value:
    """The integer nearest to x * inverse, at most 127 in magnitude, i32; of a NaN any."""
    return e.b.sub(_nearest_bits(e, x, inverse), const(_INTS, _ROUNDER_BITS))


def _nearest_bits(e: Emitter, x: Value, inverse: Value) -> Value:
    """`_nearest` plus _ROUNDER_BITS; the last byte is the integer."""
    return e.b.bitcast(e.fma(x, inverse, const(x.type, _ROUNDER)), _INTS)


# --- scores -----------------------------------------------------------------------------------------------------------
def _group_scores(
    e: Emitter, kind: KVType, rows: int, words: int, query: Sequence[Value], keys: Sequence[Value], first: Value,
    acc: list[Value], reader: KeyReader, places: Sequence[Value], soon: Sequence[Value],
) -> list[Value]:  # fmt: skip
    """Scores of `rows` queries with blocks of 16 positions, and one group of `words` words more."""
    b, dots, lanes = e.b, _Dots(e, kind), e.isa.lanes
    parts = range(0, K_LANES, lanes)
    index, acc, n = b.lshr(first, const(I64, 3)), list(acc), len(keys)
    lost = [e.splat(e.load(I32, b.add(q, places[1]), index), lanes) if dots.bias else None for q in query]
    sums = [[[_Sum(dots, lanes, start) for _ in parts] for _ in keys] for start in lost]
    for address in soon:
        _prefetch_group(e, kind, address, first, K_LANES)
    for i in range(words):
        d = b.add(first, const(I64, 8 * i))
        halves = [dots.words.key_bytes(reader, key, d) for key in keys]
        for half in (0, 1):
            codes = [dots.codes(of_key[half]) for of_key in halves]
            for r in range(rows):
                x = e.splat(e.load(I32, query[r], b.add(d, const(I64, 4 * half))), lanes)
                for k, v in enumerate(codes):
                    for s, part in zip(sums[r][k], parts, strict=True):
                        s.add(e.part(v, part, lanes) if lanes < K_LANES else v, x)
    times = [reader.times(key, first) for key in keys]
    for r in range(rows):
        wide = e.splat(e.load(F32, b.add(query[r], places[0]), index), 16)
        exact = e.splat(e.load(F32, b.add(query[r], places[2]), index), 16)
        for k in range(n):
            found = [s.value() for s in sums[r][k]]
            x = found[0] if len(found) == 1 else e.cat(*found)
            at = r * n + k
            acc[at] = e.fma(b.fmul(b.sitofp(x, VECTOR), wide), times[k][0], acc[at])
            if dots.middle:
                acc[at] = e.fma(_minimum(e, dots, times[k]), exact, acc[at])
    return acc


def _prefetch_group(e: Emitter, kind: KVType, address: Value, first: Value, n: int) -> None:
    """Prefetch as many bytes as n positions have in a group of values, from the share of group `first` / 32 on."""
    size = n * (GROUP // 8 * kind.eighth + kind.group)
    here = e.b.add(address, e.b.mul(e.b.lshr(first, const(I64, 5)), const(I64, size)))
    for line in range(0, size, 64):
        e.prefetch(here, line)


def _minimum(e: Emitter, dots: _Dots, times: Sequence[Value]) -> Value:
    """The value of the middle code, from scale and minimum."""
    return e.fma(times[0], const(VECTOR, float(dots.middle)), times[1])


def _scores(
    e: Emitter, kind: KVType, rows: int, q: Value, line: Value, keys: Sequence[Value], p: Value, d_head: Value,
    soon: Sequence[Value],
) -> None:  # fmt: skip
    """Scores of `rows` rounded queries with blocks of 16 positions; fields as of attention_products.py."""
    n = len(keys)

    def body(e: Emitter, q: Value, line: Value, p: Value, d_head: Value, *more: Value) -> None:
        b, reader = e.b, KeyReader(e, kind, d_head)
        keys, soon = more[:n], more[n:]
        d_pad = rounded_up(e, d_head)
        places, query = _places(e, d_pad), [b.add(q, b.mul(line, const(I64, r))) for r in range(rows)]

        def group(words: int) -> Callable[[Value, list[Value]], list[Value]]:
            return lambda first, acc: _group_scores(e, kind, rows, words, query, keys, first, acc, reader, places, soon)

        whole = b.and_(d_pad, const(I64, -GROUP))
        totals = e.loop(whole, group(_WORDS), [const(VECTOR, 0.0)] * (rows * n), step=GROUP)
        totals = e.loop(d_pad, group(_WORDS // 2), totals, start=whole, step=GROUP)
        for r in range(rows):
            for k in range(n):
                e.store(totals[r * n + k], p, 4 * BLOCK * r + 4 * K_LANES * k)

    e.function(f"code_scores_{kind.name}_{rows}_{n}", body, q, line, p, d_head, *keys, *soon)


def make_code_scores(keys: KVType) -> Any:
    """`direct_scores` of attention_products.py, for rounded queries and packed keys."""

    @emit("i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def code_scores(e, tile, n_row, k, next_keys, row, d_head, seen):
        write = lambda e, *given: _scores(e, keys, *given)
        take = scores_of_block(e, tile, k, next_keys, row, d_head, seen, write, _KEYS_OF)
        few_rows(e, n_row, tuple(_KEYS_OF), take)

    return code_scores


# --- values -----------------------------------------------------------------------------------------------------------
def _unpack_group(
    e: Emitter, kind: KVType, target: Value, v: Value, code_row: Value, vrow: Value, d: Value, high_at: Value
) -> None:
    """Write the codes of values d .. d + 31 at all positions of a block, for `_Dots`: [quad of positions][value][4]."""
    b, dots = e.b, _Dots(e, kind)

    def quad(i: Value, _: list[Value]) -> None:
        first = b.shl(i, const(I64, 2))
        block = b.add(v, b.mul(b.and_(first, const(I64, -K_LANES)), vrow))
        row = b.add(block, b.mul(b.and_(first, const(I64, K_LANES - 1)), code_row))
        positions = []
        for k in range(4):
            here = b.add(row, b.mul(code_row, const(I64, k)))
            codes = dots.words.value_bytes(b.add(here, b.lshr(d, const(I64, 1))), b.add(here, high_at))
            positions.append(b.bitcast(dots.codes(codes), _BYTES))
        place = b.add(target, b.shl(i, const(I64, 7)))
        for k, part in enumerate(_interleaved(e, positions)):
            e.store(part, place, 32 * k)

    e.loop(const(I64, _QUADS), quad)


def _unpack_group_wide(
    e: Emitter, kind: KVType, target: Value, v: Value, code_row: Value, vrow: Value, d: Value, high_at: Value
) -> None:
    """As _unpack_group, with AVX-512 VBMI: four positions are one register, whose bytes are sorted at once."""
    b, dots = e.b, _Dots(e, kind)
    ints = Vec(I32, 16)

    def together(parts: Sequence[Value]) -> Value:
        return e.cat(e.cat(*parts[:2]), e.cat(*parts[2:]))

    def quad(i: Value, _: list[Value]) -> None:
        first = b.shl(i, const(I64, 2))
        block = b.add(v, b.mul(b.and_(first, const(I64, -K_LANES)), vrow))
        row = b.add(block, b.mul(b.and_(first, const(I64, K_LANES - 1)), code_row))
        rows = [b.add(row, b.mul(code_row, const(I64, k))) for k in range(4)]
        packed = together([e.load(Vec(I32, 4), b.add(here, b.lshr(d, const(I64, 1)))) for here in rows])
        nibbles = [b.and_(x, const(ints, 0x0F0F0F0F)) for x in (packed, b.lshr(packed, const(ints, 4)))]
        low, high = (b.bitcast(x, _SIXTY_FOUR) for x in nibbles)
        fifths = const(ints, 0)
        for k, here in enumerate(rows if dots.words.has_high else ()):
            fifths = b.insert_element(fifths, e.load(I32, b.add(here, high_at)), const(I32, k))
        for half in (0, 1):
            places = [(value, k) for value in range(16 * half, 16 * half + 16) for k in range(4)]
            codes = e.shuffle(low, [16 * k + j // 8 * 4 + j % 4 + 64 * (j % 8 > 3) for j, k in places], high)
            if dots.words.has_high:
                copies = e.shuffle(b.bitcast(fifths, _SIXTY_FOUR), [4 * k + j // 8 for j, k in places])
                codes = b.or_(codes, fifth_of(e, copies, [1 << j % 8 for j, _ in places]))
            words = dots.codes(dots.words.numbers(b.bitcast(codes, ints)))
            e.store(words, b.add(target, b.shl(i, const(I64, 7))), 64 * half)

    e.loop(const(I64, _QUADS), quad)


def _interleaved(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """Four vectors of 32 bytes -> four; lane j of vector i holds the bytes of value 8 i + j. Each half of 16 bytes has
    the values of even fours, or of odd ones."""

    def zipped(a: Value, c: Value, width: int, upper: int) -> Value:
        ty = Vec({8: I8, 16: I16}[width], 256 // width)
        n = 128 // width
        mask = [m for half in (0, n) for j in range(n // 2) for m in (half + upper * n // 2 + j,) * 2]
        mask = [m + (ty.count if i % 2 else 0) for i, m in enumerate(mask)]
        return e.b.bitcast(e.shuffle(e.b.bitcast(a, ty), mask, e.b.bitcast(c, ty)), _BYTES)

    out = []
    for upper in (0, 1):
        pairs = [zipped(rows[0], rows[1], 8, upper), zipped(rows[2], rows[3], 8, upper)]
        out += [zipped(pairs[0], pairs[1], 16, k) for k in (0, 1)]
    return out


def _group_facts(e: Emitter, kind: KVType, target: Value, vrow: Value, *scales: Value) -> None:
    """f32 [BLOCK] of scales of a group, and of the values of its middle code: their addresses at position 0."""
    b, dots = e.b, _Dots(e, kind)

    def some(i: Value, _: list[Value]) -> None:
        place, to = b.mul(i, vrow), b.add(target, b.shl(i, const(I64, 2)))
        times = [e.half(e.load(Vec(I16, 16), b.add(x, place))) for x in scales]
        e.store(times[0], to)
        if dots.middle:
            e.store(_minimum(e, dots, times), to, 4 * BLOCK)

    e.loop(const(I64, BLOCK), some, step=K_LANES)


def _round_weights(
    e: Emitter, kind: KVType, rows: int, weights: Value, target: Value, facts: Value, *ends: Value
) -> None:
    """Weights f32 [row][BLOCK] times scales -> ROUNDED bytes per row at `target`. rows: 1 or 4.

    ends: first and last position of the block that each row sees; none: all rows see all.
    """
    b, dots, zero = e.b, _Dots(e, kind), const(VECTOR, 0.0)
    limits = [e.splat(b.trunc(x, I32), 16) for x in ends]
    products, minima, most = [], [], []
    for r in range(rows):
        of_row, least = [], zero
        for i in range(0, BLOCK, K_LANES):
            weight = e.load(VECTOR, weights, 4 * (BLOCK * r + i))
            times = [e.load(VECTOR, facts, 4 * (i + BLOCK * k)) for k in range(1 + (dots.middle > 0))]
            if ends:
                place = const(_INTS, list(range(i, i + K_LANES)))
                low, high = limits[2 * r : 2 * r + 2]
                inside = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<=", place, high))
                weight, *times = (b.select(inside, x, zero) for x in (weight, *times))
            of_row.append(b.fmul(weight, times[0]))
            if dots.middle:
                least = e.fma(weight, times[1], least)
        products.append(of_row)
        minima.append(least)
        # as integers, magnitudes have the order of the numbers, and infinity and NaN are the largest
        sizes = [b.and_(b.bitcast(x, _INTS), const(_INTS, 0x7FFFFFFF)) for x in of_row]
        most.append(_tree(sizes, lambda x, y: e.intr("smax", x, y)))
    largest = b.bitcast(e.halved(most, lambda x, y: e.intr("smax", x, y)), VECTOR)
    usable = b.fcmp_ordered(">", largest, zero)
    inverse = b.select(usable, b.fdiv(const(VECTOR, 127.0), largest), zero)
    totals = []
    for r, of_row in enumerate(products):
        own = e.shuffle(inverse, [4 * r] * 16)
        w = [_nearest_bits(e, x, own) for x in of_row]
        totals.append(_tree(w, b.add))
        e.store(b.trunc(e.cat(e.cat(*w[:2]), e.cat(*w[2:])), Vec(I8, BLOCK)), target, ROUNDED * r)
    total = b.sub(e.halved(totals, b.add), const(_INTS, (BLOCK * _ROUNDER_BITS + (1 << 31)) % (1 << 32) - (1 << 31)))
    lost = b.mul(total, const(_INTS, dots.bias))
    # NaN if a product is infinite or NaN
    scale = b.fadd(b.fdiv(largest, const(VECTOR, 127.0)), b.fmul(largest, zero))
    least = e.halved(minima, b.fadd) if dots.middle else zero
    scale, lost, least = (b.bitcast(x, _INTS) for x in (scale, lost, least))
    found = e.shuffle(scale, [i + 16 * (i % 4 == 1) for i in range(16)], lost)
    found = e.shuffle(found, [i + 16 * (i % 4 == 2) for i in range(16)], least)
    for r in range(rows):
        e.store(e.part(found, 4 * r, 4), target, ROUNDED * r + BLOCK)


def _tree(parts: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Four values combined in pairs."""
    return combine(combine(*parts[:2]), combine(*parts[2:]))


def _group_values(
    e: Emitter, kind: KVType, rows: int, codes: Value, rounded: Value, out: Value, record: Value, n: Value
) -> None:
    """out f32 [rows][32] += rounded weights times the codes of a group; rows of `out` are `record` bytes apart. n: how
    many of the 32 values there are, 16 or 32."""
    b, dots, lanes = e.b, _Dots(e, kind), e.isa.lanes
    step = max(1, dots.fitting) if dots.narrow else 4
    step, parts = min(step, 8), range(GROUP // lanes)
    weights = [b.add(rounded, const(I64, ROUNDED * r)) for r in range(rows)]

    def some(i: Value, totals: list[Value]) -> list[Value]:
        sums = [_Sum(dots, lanes, total) for total in totals]
        for k in range(step):
            quad = b.add(i, const(I64, k))
            place = b.add(codes, b.shl(quad, const(I64, 7)))
            loaded = [e.load(Vec(I32, lanes), place, 4 * lanes * j) for j in parts]
            for r in range(rows):
                x = e.splat(e.load(I32, weights[r], b.shl(quad, const(I64, 2))), lanes)
                for j in parts:
                    sums[len(parts) * r + j].add(loaded[j], x)
        return [s.value() for s in sums]

    zeros = [const(Vec(I32, lanes), 0)] * (len(parts) * rows)
    totals = e.loop(const(I64, _QUADS), some, zeros, step=step)
    ty = Vec(F32, lanes)
    for r in range(rows):
        scale, lost = (e.splat(e.load(kind, weights[r], BLOCK + 4 * i), lanes) for i, kind in enumerate((F32, I32)))
        minima = e.splat(e.load(F32, weights[r], BLOCK + 8), lanes)
        target = b.add(out, b.mul(record, const(I64, r)))

        def store(
            j: int, r: int = r, scale: Value = scale, lost: Value = lost, minima: Value = minima, target: Value = target
        ) -> None:
            x = totals[len(parts) * r + j]
            x = b.sitofp(b.sub(x, lost) if dots.bias else x, ty)
            x = e.fma(x, scale, e.load(ty, target, 4 * lanes * j))
            e.store(b.fadd(x, minima) if dots.middle else x, target, 4 * lanes * j)

        for j in parts[: len(parts) // 2]:
            store(j)
        with b.if_then(b.icmp_signed(">", n, const(I64, 16))):
            for j in parts[len(parts) // 2 :]:
                store(j)


def make_code_values(values: KVType) -> Any:
    """`direct_values` of attention_products.py, with rounded weights and packed values."""

    @emit("i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def code_values(e, tile, n_row, v, next_values, vrow, d_head, d_value, b0, window):
        b = e.b
        at = Tile(e, tile, d_head)
        v_pad, reader = rounded_up(e, d_value), ValueReader(e, values, d_value)
        codes, facts = at.keys, b.add(at.keys, const(I64, UNPACKED))
        rounded = b.add(facts, const(I64, FACTS))
        high_plane = b.lshr(v_pad, const(I64, 1))
        wide = e.isa.lanes == 16 and has(e.isa, "avx512vbmi")

        def partial(r: Value, found: list[Value]) -> list[Value]:
            """Whether row r, or one before, does not see all of the block."""
            low, high = at.first(r, b0, window), at.last(r, b0)
            some = b.or_(b.icmp_signed(">", low, const(I64, 0)), b.icmp_signed("<", high, const(I64, BLOCK - 1)))
            return [b.or_(found[0], some)]

        (partly,) = e.loop(n_row, partial, [const(I1, 0)])

        def group(d: Value, _: list[Value]) -> None:
            high_at = b.add(high_plane, b.lshr(d, const(I64, 3)))
            _prefetch_group(e, values, next_values, d, BLOCK)
            e.function(
                f"unpack_group_{values.name}",
                lambda e, *given: (_unpack_group_wide if wide else _unpack_group)(e, values, *given),
                codes, v, reader.code_row, vrow, d, high_at,
            )  # fmt: skip
            e.function(
                f"group_facts_{values.name}",
                lambda e, *given: _group_facts(e, values, *given),
                facts, vrow, *reader.addresses(v, d)[-len(values.groups) :],
            )  # fmt: skip

            def rounding(some: bool) -> Callable[[int, Value], None]:
                def take(rows: int, r: Value) -> None:
                    each = [b.add(r, const(I64, i)) for i in range(rows * some)]
                    ends = [x for u in each for x in (at.first(u, b0, window), at.last(u, b0))]
                    e.function(
                        f"round_weights_{values.name}_{rows}_{some}",
                        lambda e, *given: _round_weights(e, values, rows, *given),
                        at.weights(r), b.add(rounded, b.mul(r, const(I64, ROUNDED))), facts, *ends,
                    )  # fmt: skip

                return take

            with b.if_else(partly) as branches:
                for some, branch in zip((True, False), branches, strict=True):
                    with branch:
                        few_rows(e, n_row, (1, 4), rounding(some))

            def take(rows: int, r: Value) -> None:
                out = b.add(at.chunk_record(r), b.add(b.shl(d, const(I64, 2)), const(I64, HEAD)))
                mine = b.add(rounded, b.mul(r, const(I64, ROUNDED)))
                e.function(
                    f"code_values_{values.name}_{rows}",
                    lambda e, *given: _group_values(e, values, rows, *given),
                    codes, mine, out, at.record, b.sub(v_pad, d),
                )  # fmt: skip

            few_rows(e, n_row, _VALUES_OF, take)

        e.loop(v_pad, group, step=GROUP)

    return code_values
