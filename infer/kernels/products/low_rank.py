"""Low-rank additions to products: y += s B (A x) for every column, where each column has its own adapters.

A token has a list of adapters: i64 [n, then for each: its number, its scale (f32 in the low half)]. `low_rank_inputs`
computes s A x of each column and each of its adapters, `low_rank_sums` multiplies the result with B and adds it to y. A
column's numbers depend on its own list alone, and a column without adapters is not touched.

Each matrix has a table with TABLE i64 per adapter: see `Entry`. The layouts let a thread read the halves as one stream:

    A [rank, n]     blocks of 4 rows (the last one filled with 0): [block][group of 16 values][4 rows][16], n filled up
    B [rows, rank]  blocks of 64 rows: [block][rank][64]; the rest: [rank][rest], filled up to a multiple of 16 with 0

Order of sums: A x as the float products of gemv.py, times s; then B's columns one after the other, each by an fma, from
+0; then that sum is added to y. Several adapters are added one after the other.
"""

from enum import IntEnum

from ..build.jit import device, kernel
from ..emit.emitter import F32, I16, I64, Emitter, Value, Vec, const, emit, ldf, ldi
from ..emit.fields import Address, Int

V16F, V16H = Vec(F32, 16), Vec(I16, 16)
TABLE = 8  # i64 of an entry in a matrix's table


class Entry(IntEnum):
    """The words of an entry. A: address, 0: the adapter leaves this matrix alone."""

    A = 0
    B = 1
    A_BYTES = 2  # from expert to expert
    B_BYTES = 3
    RANK = 4
    FACTOR = 5  # f32 in the low half: multiplied with the scale
    KIND = 6  # a `HalfType`


class HalfType(IntEnum):
    """The types of halves."""

    F32 = 0
    F16 = 1
    BF16 = 2


def _sixteen(e: Emitter, kind: HalfType, address: Value, offset: Value) -> Value:
    """16 values of a half as f32."""
    if kind is HalfType.F32:
        return e.load(V16F, address, offset)
    bits = e.load(V16H, address, offset)
    return e.half(bits) if kind is HalfType.F16 else e.bfloat(bits)


def _make_products(kind: HalfType):
    size = 4 if kind is HalfType.F32 else 2

    @emit("i64,i64,i64,i64,f32->void")
    def four_products(e, a, x, out, n, factor):
        """out[0..3] = factor * the products of a block of four rows with x[n]."""
        b = e.b
        full, end = (b.shl(v, const(I64, 2)) for v in (b.and_(n, const(I64, -16)), n))

        def add(source, at, o, sums):
            v, first = e.load(V16F, source, at), b.mul(o, const(I64, size))
            rows = [_sixteen(e, kind, a, b.add(first, const(I64, 16 * size * r))) for r in range(4)]
            return [e.fma(row, v, total) for row, total in zip(rows, sums, strict=True)]

        sums = e.loop(full, lambda o, sums: add(x, o, o, sums), [const(V16F, 0.0)] * 4, step=64)
        rest = e.stack(F32, 16)  # values after the row's end may be anything

        def last(o, sums):
            e.store(const(V16F, 0.0), rest)
            e.loop(end, lambda p, _: e.store(e.load(F32, x, p), rest, b.sub(p, o)), start=o, step=4)
            return add(rest, const(I64, 0), o, sums)

        sums = e.loop(end, last, list(sums), start=full, step=64)
        for r, total in enumerate(sums):
            e.store(b.fmul(e.chain_total_lanes(total), factor), out, 4 * r)

    return four_products


def _make_sums(kind: HalfType, width: int):
    """A piece for `width` rows of B, side by side: 64, or 16 of which n count."""
    size = 4 if kind is HalfType.F32 else 2
    n_groups = width // 16

    @emit("i64,i64,i64,i64,i64,i64->void")
    def add_sums(e, y, columns, stride, thin, rank, n):
        """y[0..n - 1] += the sum over r of thin[r] * column r; columns are `stride` bytes apart."""
        b = e.b

        def add(r, sums):
            wide = e.splat(e.load(F32, thin, b.shl(r, const(I64, 2))), 16)
            first = b.mul(r, stride)
            rows = [_sixteen(e, kind, columns, b.add(first, const(I64, 16 * size * k))) for k in range(n_groups)]
            return [e.fma(wide, row, total) for row, total in zip(rows, sums, strict=True)]

        sums = e.loop(rank, add, [const(V16F, 0.0)] * n_groups)
        if width > 16:
            for k, total in enumerate(sums):
                e.store(b.fadd(e.load(V16F, y, 64 * k), total), y, 64 * k)
            return
        kept = e.stack(F32, 16)
        e.store(sums[0], kept)

        def one(o, _):
            e.store(b.fadd(e.load(F32, y, o), e.load(F32, kept, o)), y, o)

        e.loop(b.shl(n, const(I64, 2)), one, step=4)

    return add_sums


_products_f32, _products_f16, _products_bf16 = (_make_products(kind) for kind in HalfType)
_wide_f32, _wide_f16, _wide_bf16 = (_make_sums(kind, 64) for kind in HalfType)
_narrow_f32, _narrow_f16, _narrow_bf16 = (_make_sums(kind, 16) for kind in HalfType)


@device
def _four(kind, a, x, out, n, factor):
    if kind == HalfType.F32:
        _products_f32(a, x, out, n, factor)
    elif kind == HalfType.F16:
        _products_f16(a, x, out, n, factor)
    else:
        _products_bf16(a, x, out, n, factor)


@device
def _wide(kind, y, columns, stride, thin, rank):
    if kind == HalfType.F32:
        _wide_f32(y, columns, stride, thin, rank, 64)
    elif kind == HalfType.F16:
        _wide_f16(y, columns, stride, thin, rank, 64)
    else:
        _wide_bf16(y, columns, stride, thin, rank, 64)


@device
def _narrow(kind, y, columns, stride, thin, rank, n):
    if kind == HalfType.F32:
        _narrow_f32(y, columns, stride, thin, rank, n)
    elif kind == HalfType.F16:
        _narrow_f16(y, columns, stride, thin, rank, n)
    else:
        _narrow_bf16(y, columns, stride, thin, rank, n)


@kernel
def low_rank_inputs(
    a, tid, nth, *, groups: Address, of: Address = 0, adapted: Address, lists: Address, table: Address, x: Address,
    ldx: Int, index: Address = 0, out: Address, ldout: Int, n: Int, n_most: Int, first_expert: Int = 0,
):  # fmt: skip
    """out[c * n_most + j] = scale * A x[c] for the adapter j of column c.

    groups        of columns: see gemv.py
    of            i64 [column], its token; 0: its number in its group
    adapted       i64 [token]: where its list begins, in words after `lists`
    table         of the matrix
    x             f32 [row][n]
    index         i64 [column], its row of x; 0: its own number
    out           written: f32 [column][n_most][rank]
    first_expert  is added to the groups' experts
    """
    n_groups_of_16 = (n + 15) // 16
    unit = 0
    for g in range(ldi(groups)):
        expert = first_expert + ldi(groups + 24 * g + 8)
        first = ldi(groups + 24 * g + 16)
        for c in range(first, first + ldi(groups + 24 * g + 24)):
            own = lists + 8 * ldi(adapted + 8 * (ldi(of + 8 * c) if of else c - first))
            row = x + (ldi(index + 8 * c) if index else c) * ldx
            for j in range(ldi(own)):
                entry = table + 8 * TABLE * ldi(own + 16 * j + 8)
                half = ldi(entry + 8 * Entry.A)
                if half == 0:
                    continue
                kind = ldi(entry + 8 * Entry.KIND)
                half += expert * ldi(entry + 8 * Entry.A_BYTES)
                step = n_groups_of_16 * (256 if kind == HalfType.F32 else 128)
                factor = ldf(own + 16 * j + 16) * ldf(entry + 8 * Entry.FACTOR)
                n_blocks = (ldi(entry + 8 * Entry.RANK) + 3) // 4
                to = out + (c * n_most + j) * ldout
                for block in range((tid - unit) % nth, n_blocks, nth):
                    _four(kind, half + block * step, row, to + 16 * block, n, factor)
                unit += n_blocks


@kernel
def low_rank_sums(
    a, tid, nth, *, groups: Address, of: Address = 0, adapted: Address, lists: Address, table: Address, thin: Address,
    ldthin: Int, y: Address, ldy: Int, n: Int, n_most: Int, first_expert: Int = 0,
):  # fmt: skip
    """y[c] += B thin[c * n_most + j] for every adapter j of column c, one after the other. y f32 [column][n]; thin: the
    result of `low_rank_inputs`, whose other fields these are."""
    n_wide = n // 64
    begin, end = n_wide * tid // nth, n_wide * (tid + 1) // nth
    rest = n - 64 * n_wide
    for g in range(ldi(groups)):
        expert = first_expert + ldi(groups + 24 * g + 8)
        first = ldi(groups + 24 * g + 16)
        for c in range(first, first + ldi(groups + 24 * g + 24)):
            own = lists + 8 * ldi(adapted + 8 * (ldi(of + 8 * c) if of else c - first))
            for j in range(ldi(own)):
                entry = table + 8 * TABLE * ldi(own + 16 * j + 8)
                if ldi(entry + 8 * Entry.A) == 0:
                    continue
                kind, rank = ldi(entry + 8 * Entry.KIND), ldi(entry + 8 * Entry.RANK)
                half = ldi(entry + 8 * Entry.B) + expert * ldi(entry + 8 * Entry.B_BYTES)
                size = 4 if kind == HalfType.F32 else 2
                source, row = thin + (c * n_most + j) * ldthin, y + c * ldy
                for block in range(begin, end):
                    _wide(kind, row + 256 * block, half + block * rank * 64 * size, 64 * size, source, rank)
                if rest and tid == nth - 1:
                    half += n_wide * rank * 64 * size
                    stride = (rest + 15) // 16 * 16 * size
                    for k in range(0, rest, 16):
                        to = row + 256 * n_wide + 4 * k
                        _narrow(kind, to, half + k * size, stride, source, rank, min(16, rest - k))
