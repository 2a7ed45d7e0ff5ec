"""Products with a few columns in registers of 512 bits: sixteen groups of 32 weights meet a column at once.

Lane l of vector k is dword k of group `PLACES[l]`, of codes and of x (pack.py sorts the columns so). So a column needs
no addition across lanes, and its 16 chains are one register. The sums, and the order in which they are added, are those
of row_products.py; what a row has beyond whole sixteens is done as in gemv_columns.py.
"""

from collections.abc import Callable

from ...quant.ggml.types import GGMLType
from .emit import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .pack import EIGHT_PLACES
from .weights import Groups
from .wide_products import WideProducts

V16I, V16F, V64I8, V32I16 = Vec(I32, 16), Vec(F32, 16), Vec(I8, 64), Vec(I16, 32)
MOST = 8  # columns that an integer row meets at a time
PLACES = [*EIGHT_PLACES, *(8 + g for g in EIGHT_PLACES)]  # groups in the order of the lanes
_NATURAL = [PLACES.index(g) for g in range(16)]


class SixteenGroups:
    """Sixteen groups of a row, unpacked for any number of columns."""

    def __init__(self, rows: WideProducts, row: Value, first: Value) -> None:
        e, self.rows = rows.e, rows
        self.e, b = e, e.b
        two = [rows.unpack(row, b.add(first, const(I64, k))) for k in (0, 8)]
        self.weights = _by_dword(e, [codes for g in two for codes in g.codes])
        self.scale = self._sorted([g.scale for g in two])
        self.mins = [b.fneg(self._sorted(list(pair))) for pair in zip(*(g.mins for g in two), strict=True)]
        self.factors, self.bias_factors = self._subs(two)

    def _sorted(self, two: list[Value]) -> Value:
        return self.e.shuffle(two[0], PLACES, two[1])

    def _subs(self, two: list[Groups]) -> tuple[list[Value], Value]:
        """The factors of the first and of the second half of each group, i32, and what sums of x take off per half."""
        e, b, bias = self.e, self.e.b, self.rows.bias
        if two[0].subs is None:
            return [], const(V32I16, -bias)
        halves = [e.shuffle(two[0].subs, [2 * g + h for g in PLACES], two[1].subs) for h in (0, 1)]
        both = e.shuffle(two[0].subs, [2 * g + h for g in PLACES for h in (0, 1)], two[1].subs)
        return [b.sext(v, V16I) for v in halves], b.mul(both, const(V32I16, -bias))

    def add(self, x: Value, first: Value, chains: list[Value]) -> list[Value]:
        """The groups' products with the column at x added to its chains: of products, and with minima what these take
        off."""
        e, b, rows = self.e, self.e.b, self.rows
        xq = e.at(x, b.shl(first, const(I64, 5)))
        columns = [e.load(V64I8, xq, 64 * k) for k in range(8)]
        x_d, x_sum = rows.scales_and_sums(x)
        o = b.shl(first, const(I64, 2))
        x_sums, dx = e.load(V32I16, x_sum, o), e.load(V16F, x_d, o)
        isum = self._added_pairs(x_sums, self.bias_factors) if rows.bias else const(V16I, 0)
        if self.factors:
            for h, factor in enumerate(self.factors):
                half = const(V16I, 0)
                for w, v in zip(self.weights[4 * h : 4 * h + 4], columns[4 * h : 4 * h + 4], strict=True):
                    half = rows.dot(w, v, half)
                isum = b.add(isum, b.mul(half, factor))
        else:
            for w, v in zip(self.weights, columns, strict=True):
                isum = rows.dot(w, v, isum)
        chains = list(chains)
        chains[0] = e.fma(e.to_f32(isum), b.fmul(self.scale, dx), chains[0])
        for m, part in zip(self.mins, self._sums(x_sums), strict=True):
            chains[1] = e.fma(m, b.fmul(e.to_f32(part), dx), chains[1])
        return chains

    def _sums(self, x_sums: Value) -> list[Value]:
        """Sums of x that belong to the minima: of whole groups, or of their halves."""
        n_min = len(self.mins)
        if n_min < 2:
            return [self._added_pairs(x_sums, const(V32I16, 1))] * n_min
        wide = self.e.b.bitcast(x_sums, V16I)
        shift = const(V16I, 16)
        return [self.e.b.ashr(self.e.b.shl(wide, shift), shift), self.e.b.ashr(wide, shift)]

    def _added_pairs(self, a: Value, c: Value) -> Value:
        """<32 x i16> times <32 x i16>, neighbours added."""
        e, b = self.e, self.e.b
        if e.isa.dot == "vnni":
            return e.call("llvm.x86.avx512.pmaddw.d.512", V16I, a, c)
        products = b.mul(b.sext(a, Vec(I32, 32)), b.sext(c, Vec(I32, 32)))
        return b.add(*(e.shuffle(products, list(range(h, 32, 2))) for h in (0, 1)))


def _by_dword(e: Emitter, pairs: list[Value]) -> list[Value]:
    """8 x <64 x i8>, two groups in each -> 8 x <64 x i8>: vector k has dword k of every group, in the order PLACES."""
    v = [e.b.bitcast(codes, V16I) for codes in pairs]

    def zipped(a: Value, c: Value, places: tuple[int, ...]) -> Value:
        """The same places of every 128 bits of a and c (from 16 on)."""
        return e.shuffle(a, [4 * quad + i for quad in range(4) for i in places], c)

    quads = []  # of groups 0 to 7 and 8 to 15: per 128 bits dword k (or 4 + k) of four groups
    for f in (0, 4):
        low = [zipped(v[f + j], v[f + j + 1], (0, 16, 1, 17)) for j in (0, 2)]
        high = [zipped(v[f + j], v[f + j + 1], (2, 18, 3, 19)) for j in (0, 2)]
        quads.append([zipped(a, c, places) for a, c in (low, high) for places in ((0, 1, 16, 17), (2, 3, 18, 19))])
    made = []
    for half in (0, 1):
        order = [16 * side + 4 * (quad + half) + i for side in (0, 1) for quad in (0, 2) for i in range(4)]
        made += [e.shuffle(a, order, c) for a, c in zip(*quads, strict=True)]
    return [e.b.bitcast(w, V64I8) for w in made]


def sixteens(
    e: Emitter, kind: GGMLType, row: Value, x: Value, x_stride: Value, K: Value, n: Value,
    take: Callable[[Value, list[list[Value]]], None],
) -> None:  # fmt: skip
    """The whole sixteens of a row times n columns. `take` is given, for each column, the chains of the first and of the
    second eight groups: <8 x f32> of products, and with minima of what they take off."""
    b, rows = e.b, WideProducts(e, kind, K)
    size = 64 * rows.n_chains
    chains = e.stack(V16F, MOST * rows.n_chains)
    e.loop(b.mul(n, const(I64, size)), lambda o, _: e.store(const(V16F, 0.0), chains, o, 64), step=64)

    def load(c: Value) -> tuple[Value, list[Value]]:
        place = e.at(chains, b.mul(c, const(I64, size)))
        return place, [e.load(V16F, place, 64 * k, 64) for k in range(rows.n_chains)]

    def sixteen(i, _):
        first = b.shl(i, const(I64, 4))
        groups = SixteenGroups(rows, row, first)

        def column(c, _):
            place, now = load(c)
            for k, v in enumerate(groups.add(e.at(x, b.mul(c, x_stride)), first, now)):
                e.store(v, place, 64 * k, 64)

        e.loop(n, column)

    def leave(c, _):
        _, now = load(c)
        take(c, [[e.shuffle(v, _NATURAL[h : h + 8]) for v in now] for h in (0, 8)])

    e.loop(b.lshr(rows.n_groups, const(I64, 4)), sixteen)
    e.loop(n, leave)
