"""Products with a few columns in 512-bit registers: sixteen groups of 32 weights of two rows times a column at once.

Lane l of vector k is dword k of group `PLACES[l]`, of codes and of x (pack.py sorts the columns so). So a column needs
no addition across lanes, and the 16 chains of a row are one register. A column is loaded once for both rows: with one
row, loads would limit the speed. The sums and their order are as in row_products.py.

The last sixteen of a row may be incomplete. Then the next rows are read in place of the missing groups, or, where no
more rows follow, a copy of the groups that are there; lanes without a group add +0.
"""

from collections.abc import Callable

from hybrid.quant.ggml.types import GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .pack_codes import EIGHT_PLACES, padded_length
from .wide_products import WideProducts

V16I, V16F, V64I8, V32I16 = Vec(I32, 16), Vec(F32, 16), Vec(I8, 64), Vec(I16, 32)
ROWS = 2  # rows multiplied with a column together
TURNS = 2  # TURNS * ROWS rows use the same part of the columns while it is in the first-level cache
MOST = 8  # maximum columns at a time
PART = 48  # sixteens of groups in that part, over all columns: 30 KB
# minimum prefetch distance in bytes; if ROWS * TURNS rows are longer, their length is the distance
AHEAD = 6144
PLACES = [*EIGHT_PLACES, *(8 + g for g in EIGHT_PLACES)]  # groups in the order of the lanes
_NATURAL = [PLACES.index(g) for g in range(16)]


class SixteenGroups:
    """Sixteen groups of a row, unpacked for any number of columns."""

    def __init__(self, rows: WideProducts, row: Value, first: Value, n_groups: Value) -> None:
        """n_groups: of the row; groups from there on have the numbers 0."""
        e, self.rows = rows.e, rows
        self.e, b = e, e.b
        g = rows.sixteen(row, first)
        left = e.splat(b.trunc(b.sub(n_groups, first), I32), 16)
        there = b.icmp_signed("<", const(V16I, PLACES), left)
        self.weights = _of_qwords(e, g.codes) if rows.by_qwords else _by_dword(e, g.codes)
        self.scale, *mins = (b.select(there, e.shuffle(v, PLACES), const(V16F, 0.0)) for v in (g.scale, *g.mins))
        self.mins = [b.fneg(v) for v in mins]
        self.factors, self.bias_factors = self._subs(g.subs)

    def _subs(self, subs: Value | None) -> tuple[list[Value], Value]:
        """(factors of the first and second halves of the groups, i32; -bias * factor for the sums of x per half)."""
        e, b, bias = self.e, self.e.b, self.rows.bias
        if subs is None:
            return [], const(V32I16, -bias)
        halves = [e.shuffle(subs, [2 * g + h for g in PLACES]) for h in (0, 1)]
        both = e.shuffle(subs, [2 * g + h for g in PLACES for h in (0, 1)])
        return [b.sext(v, V16I) for v in halves], b.mul(both, const(V32I16, -bias))


class SixteenOfColumn:
    """Sixteen groups of 32 of a column, for any number of rows."""

    def __init__(self, rows: WideProducts, x: Value, first: Value) -> None:
        e, self.rows = rows.e, rows
        self.e, b = e, e.b
        self._codes = e.at(x, b.shl(first, const(I64, 5)))
        x_d, x_sum = rows.scales_and_sums(x)
        o = b.shl(first, const(I64, 2))
        self._sums, self.d = e.load(V32I16, x_sum, o), e.load(V16F, x_d, o)
        self.moments = [b.fmul(e.to_f32(part), self.d) for part in rows.sums_of_x(self._sums, rows.block.n_min)]
        self._bias: Value | None = None

    def times(self, rows: list[SixteenGroups], chains: list[list[Value]]) -> list[list[Value]]:
        """Add the products with the groups of some rows to their chains: of products, and of minima."""
        e, b, added = self.e, self.e.b, []
        for g, isum, of_row in zip(rows, self._isums(rows), chains, strict=True):
            now = list(of_row)
            now[0] = e.fma(e.to_f32(isum), b.fmul(g.scale, self.d), now[0])
            for m, moment in zip(g.mins, self.moments, strict=True):
                now[1] = e.fma(m, moment, now[1])
            added.append(now)
        return added

    def _isums(self, rows: list[SixteenGroups]) -> list[Value]:
        """<16 x i32> per row: the integer sums, factors included, bias subtracted."""
        b, isums = self.e.b, [self._bias_of(g) for g in rows]
        if not rows[0].factors:
            return self._dots(rows, 0, 8, isums)
        for h in (0, 1):
            halves = self._dots(rows, 4 * h, 4, [const(V16I, 0)] * len(rows))
            isums = [b.add(i, b.mul(v, g.factors[h])) for i, v, g in zip(isums, halves, rows, strict=True)]
        return isums

    def _dots(self, rows: list[SixteenGroups], first: int, n: int, totals: list[Value]) -> list[Value]:
        """totals + products of dwords first .. first + n - 1; dword by dword for all rows, to need few registers."""
        for k in range(first, first + n):
            x = self.e.load(V64I8, self._codes, 64 * k)
            totals = [self.rows.dot(g.weights[k], x, total) for g, total in zip(rows, totals, strict=True)]
        return totals

    def _bias_of(self, groups: SixteenGroups) -> Value:
        """<16 x i32>: -bias times the sums of x, with factors; without factors it is the same for all rows."""
        if not self.rows.bias:
            return const(V16I, 0)
        if groups.factors:
            return self.rows.added_pairs(self._sums, groups.bias_factors)
        self._bias = self._bias or self.rows.added_pairs(self._sums, groups.bias_factors)
        return self._bias


def _by_dword(e: Emitter, registers: list[Value]) -> list[Value]:
    """8 x <64 x i8> of two groups each -> 8 x <64 x i8>: vector k has dword k of every group, in the order PLACES."""
    v = [e.b.bitcast(codes, V16I) for codes in registers]

    def zipped(a: Value, c: Value, places: tuple[int, ...]) -> Value:
        """Lanes `places` of every 128 bits of a (0 to 3) and c (16 to 19)."""
        return e.shuffle(a, [4 * quad + i for quad in range(4) for i in places], c)

    quads = []  # for groups 0 to 7 and 8 to 15: per 128 bits dword k (or 4 + k) of four groups
    for f in (0, 4):
        low = [zipped(v[f + j], v[f + j + 1], (0, 16, 1, 17)) for j in (0, 2)]
        high = [zipped(v[f + j], v[f + j + 1], (2, 18, 3, 19)) for j in (0, 2)]
        quads.append([zipped(a, c, places) for a, c in (low, high) for places in ((0, 1, 16, 17), (2, 3, 18, 19))])
    sorted_dwords = []
    for half in (0, 1):
        order = [16 * side + 4 * (quad + half) + i for side in (0, 1) for quad in (0, 2) for i in range(4)]
        sorted_dwords += [e.shuffle(a, order, c) for a, c in zip(*quads, strict=True)]
    return [e.b.bitcast(w, V64I8) for w in sorted_dwords]


def _of_qwords(e: Emitter, registers: list[Value]) -> list[Value]:
    """As _by_dword, of registers in the order of weights/wide_small.py."""
    v = [e.b.bitcast(codes, V16I) for codes in registers]
    order = [2 * g if g < 8 else 16 + 2 * (g - 8) for g in PLACES]
    dwords = [e.shuffle(v[j], [place + h for place in order], v[4 + j]) for j in range(4) for h in (0, 1)]
    return [e.b.bitcast(w, V64I8) for w in dwords]


class Sixteens:
    """Up to ROWS * TURNS rows times n columns, part by part of the columns: 16 chains of products and, with minima, of
    minima. Rows are `stride` bytes apart.
    """

    def __init__(
        self, e: Emitter, kind: GGMLType, stride: Value, x: Value, x_stride: Value, K: Value, n: Value
    ) -> None:
        self.e, self.rows, self.x, self.x_stride, self.n = e, WideProducts(e, kind, padded_length(e, K)), x, x_stride, n
        self.n_groups = e.b.lshr(K, const(I64, 5))
        self.rows.ahead = e.intr("smax", const(I64, AHEAD), e.b.mul(stride, const(I64, ROWS * TURNS)))
        self.n_chains = self.rows.n_chains
        self.chains = e.stack(V16F, MOST * ROWS * TURNS * self.n_chains)

    def _place(self, c: Value, r: Value) -> Value:
        b, size = self.e.b, 64 * self.n_chains
        return self.e.at(self.chains, b.mul(b.add(b.mul(c, const(I64, ROWS * TURNS)), r), const(I64, size)))

    def _load(self, c: Value, r: Value) -> list[Value]:
        """The chains of a column and row, <16 x f32> in the order PLACES."""
        return [self.e.load(V16F, self._place(c, r), 64 * k, 64) for k in range(self.n_chains)]

    def run(self, count: Value, address: Callable[[Value], Value], following: Value) -> None:
        """Compute `count` rows; address(row) must repeat the last row's address after it. following: how many rows
        come after the first of them."""
        e, b, rows, n = self.e, self.e.b, self.rows, self.n
        zeros = b.mul(n, const(I64, 64 * ROWS * TURNS * self.n_chains))
        e.loop(zeros, lambda o, _: e.store(const(V16F, 0.0), self.chains, o, 64), step=64)
        sixteens, size = b.lshr(rows.n_groups, const(I64, 4)), b.udiv(const(I64, PART), n)
        parts = b.udiv(b.add(sixteens, b.sub(size, const(I64, 1))), size)
        copies = [e.stack(I8, 16 // rows.block.groups * rows.block.nbytes) for _ in range(ROWS)]

        def part(k, _):
            begin = b.mul(k, size)
            end = e.intr("smin", b.add(begin, size), sixteens)

            def together(r, _):
                places = [b.add(r, const(I64, k)) for k in range(ROWS)]
                pointers = [address(place) for place in places]
                after = [e.intr("smax", const(I64, 0), b.sub(following, place)) for place in places]
                lasts = [self._last(*row) for row in zip(pointers, after, copies, strict=True)]

                def sixteen(i: Value, _: list[Value]) -> None:
                    self._read_soon(b.sub(i, begin), b.sub(end, begin), begin, pointers)
                    is_last = b.icmp_signed("==", i, b.sub(sixteens, const(I64, 1)))
                    rows = [b.select(is_last, last, p) for last, p in zip(lasts, pointers, strict=True)]
                    self._sixteen(b.shl(i, const(I64, 4)), rows, places)

                e.loop(end, sixteen, start=begin)

            e.loop(count, together, step=ROWS)

        e.loop(parts, part)

    def _read_soon(self, i: Value, n: Value, begin: Value, pointers: list[Value]) -> None:
        """Prefetch for step i of the n steps of a part, which begins with sixteen `begin` of two rows.

        The first row's part is prefetched before the second's: the processor itself prefetches memory that is asked
        for in ascending order, but not rows that are read in turn.
        """
        b, rows = self.e.b, self.rows
        first, second = pointers
        k = b.mul(i, const(I64, ROWS))
        before = b.icmp_signed("<", k, n)
        row, k = b.select(before, first, second), b.select(before, k, b.sub(k, n))
        rows.read_soon(rows.at(row, b.shl(b.add(begin, k), const(I64, 4))), ROWS)

    def _last(self, row: Value, after: Value, copy: Value) -> Value:
        """The address of a row for its last sixteen groups: its own, or, if fewer than sixteen can be read there, that
        of a row whose last groups would be at `copy`, where they are put. after: how many rows follow."""
        e, b, block = self.e, self.e.b, self.rows.block
        missing = b.sub(self.rows.n_groups, self.n_groups)
        lacks = b.icmp_signed("<", b.mul(after, self.n_groups), missing)
        shift = block.groups.bit_length() - 1
        begin, end = (
            b.mul(b.lshr(n, const(I64, shift)), const(I64, block.nbytes))
            for n in (b.sub(self.rows.n_groups, const(I64, 16)), self.n_groups)
        )

        def byte(i: Value, _: list[Value]) -> None:
            e.store(e.load(I8, row, i), copy, b.sub(i, begin))

        e.loop(b.select(lacks, end, begin), byte, start=begin)
        return b.select(lacks, e.at(copy, b.neg(begin)), row)

    def _sixteen(self, first: Value, pointers: list[Value], places: list[Value]) -> None:
        e, b = self.e, self.e.b
        groups = [SixteenGroups(self.rows, p, first, self.n_groups) for p in pointers]

        def column(c, _):
            x = SixteenOfColumn(self.rows, e.at(self.x, b.mul(c, self.x_stride)), first)
            for r, values in zip(places, x.times(groups, [self._load(c, r) for r in places]), strict=True):
                for k, v in enumerate(values):
                    e.store(v, self._place(c, r), 64 * k, 64)

        e.loop(self.n, column)

    def totals(self, count: Value, take: Callable[[Value, Value, Value], None]) -> None:
        """Call take(column, row, total) for all; total = `Emitter.chain_total` of the chains."""
        e, b = self.e, self.e.b
        last_row, last = (b.sub(v, const(I64, 1)) for v in (count, self.n))

        def two_rows(r, _):
            rows = [r, e.intr("smin", b.add(r, const(I64, 1)), last_row)]

            def two_columns(c, _):
                both = [(column, row) for column in (c, e.intr("smin", b.add(c, const(I64, 1)), last)) for row in rows]
                chains = [self._load(*place) for place in both]
                natural = [e.shuffle(v[0] if len(v) == 1 else b.fadd(*v), _NATURAL) for v in chains]
                for place, total in zip(both, _four_totals(e, natural), strict=True):
                    take(*place, total)

            e.loop(self.n, two_columns, step=2)

        e.loop(count, two_rows, step=2)


def _four_totals(e: Emitter, chains: list[Value]) -> list[Value]:
    """`Emitter.chain_total` of four vectors at once, each in a quarter of a register."""
    b = e.b

    def quarters(a: Value, c: Value, first: int, step: int) -> Value:
        """Two quarters of a, then the same of c."""
        places = [16 * side + 4 * q + i for side in (0, 1) for q in (first, first + step) for i in range(4)]
        return e.shuffle(a, places, c)

    pairs = [[quarters(chains[k], chains[k + 1], q, 1) for k in (0, 2)] for q in (0, 2)]
    four = const(V16F, 0.0)
    for q in range(4):
        a, c = pairs[q // 2]
        four = b.fadd(four, quarters(a, c, q % 2, 2))
    total = const(V16F, 0.0)
    for i in range(4):
        total = b.fadd(total, e.shuffle(four, [4 * q + i for q in range(4) for _ in range(4)]))
    return [e.lane(total, 4 * q) for q in range(4)]
