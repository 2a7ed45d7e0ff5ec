"""Packing of columns of activations into the forms that the products read.

GEMV, integer   per column: s8 q[K], f32 d[K/32], i16 sum[K/16]
    qwords      the same, but of each eight blocks in whole sixteens the first qword of every block comes first, then
                the second of every block... (see weights/wide_small.py)
    of several  as for one, but if a group has more than UNSORTED columns, each eight whole blocks of 32 are sorted by
                dwords: the first dword of each block, then the second...
    wide        K rounded up to 512 with zeros; each sixteen blocks are sorted so, each eight of them (also their d and
                sums) in the order EIGHT_PLACES
GEMV, float     per column: f32 x[K], K rounded up to 16 with zeros
GEMV, pairs     per column: BF16 x[K]
GEMM, integer   per tile of `cols` columns, chain after chain (see gemv.py), and block of 32: dword[steps][cols], f32
                d[cols], i16 pair[2][cols][2]; a dword holds four s8 (8 steps) or two s16 (16 steps). pair[h]: two sums
                over half h of the block: of the first and second values of each four neighbours, and of the third and
                fourth. `dots`: four s8, and i32 sum[2][cols] instead: over the block, and over its second half
    octets      as above, but of each two steps the first holds both dwords of columns 0 to 3 of each eight columns in
                turn, the second the dwords of columns 4 to 7
GEMM, words     per tile and block of WORD_BLOCK (pack_words.py): dword[WORD_BLOCK / 2][cols] of two s16, f32 d[cols]
GEMM, float     per tile: f32 [K][cols], element k at index (k % 16) * (K / 16) + k / 16: chain after chain
GEMM, pairs     as `GEMM, float`, from columns packed as `GEMV, pairs`, two BF16 in place of an f32

d and q: see pack_codes.py.

Fields, the same for all packers, even if one does not use them:
    x, ldx       f32 rows of n values
    out, stride  bytes from column to column, or from tile to tile
    n, K         length of the source rows, and padded
    groups       see gemv.py
    index        i64, source row of each column; 0: column c is row c
    cols         columns of a tile
"""

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, I16, I64, Vec, atomic_add, const, emit, ldf, ldi, stf
from ..emit.fields import Address, Counter, Int
from .pack_codes import make_int_column, make_int_tile
from .pack_words import WORD_BLOCK, make_word_columns

V8F = Vec(F32, 8)
CHUNK = 32  # blocks of 32 values that a thread packs at a time
UNSORTED = 2  # maximum columns whose dwords stay unsorted


@emit("i64,i64,i64,i64,i64,i64->void")
def _float_tile(e, rows, out, cols, k0, k1, K):
    """Pack elements k0 .. k1 - 1 (k0, k1 multiples of 8) of 8 columns."""
    b = e.b
    line = b.shl(cols, const(I64, 2))
    per_chain = b.lshr(K, const(I64, 4))
    sources = [e.load(I64, rows, 8 * j) for j in range(8)]

    def eight(i, _):
        k = b.shl(i, const(I64, 3))
        vectors = [e.load(V8F, s, b.shl(k, const(I64, 2))) for s in sources]
        chain = b.and_(k, const(I64, 15))
        turn = b.lshr(k, const(I64, 4))
        for j, v in enumerate(e.transpose(vectors)):
            place = b.add(b.mul(b.add(chain, const(I64, j)), per_chain), turn)
            e.store(v, out, b.mul(place, line))

    e.loop(b.lshr(k1, const(I64, 3)), eight, start=b.lshr(k0, const(I64, 3)))


@device
def _source(x, ldx, index, column):
    return x + (ldi(index + 8 * column) if index else column) * ldx


def column_piece(x, out, K, b0, b1, is_sorted):  # replaced in every variant
    raise NotImplementedError


@kernel
def pack_int_columns(
    a, tid, nth, *, x: Address, ldx: Int, out: Address, stride: Int, n: Int, K: Int, groups: Address,
    index: Address = 0, counter: Counter, cols: Int = 1,
):  # fmt: skip
    n_blocks = K // 32
    per_column = (n_blocks + CHUNK - 1) // CHUNK
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first, n_cols = ldi(group + 8), ldi(group + 16)
        is_sorted = 1 if n_cols > UNSORTED else 0
        for i in range(tid, n_cols * per_column, nth):
            source, target = _source(x, ldx, index, first + i // per_column), out + (first + i // per_column) * stride
            b0 = i % per_column * CHUNK
            column_piece(source, target, K, b0, min(n_blocks, b0 + CHUNK), is_sorted)


@device
def _floats(x, out, n, K):
    """out f32 [K] = x f32 [n], then zeros."""
    for k in range(n):
        stf(out + 4 * k, ldf(x + 4 * k))
    for k in range(n, K):
        stf(out + 4 * k, 0.0)


@emit("i64,i64,i64,i64->void")
def _pairs(e, x, out, n, K):
    """out BF16 [K] = x f32 [n], rounded, then zeros; K is a multiple of 16."""
    b = e.b
    whole = b.and_(n, const(I64, -8))

    def eight(k, _):
        e.store(e.to_bf16(e.load(V8F, x, b.shl(k, const(I64, 2)))), out, b.shl(k, const(I64, 1)))

    def one(k, _):
        value = e.to_bf16(e.load(Vec(F32, 1), x, b.shl(k, const(I64, 2))))
        e.store(e.lane(value, 0), out, b.shl(k, const(I64, 1)))

    e.loop(whole, eight, step=8)
    e.loop(n, one, start=whole)
    e.loop(K, lambda k, _: e.store(const(I16, 0), out, b.shl(k, const(I64, 1))), start=n)


copy_column = _floats


@kernel
def pack_float_columns(
    a, tid, nth, *, x: Address, ldx: Int, out: Address, stride: Int, n: Int, K: Int, groups: Address,
    index: Address = 0, counter: Counter, cols: Int = 1,
):  # fmt: skip
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first = ldi(group + 8)
        for column in range(first + tid, first + ldi(group + 16), nth):
            copy_column(_source(x, ldx, index, column), out + column * stride, n, K)


pack_pairs_columns = variant(pack_float_columns, "pack_pairs_columns", copy_column=_pairs)


@emit("->i64")
def _eight_rows(e):
    """Stack space for 8 addresses."""
    return e.b.ptrtoint(e.stack(I64, 8), I64)


def tile_piece(rows, out, cols, b0, b1, n_blocks, n):  # replaced in every variant
    raise NotImplementedError


UNIT, AT_ONCE = 32, 8  # values of a block; columns that a thread packs at a time


@device
def _gather(rows, x, ldx, index, column, n):
    """Write the addresses of the source rows of 8 columns to `rows`; after the n-th the last is repeated (its results
    are never stored)."""
    for j in range(8):
        _put(rows + 8 * j, _source(x, ldx, index, column + min(j, n - 1)))


@emit("i64,i64->void")
def _put(e, address, value):
    e.store(value, address)


@kernel
def pack_int_tiles(
    a, tid, nth, *, x: Address, ldx: Int, out: Address, stride: Int, n: Int, K: Int, groups: Address,
    index: Address = 0, counter: Counter, cols: Int = 1,
):  # fmt: skip
    rows = _eight_rows()
    n_blocks = (K + UNIT - 1) // UNIT
    per_part = (n_blocks + CHUNK - 1) // CHUNK
    done = 0
    i = atomic_add(counter, 1)
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first, n_cols = ldi(group + 8), ldi(group + 16)
        items = (n_cols + cols - 1) // cols * (cols // AT_ONCE) * per_part
        while i < done + items:
            part = (i - done) // per_part * AT_ONCE
            b0 = (i - done) % per_part * CHUNK
            for column in range(part, part + AT_ONCE, 8):
                _gather(rows, x, ldx, index, first + min(column, n_cols - 1), max(1, n_cols - column))
                tile = out + (first + column) // cols * stride
                tile_piece(rows, tile + (first + column) % cols * 4, cols, b0, min(n_blocks, b0 + CHUNK), n_blocks, n)
            i = atomic_add(counter, 1)
        done += items


@kernel
def pack_float_tiles(
    a, tid, nth, *, x: Address, ldx: Int, out: Address, stride: Int, n: Int, K: Int, groups: Address,
    index: Address = 0, counter: Counter, cols: Int = 1,
):  # fmt: skip
    rows = _eight_rows()
    whole = n // 8 * 8
    per_eight = max(1, (whole + 32 * CHUNK - 1) // (32 * CHUNK))
    done = 0
    i = atomic_add(counter, 1)
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first, n_cols = ldi(group + 8), ldi(group + 16)
        items = (n_cols + cols - 1) // cols * (cols // 8) * per_eight
        while i < done + items:
            column = (i - done) // per_eight * 8
            part = (i - done) % per_eight
            _gather(rows, x, ldx, index, first + min(column, n_cols - 1), max(1, n_cols - column))
            tile = out + (first + column) // cols * stride + (first + column) % cols * 4
            k0 = part * 32 * CHUNK
            _float_tile(rows, tile, cols, k0, min(whole, k0 + 32 * CHUNK), K)
            if part == per_eight - 1:
                for k in range(whole, K):
                    place = tile + (k % 16 * (K // 16) + k // 16) * cols * 4
                    for j in range(8):
                        stf(place + 4 * j, ldf(ldi(rows + 8 * j) + 4 * k) if k < n else 0.0)
            i = atomic_add(counter, 1)
        done += items


PACK_TILES: dict[str, Kernel] = {
    form: variant(pack_int_tiles, f"pack_tiles_{form}", tile_piece=make_int_tile(form))
    for form in ("s8", "octets", "s16", "dots")
}
# sixteen words fill a cache line, which two threads would write in turn
PACK_TILES["words"] = variant(
    pack_int_tiles, "pack_tiles_words", tile_piece=make_word_columns(), UNIT=WORD_BLOCK, AT_ONCE=16
)
PACK_COLUMNS: dict[str, Kernel] = {
    "column": variant(pack_int_columns, "pack_int_columns", column_piece=make_int_column("column")),
    "qwords": variant(pack_int_columns, "pack_int_qwords", column_piece=make_int_column("qwords")),
    "columns": variant(pack_int_columns, "pack_int_dwords", column_piece=make_int_column("columns")),
    "wide": variant(pack_int_columns, "pack_int_wide", column_piece=make_int_column("wide")),
}
