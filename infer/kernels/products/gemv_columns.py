"""Products with a few columns (batches, speculation): rows directly from the mapped file, read once for all columns.

The fields, the order of accumulation and the columns, except the order of their s8 (pack.py), are as in gemv.py.
Weights are unpacked into registers and multiplied with one column after the other: with AVX-512 sixteen groups of 32 at
a time (wide_columns.py), else eight. There is no padding for 2 sequences, or for an expert's 3 tokens. Sorting eight
groups like the columns takes as long as two columns, so one or two columns are then computed as in gemv.py. For more
than eight, a register tile (gemm.py), which multiplies a broadcast weight with 16 columns at once, is faster.
"""

from collections.abc import Callable

from hybrid.quant.ggml.types import GGMLType

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Int
from ..emit.isa import ISA
from ..weights import FLOAT_BLOCKS, INT_BLOCKS, LOAD16, Groups, IntBlock, has_sixteen, whole
from .gemv import Prefetch, float_rows, next_rows
from .pack import UNSORTED
from .pack_codes import WIDE
from .row_products import SMALL, RowProducts, pair_sums, totals_of
from .wide_columns import MOST, ROWS, TURNS, Sixteens

V8F, V8I, V16I16, V32I8 = Vec(F32, 8), Vec(I32, 8), Vec(I16, 16), Vec(I8, 32)
MOST_BYTES = 512 << 10  # maximum bytes of weights in a chunk
_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64,i64,i64,i64->void"


class LaneSums:
    """Exact integer sums of eight groups of 32 at once: lane g of vector k is dword k of group g, of codes and of x.

    The codes are sorted so once for all columns; the sums then need no additions across lanes.
    """

    def __init__(self, e: Emitter, block: IntBlock) -> None:
        self.e, self.block = e, block
        self.x86_dot = e.isa.dot == "avx2"
        # x86 multiplies u8 with s8: signed codes become unsigned, or move their signs to x
        self.added = 0
        if block.signed:
            self.added = (
                128 if e.isa.dot.startswith("vnni") else SMALL if self.x86_dot and block.largest <= SMALL else 0
            )
        self.bias = self.added + (block.bias or 0)
        # dwords whose products are added before multiplication with the factors of half a group; vpmaddubsw gives sums
        # of two products in 16 bits, and `fitting` of them add up without overflow
        self.run = 4
        if self.x86_dot:
            largest = block.largest + self.bias
            fitting = next(n for n in (8, 4, 2, 1) if n * 2 * 127 * largest < 1 << 15)
            self.run = min(fitting, 4) if block.subs else fitting

    def weights(self, g: Groups) -> list[Value]:
        """The codes of eight groups, 8 x <32 x i8>, sorted by dwords."""
        b = self.e.b
        codes = [b.add(c, const(V32I8, self.added)) for c in g.codes] if self.added else g.codes
        return [b.bitcast(v, V32I8) for v in self.e.transpose([b.bitcast(c, V8I) for c in codes])]

    def isums(self, weights: list[Value], subs: Value | None, x: Value, first: Value) -> Value:
        """<8 x i32>: the integer sums, still including `bias` times the sub-weighted sums of x."""
        e, b = self.e, self.e.b
        xq = e.at(x, b.shl(first, const(I64, 5)))
        columns = [e.load(V32I8, xq, 32 * k) for k in range(8)]
        total = None
        for k in range(0, 8, self.run):
            part = list(zip(weights[k : k + self.run], columns[k : k + self.run], strict=True))
            sums = self._x86(part, subs, k // 4) if self.x86_dot else self._dots(part, subs, k // 4)
            total = sums if total is None else b.add(total, sums)
        return total

    def _x86(self, part: list[tuple[Value, Value]], subs: Value | None, half: int) -> Value:
        e, b = self.e, self.e.b
        total = None
        for w, x in part:
            if self.block.signed and not self.added:
                x = e.call("llvm.x86.avx2.psign.b", V32I8, x, w)
                w = e.call("llvm.abs.v32i8", V32I8, w, const(I1, 0))
            sums_of_two = e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, w, x)
            total = sums_of_two if total is None else b.add(total, sums_of_two)
        factors = const(V16I16, 1) if subs is None else e.shuffle(subs, [i // 2 * 2 + half for i in range(16)])
        return pair_sums(e, total, factors)

    def _dots(self, part: list[tuple[Value, Value]], subs: Value | None, half: int) -> Value:
        e, b = self.e, self.e.b
        total = const(V8I, 0)
        for w, x in part:
            total = self._dot(total, w, x)
        if subs is None:
            return total
        return b.mul(total, b.sext(e.shuffle(subs, list(range(half, 16, 2))), V8I))

    def _dot(self, total: Value, w: Value, x: Value) -> Value:
        e, b = self.e, self.e.b
        if e.isa.dot == "vnni":
            return e.call("llvm.x86.avx512.vpdpbusd.256", V8I, total, w, x)
        if e.isa.dot.startswith("neon"):
            return e.cat(*(e.sdot(e.part(total, k, 4), e.part(w, 4 * k, 16), e.part(x, 4 * k, 16)) for k in (0, 4)))
        wide = Vec(I32, 32)
        signed = self.block.signed and not self.added
        products = b.mul(b.sext(w, wide) if signed else b.zext(w, wide), b.sext(x, wide))
        for k in range(4):
            total = b.add(total, e.shuffle(products, list(range(k, 32, 4))))
        return total


def is_wide(kind: GGMLType, isa: ISA) -> bool:
    """Whether rows are multiplied with columns sixteen groups at a time (wide_columns.py)."""
    return has_sixteen(kind, isa)


def column_bytes(kind: GGMLType, isa: ISA, K: int) -> int:
    """Bytes of a packed column of K values for rows of this type, K a multiple of 32."""
    return -(-K // WIDE) * WIDE // 32 * 40 if is_wide(kind, isa) else K // 32 * 40


def form(kind: GGMLType, isa: ISA) -> str:
    """The form of integer columns for rows of this type: a key of pack.PACK_COLUMNS."""
    return "wide" if is_wide(kind, isa) else "columns"


class Eights:
    """A row times n columns, eight groups per turn; a column has chains for even turns and for odd turns."""

    def __init__(self, e: Emitter, block: IntBlock, x: Value, x_stride: Value, K: Value, n: Value) -> None:
        self.e, self.x, self.x_stride, self.n = e, x, x_stride, n
        self.rows, self.sums = RowProducts(e, block, K), LaneSums(e, block)
        self.turns = e.b.lshr(self.rows.n_groups, const(I64, 3))
        self.n_chains = self.rows.n_chains
        self.chains = e.stack(V8F, MOST * 2 * self.n_chains)

    def _place(self, c: Value, parity: Value | int) -> Value:
        b, half = self.e.b, 32 * self.n_chains
        parity = const(I64, parity) if isinstance(parity, int) else parity
        return self.e.at(self.chains, b.add(b.mul(c, const(I64, 2 * half)), b.mul(parity, const(I64, half))))

    def load(self, c: Value, parity: Value) -> list[Value]:
        return [self.e.load(V8F, self._place(c, parity), 32 * k, 32) for k in range(self.n_chains)]

    def store(self, c: Value, parity: Value | int, values: list[Value]) -> None:
        for k, v in enumerate(values):
            self.e.store(v, self._place(c, parity), 32 * k, 32)

    def clear(self) -> None:
        e, nbytes = self.e, self.e.b.mul(self.n, const(I64, 64 * self.n_chains))
        e.loop(nbytes, lambda o, _: e.store(const(V8F, 0.0), self.chains, o, 32), step=32)

    def run(self, row: Value, take: Callable[[Value, Value], None]) -> None:
        """Compute the row with the cleared chains, then call take(column, product) for each column."""
        e, b, rows = self.e, self.e.b, self.rows

        def eight(i, _):
            """Multiply the i-th eight groups of the row, unpacked once, with all columns."""
            first = b.shl(i, const(I64, 3))
            g = whole(e, rows.unpack(row, first))
            weights, parity = self.sums.weights(g), b.and_(i, const(I64, 1))

            def column(c, _):
                here = e.at(self.x, b.mul(c, self.x_stride))
                isum = self.sums.isums(weights, g.subs, here, first)
                self.store(c, parity, rows.add(g, isum, self.sums.bias, here, first, self.load(c, parity)))

            e.loop(self.n, column)

        e.loop(self.turns, eight)
        odd = b.and_(self.turns, const(I64, 1))

        def finish(c, _):
            following, others = self.load(c, odd), self.load(c, b.xor(odd, const(I64, 1)))
            take(c, rows.finish(row, e.at(self.x, b.mul(c, self.x_stride)), self.turns, following, others))

        e.loop(self.n, finish)


def make_int_columns(kind: GGMLType, isa: ISA | None = None):
    """Piece for rows r0 .. r1 - 1 of n <= MOST columns; x records as for gemv."""

    def int_columns(e: Emitter, w, stride, x, x_stride, y, ldy, r0, r1, K, n):
        """f32 y[column][r] for r0 <= r < r1."""
        b = e.b

        def address(r: Value) -> Value:
            return e.at(w, b.mul(r, stride))

        def put(c: Value, r: Value, total: Value) -> None:
            e.store(total, e.at(y, b.mul(c, ldy)), b.shl(r, const(I64, 2)))

        if is_wide(kind, e.isa):
            sixteens = Sixteens(e, kind, stride, x, x_stride, K, n)

            def some(first, _):
                """ROWS * TURNS rows from `first` on."""
                following = b.sub(b.sub(r1, first), const(I64, 1))
                count = e.intr("smin", b.add(following, const(I64, 1)), const(I64, ROWS * TURNS))
                last = b.sub(count, const(I64, 1))
                sixteens.run(count, lambda k: address(b.add(first, e.intr("smin", k, last))), following)
                sixteens.totals(count, lambda c, k, total: put(c, b.add(first, k), total))

            e.loop(r1, some, start=r0, step=ROWS * TURNS)
            return
        eights, rows = Eights(e, INT_BLOCKS[kind], x, x_stride, K, n), RowProducts(e, INT_BLOCKS[kind], K)

        def sorted_row(r, _):
            eights.clear()
            eights.run(address(r), lambda c, total: put(c, r, total))

        def unsorted(count: int) -> None:
            columns = [x, *(e.at(x, b.mul(x_stride, const(I64, c))) for c in range(1, count))]

            def row(r, _):
                for c, total in enumerate(totals_of(rows, address(r), columns)):
                    put(const(I64, c), r, total)

            e.loop(r1, row, start=r0)

        with b.if_else(b.icmp_signed("<=", n, const(I64, UNSORTED))) as (few, more):
            with few, b.if_else(b.icmp_signed("==", n, const(I64, 1))) as (single, double):
                with single:
                    unsorted(1)
                with double:
                    unsorted(2)
            with more:
                e.loop(r1, sorted_row, start=r0)

    return emit(_SIGNATURE, isa)(int_columns)


def _in_parts(
    e: Emitter, following: Value, turn_bytes: int, first: Value, whole: Value, width: int, least: int
) -> Prefetch:
    """Prefetcher of the next rows, an equal part of them in every pass over the columns.

    Otherwise the first pass would wait for memory, and the others, with rows in the cache, would not use it. The rows
    go to the second-level cache: columns fill the first.

    following   address of the next rows
    turn_bytes  bytes of the current rows, as many as the next, that an iteration of the loop over them reads
    first, whole, width  a pass begins with column `first`; there are `whole` / `width` passes, at least `least`
    """
    b, fraction = e.b, 16
    n_passes, done = (b.udiv(v, const(I64, width)) for v in (whole, first))
    each = b.udiv(const(I64, turn_bytes << fraction), n_passes)

    def prefetch(i: Value, n_turns: Value) -> None:
        turn = b.add(b.mul(done, n_turns), i)
        o = b.and_(b.lshr(b.mul(turn, each), const(I64, fraction)), const(I64, -64))
        for line in range(0, -(-turn_bytes // least), 64):
            e.prefetch(e.at(following, o), line, 2)

    return prefetch


def make_float_columns(kind: GGMLType, isa: ISA | None = None, *, bf16_pairs: bool = False):
    """Piece for rows r0 .. r1 - 1 of n columns of f32 x[K], see gemv.make_float_gemv.

    A chain can be added to once per fma latency, four to six cycles, so eight registers of chains must be in flight: of
    as many columns, or of two rows. More rows read less of the columns, which, if many, leave the first-level cache.
    """
    block = FLOAT_BLOCKS[kind]

    def float_columns(e: Emitter, w, stride, x, x_stride, y, ldy, r0, r1, K, n):
        """f32 y[column][r] for r0 <= r < r1."""
        b = e.b
        last, last_row = b.sub(n, const(I64, 1)), b.sub(r1, const(I64, 1))

        def some(rows: list[Value], first: Value, count: int, prefetch: Prefetch | None) -> None:
            """`count` columns from `first` on; after the last column the last is computed and stored again."""
            places = [e.intr("smin", b.add(first, const(I64, j)), last) for j in range(count)]
            columns = [e.at(x, b.mul(c, x_stride)) for c in places]
            pointers = [e.at(w, b.mul(r, stride)) for r in rows]
            totals = float_rows(e, block, kind, pointers, columns, K, bf16_pairs, prefetch)
            for r, of_row in zip(rows, totals, strict=True):
                for c, total in zip(places, of_row, strict=True):
                    e.store(total, e.at(y, b.mul(c, ldy)), b.shl(r, const(I64, 2)))

        def passes(n_rows: int, width: int, narrow: int = 0, least: int = 0) -> None:
            """`n_rows` rows times `width` columns at a time; if at most `narrow` columns remain, these in one pass.

            least: minimum number of passes, which then all prefetch the next rows; 0: default prefetch.
            """
            whole = b.and_(b.add(n, const(I64, width - 1 - narrow)), const(I64, -width))

            def together(r, _):
                """`n_rows` rows from row r on times all columns; after the last row the last is repeated."""
                rows = [r, *(e.intr("smin", b.add(r, const(I64, k)), last_row) for k in range(1, n_rows))]
                following = e.at(w, b.mul(e.intr("smin", b.add(r, const(I64, n_rows)), last_row), stride))

                def one_pass(first, _):
                    turn_bytes = n_rows * block.nbytes
                    ahead = _in_parts(e, following, turn_bytes, first, whole, width, least) if least else None
                    some(rows, first, width, ahead)

                e.loop(whole, one_pass, step=width)
                if narrow:
                    e.loop(n, lambda first, _: some(rows, first, narrow, None), start=whole, step=narrow)

            e.loop(r1, together, start=r0, step=n_rows)

        if e.isa.lanes == 16:
            with b.if_else(b.icmp_signed("<=", n, const(I64, 4))) as (few, more):
                with few:
                    passes(2, 4, 2)
                with more:
                    passes(2, MOST)
            return
        # A chain takes two of AVX2's 16 registers, or four of NEON's 32. Codes are unpacked for a whole block, which
        # leaves no registers for a third row.
        n_rows = 3 if kind in LOAD16 and e.isa.x86 and e.isa.dot != "plain" else 2
        with b.if_else(b.icmp_signed("<=", n, const(I64, 2))) as (two, more):
            with two:
                passes(2, 2, least=1)
            with more:
                passes(n_rows, 2, least=2)

    return emit(_SIGNATURE, isa)(float_columns)


def columns_piece(w, stride, x, x_stride, y, ldy, r0, r1, K, n):  # replaced in every variant
    raise NotImplementedError


@kernel
def gemv_columns(
    a, tid, nth, *, w: Address, stride: Int, x: Address, x_stride: Int, y: Address, ldy: Int, N: Int, K: Int,
    counter: Counter, groups: Address, expert_stride: Int,
):  # fmt: skip
    """y = W x by chunks of rows, with up to MOST columns at a time."""
    step = 0
    while True:
        group, r0, r1, step = next_rows(counter, groups, N, stride, tid, nth, step, MOST_BYTES)
        if group == 0:
            break
        rows = w + ldi(group) * expert_stride
        first, n = ldi(group + 8), ldi(group + 16)
        c, end = first, first + n
        while c < end:
            left = end - c
            # the last pass must not have UNSORTED columns or fewer: the group's columns are sorted
            count = left if left <= MOST else MOST if left > MOST + UNSORTED else left // 2
            columns_piece(rows, stride, x + c * x_stride, x_stride, y + c * ldy, ldy, r0, r1, K, count)
            c += count


INT_COLUMNS: dict[GGMLType, Kernel] = {
    kind: variant(gemv_columns, f"gemv_columns_int_{kind.name.lower()}", columns_piece=make_int_columns(kind))
    for kind in INT_BLOCKS
}
FLOAT_COLUMNS: dict[GGMLType, Kernel] = {
    kind: variant(gemv_columns, f"gemv_columns_float_{kind.name.lower()}", columns_piece=make_float_columns(kind))
    for kind in FLOAT_BLOCKS
}


def pairs_columns(isa: ISA) -> Kernel:
    """BF16 weights times pairs of BF16; the field K counts pairs."""
    if isa not in _PAIRS:
        piece = make_float_columns(GGMLType.F32, isa, bf16_pairs=True)
        _PAIRS[isa] = variant(gemv_columns, f"gemv_columns_pairs_{isa.name}", columns_piece=piece)
    return _PAIRS[isa]


_PAIRS: dict[ISA, Kernel] = {}
