"""Products with few columns (decoding): one weight row at a time, directly from the mapped file.

Order of accumulation (the same in gemm.py, so that prompt and decode agree to the bit). A row forms 16 chains of units:
blocks of 32 for integer products, single elements for float products. Chain c adds units c, c + 16, c + 32... one after
the other, starting from +0. `Emitter.chain_total` defines how the 16 chains are added.

    integer  chain += float(sum of 32 integer products) * (scale * d_x), one fma; the integer sum is exact and includes
             the factors of 16 weights that some types have (`sub`). Minima have separate chains,
             chain += -min * (float(sum of the 32 or 16 x) * d_x), which are added to the others at the end
    float    chain += w * x, one fma
    pairs    (BF16 weights if the processor has vdpbf16ps) a unit is two elements, whose products are added to the
             chain, see `Emitter.dot_pairs`; x is rounded to BF16

Fields of a product y = W x for every column of every group:
    w              address of the first row of expert 0
    stride         bytes from row to row
    x, x_stride    packed columns (pack.py); bytes from column to column (GEMV) or from tile to tile (GEMM)
    y, ldy         f32 output [column][N]
    N              rows of W
    K              length of a row, a multiple of 32 (integer) or 16 (float)
    counter        hands out chunks of rows (chunks.py)
    groups         i64 [0] number of groups, then per group: expert, first column, number of columns
    expert_stride  bytes from expert to expert
    scratch, scratch_bytes, rows      GEMM only: scratch_bytes for each thread; rows of a chunk
    n_passes, columns                 GEMM only: passes over the rows, and columns of a group in each pass
"""

from collections.abc import Callable

from hybrid.quant.ggml.types import GGMLType

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Int
from ..emit.isa import ISA, prefetch_ahead
from ..weights import FLOAT_BLOCKS, INT_BLOCKS, LOAD16, PAIRS, FloatBlock, by_qwords, has_sixteen
from .chunks import next_chunk
from .row_products import RowProducts, totals_of
from .wide_products import WideProducts

V8F, V16F = Vec(F32, 8), Vec(F32, 16)
MOST_BYTES, LEAST_BYTES = 192 << 10, 16 << 10  # maximum and minimum bytes of weights in a chunk
Prefetch = Callable[[Value, Value], None]  # (i, n): prefetches memory in iteration i of n
_GEMV_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64->void"


def form(kind: GGMLType, isa: ISA) -> str:
    """The form of an integer column for rows of this type: a key of pack.PACK_COLUMNS."""
    return "qwords" if by_qwords(kind, isa) else "column"


def make_int_gemv(kind: GGMLType, isa: ISA | None = None):
    """Piece for rows r0 .. r1 - 1 of one column. x record: s8 q[K], f32 d[K/32], i16 sums of q [K/16]."""

    def int_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        """f32 y[r] for r0 <= r < r1."""
        b = e.b

        def of_rows(product: Callable[[Value, Value], Value]) -> None:
            def row(r: Value, _: list[Value]) -> None:
                e.store(product(r, e.at(w, b.mul(r, stride))), y, b.shl(r, const(I64, 2)))

            e.loop(r1, row, start=r0)

        if not has_sixteen(kind, e.isa):
            plain = RowProducts(e, INT_BLOCKS[kind], K)
            of_rows(lambda _r, p: totals_of(plain, p, [x])[0])
            return
        sixteens = WideProducts(e, kind, K)
        rows = sixteens if kind in PAIRS else RowProducts(e, INT_BLOCKS[kind], K)
        turns, n = b.lshr(rows.n_groups, const(I64, 3)), rows.n_chains

        def product(r: Value, p: Value) -> Value:
            """The product of row r at address p: sixteen groups at a time, then eight, then the rest."""

            def eight(i, chains):
                first = b.shl(i, const(I64, 3))
                g = rows.unpack(p, first)
                isum = rows.isums(g, x, first)
                return [*chains[n:], *rows.add(g, isum, rows.bias, x, first, chains[:n])]

            def rest(row: Value, x: Value, begin: Value, chains: list[Value]) -> list[Value]:
                return rows.rest(row, x, begin, chains, b.sub(b.sub(r1, r), const(I64, 1)))

            return sixteens.row(p, x, turns, eight, rest)

        of_rows(product)

    return emit(_GEMV_SIGNATURE, isa)(int_gemv)


def float_rows(
    e: Emitter,
    block: FloatBlock,
    kind: GGMLType,
    rows: list[Value],
    columns: list[Value],
    K: Value,
    bf16_pairs: bool,
    prefetch: Prefetch | None = None,
) -> list[list[Value]]:
    """Rows times columns of f32 x[K], K a multiple of 16 (of the block for block types): totals [row][column].

    bf16_pairs (kind F32): the elements of rows and columns are pairs of BF16, see `Emitter.dot_pairs`.
    prefetch: called instead of the default, which prefetches later parts of the rows.
    """
    b, multiply = e.b, _multiply_pairs if bf16_pairs else _multiply
    shift = const(I64, block.weights.bit_length() - 1)
    n_blocks, n = b.lshr(K, shift), len(columns)

    def add(weights: list[Value], x: list[Value], chains: list[Value]) -> list[Value]:
        return [multiply(e, weights[k // n], x[k % n], chain) for k, chain in enumerate(chains)]

    def along(places: list[Value]) -> None:
        for q in places:
            for line in range(0, block.nbytes, 64):
                e.prefetch(q, prefetch_ahead() + line, e.isa.near)

    def whole(i, chains):
        """Multiply block i of every row with the columns."""
        places = [e.at(row, b.mul(i, const(I64, block.nbytes))) for row in rows]
        o = b.shl(b.shl(i, shift), const(I64, 2))
        if prefetch is None:
            along(places)
        else:
            prefetch(i, n_blocks)
        for k, weights in enumerate(zip(*(block.load(e, q) for q in places), strict=True)):
            chains = add(list(weights), [e.load(V16F, e.at(x, o), 64 * k) for x in columns], chains)
        return chains

    chains = e.loop(n_blocks, whole, [const(V16F, 0.0)] * (len(rows) * n))
    if kind in LOAD16:

        def half(_i, chains):
            weights = [LOAD16[kind](e, e.at(row, b.mul(n_blocks, const(I64, block.nbytes)))) for row in rows]
            o = b.shl(n_blocks, const(I64, 7))
            return add(weights, [e.load(V16F, e.at(x, o)) for x in columns], chains)

        has_half = b.and_(b.lshr(K, const(I64, 4)), const(I64, 1))
        chains = e.loop(has_half, half, chains)
    totals = [e.chain_total_lanes(chain) for chain in chains]
    return [totals[k : k + n] for k in range(0, len(totals), n)]


def make_float_gemv(kind: GGMLType, isa: ISA | None = None, *, bf16_pairs: bool = False):
    """Piece for rows r0 .. r1 - 1 of one column; see float_rows."""
    block = FLOAT_BLOCKS[kind]

    def float_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        b = e.b

        def rows(*those: Value) -> None:
            places = [e.at(w, b.mul(r, stride)) for r in those]
            for r, (total,) in zip(those, float_rows(e, block, kind, places, [e.ptr(x)], K, bf16_pairs), strict=True):
                e.store(total, y, b.shl(r, const(I64, 2)))

        if kind in LOAD16:
            # two rows at a time, since the fma of one would wait for each other; half of the rows apart, since two
            # neighbours are read as pieces of memory with gaps
            half = b.ashr(b.sub(r1, r0), const(I64, 1))
            e.loop(b.add(r0, half), lambda r, _: rows(r, b.add(r, half)), start=r0)
            r0 = b.add(r0, b.shl(half, const(I64, 1)))
        e.loop(r1, lambda r, _: rows(r), start=r0)

    return emit(_GEMV_SIGNATURE, isa)(float_gemv)


def _multiply(e: Emitter, w: Value, x: Value, acc: Value) -> Value:
    return e.fma(w, x, acc)


def _multiply_pairs(e: Emitter, w: Value, x: Value, acc: Value) -> Value:
    return e.dot_pairs(acc, w, x)


def piece(w, stride, x, y, r0, r1, K):  # replaced in every variant
    raise NotImplementedError


@device
def next_rows(counter, groups, N, stride, tid, nth, step):
    """The next untaken chunk of rows of a group of columns: (the group's record, or 0 if none is left; r0, r1; the
    `step` for the next call, see chunks.py)."""
    # long runs of memory are read fastest, but nobody should wait long for the last chunk
    share = ldi(groups) * N * stride // (8 * nth)
    chunk = max(4, min(max(share, LEAST_BYTES), MOST_BYTES) // stride)
    n_chunks = (N + chunk - 1) // chunk
    i, step = next_chunk(counter, ldi(groups) * n_chunks, tid, nth, step)
    if i >= ldi(groups) * n_chunks:
        return 0, 0, 0, step
    r0 = i % n_chunks * chunk
    return groups + 8 + i // n_chunks * 24, r0, min(N, r0 + chunk), step


@kernel
def gemv(
    a, tid, nth, *, w: Address, stride: Int, x: Address, x_stride: Int, y: Address, ldy: Int, N: Int, K: Int,
    counter: Counter, groups: Address, expert_stride: Int,
):  # fmt: skip
    """y = W x by chunks of rows; within a chunk one column after the other, so that the rows come from the cache."""
    step = 0
    while True:
        group, r0, r1, step = next_rows(counter, groups, N, stride, tid, nth, step)
        if group == 0:
            break
        rows = w + ldi(group) * expert_stride
        first = ldi(group + 8)
        for c in range(first, first + ldi(group + 16)):
            piece(rows, stride, x + c * x_stride, y + c * ldy, r0, r1, K)


INT_GEMV: dict[GGMLType, Kernel] = {
    kind: variant(gemv, f"gemv_int_{kind.name.lower()}", piece=make_int_gemv(kind)) for kind in INT_BLOCKS
}
FLOAT_GEMV: dict[GGMLType, Kernel] = {
    kind: variant(gemv, f"gemv_float_{kind.name.lower()}", piece=make_float_gemv(kind)) for kind in FLOAT_BLOCKS
}


def pairs_gemv(isa: ISA) -> Kernel:
    """BF16 weights times pairs of BF16; the field K counts pairs."""
    if isa not in _PAIRS_GEMV:
        piece = make_float_gemv(GGMLType.F32, isa, bf16_pairs=True)
        _PAIRS_GEMV[isa] = variant(gemv, f"gemv_pairs_{isa.name}", piece=piece)
    return _PAIRS_GEMV[isa]


_PAIRS_GEMV: dict[ISA, Kernel] = {}
