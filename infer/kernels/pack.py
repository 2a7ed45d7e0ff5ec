"""Columns of activations in the form in which the products read them.

GEMV, integer   per column: s8 q[K], f32 d[K/32], i32 sum[K/32]
GEMV, float     per column: f32 x[K], K rounded up to 16 with zeros
GEMM, integer   per tile of `cols` columns and block of 32: dword[steps][cols], f32 d[cols], i32 sum[cols]; a dword
                holds four s8 (8 steps) or two s16 (16 steps). s8-bias8: instead of the sum, two s16 with minus 8
                times the sums of the first and last two codes of the dwords
GEMM, float     per tile: f32 [K][cols], element k at place (k % 16) * (K / 16) + k / 16: chain after chain

x = d * q with d = max |x| / 127 of the 32 (f32; llama.cpp rounds it to f16), q = x / d rounded to nearest even.

Op record: 0 x, 1 ldx (bytes), 2 out, 3 bytes per column or tile, 4 length of the source rows, 5 K (padded), 6 groups,
7 i64 source row of each column (0: column c is row c), 8 counter, 9 cols (tiles).
"""

from .emit import F32, I8, I16, I32, I64, Emitter, Value, Vec, arg, atomic_add, const, emit, ldf, ldi, stf
from .jit import Kernel, device, kernel, variant

V8F, V8I, V16F = Vec(F32, 8), Vec(I32, 8), Vec(F32, 16)
CHUNK = 32  # blocks of 32 values that a thread packs at a time


def _quantize(e: Emitter, p: Value) -> tuple[Value, Value, Value, Value]:
    """32 floats at p -> two vectors of 16 codes (i32), d, sum of the codes."""
    b = e.b
    low, high = e.load(V16F, p), e.load(V16F, p, 64)
    peak = e.halving_max(e.intr("maxnum", e.intr("fabs", low), e.intr("fabs", high)))
    d = b.fmul(peak, const(F32, 1 / 127))
    inverse = b.select(b.fcmp_ordered(">", peak, const(F32, 0.0)), b.fdiv(const(F32, 127.0), peak), const(F32, 0.0))
    scale = e.splat(inverse, 16)

    def codes(v: Value) -> Value:
        # clamped: 127 / peak * peak can round to just above 127, and a NaN must not become a wild integer
        scaled = e.intr("rint", b.fmul(v, scale))
        scaled = e.intr("minnum", e.intr("maxnum", scaled, const(V16F, -127.0)), const(V16F, 127.0))
        return b.fptosi(scaled, Vec(I32, 16))

    q0, q1 = codes(low), codes(high)
    return q0, q1, d, e.halving_sum(b.add(q0, q1))


@emit("i64,i64,i64,i64,i64->void")
def _int_column(e, x, out, K, b0, b1):
    """Blocks b0..b1 of one column."""
    b = e.b
    x_d = e.at(out, K)
    x_sum = e.at(x_d, b.lshr(K, const(I64, 3)))

    def block(i, _):
        q0, q1, d, total = _quantize(e, e.at(x, b.shl(i, const(I64, 7))))
        e.store(b.trunc(e.cat(q0, q1), Vec(I8, 32)), out, b.shl(i, const(I64, 5)))
        e.store(d, x_d, b.shl(i, const(I64, 2)))
        e.store(total, x_sum, b.shl(i, const(I64, 2)))

    e.loop(b1, block, start=b0)


def _make_int_tile(form: str):
    """Blocks b0..b1 of 8 columns, whose row addresses are in `rows`, into a tile of `cols` columns."""
    wide = form == "s16"
    steps = 16 if wide else 8

    def correction(e: Emitter, q: Value, total: Value) -> Value:
        """q: codes k and k + 16 of a block added up (they have the same place in a dword)."""
        b = e.b
        if form != "s8-bias8":
            return total
        first = e.halving_sum(b.and_(q, const(Vec(I32, 16), [-1, -1, 0, 0] * 4)))
        low, high = b.mul(first, const(I32, -8)), b.mul(b.sub(total, first), const(I32, -8))
        return b.or_(b.and_(low, const(I32, 0xFFFF)), b.shl(high, const(I32, 16)))

    def int_tile(e: Emitter, rows, out, cols, b0, b1):
        b = e.b
        line = b.shl(cols, const(I64, 2))  # bytes of one step
        sources = [e.load(I64, rows, 8 * j) for j in range(8)]

        def block(i, _):
            base = e.at(out, b.mul(i, b.mul(line, const(I64, steps + 2))))
            scales, sums = const(V8F, 0.0), const(V8I, 0)
            dwords: list[list[Value]] = []
            for j in range(8):
                q0, q1, d, total = _quantize(e, e.at(sources[j], b.shl(i, const(I64, 7))))
                if wide:
                    dwords.append([b.bitcast(b.trunc(q, Vec(I16, 16)), V8I) for q in (q0, q1)])
                else:
                    dwords.append([b.bitcast(b.trunc(e.cat(q0, q1), Vec(I8, 32)), V8I)])
                scales = b.insert_element(scales, d, const(I32, j))
                sums = b.insert_element(sums, correction(e, b.add(q0, q1), total), const(I32, j))
            for h in range(steps // 8):
                for k, v in enumerate(e.transpose8([d[h] for d in dwords])):
                    e.store(v, base, b.mul(line, const(I64, 8 * h + k)))
            e.store(scales, base, b.mul(line, const(I64, steps)))
            e.store(sums, base, b.mul(line, const(I64, steps + 1)))

        e.loop(b1, block, start=b0)

    return emit("i64,i64,i64,i64,i64->void")(int_tile)


@emit("i64,i64,i64,i64,i64,i64->void")
def _float_tile(e, rows, out, cols, k0, k1, K):
    """Elements k0..k1 (multiples of 8) of 8 columns."""
    b = e.b
    line = b.shl(cols, const(I64, 2))
    per_chain = b.lshr(K, const(I64, 4))
    sources = [e.load(I64, rows, 8 * j) for j in range(8)]

    def eight(i, _):
        k = b.shl(i, const(I64, 3))
        vectors = [e.load(V8F, s, b.shl(k, const(I64, 2))) for s in sources]
        chain = b.and_(k, const(I64, 15))
        turn = b.lshr(k, const(I64, 4))
        for j, v in enumerate(e.transpose8(vectors)):
            place = b.add(b.mul(b.add(chain, const(I64, j)), per_chain), turn)
            e.store(v, out, b.mul(place, line))

    e.loop(b.lshr(k1, const(I64, 3)), eight, start=b.lshr(k0, const(I64, 3)))


@device
def _source(x, ldx, index, column):
    return x + (ldi(index + 8 * column) if index else column) * ldx


@kernel
def pack_int_columns(a, tid, nth):
    x, ldx, out, stride, K, groups, index = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 5), arg(a, 6), arg(a, 7)
    n_blocks = K // 32
    per_column = (n_blocks + CHUNK - 1) // CHUNK
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first = ldi(group + 8)
        for i in range(tid, ldi(group + 16) * per_column, nth):
            column = first + i // per_column
            b0 = i % per_column * CHUNK
            _int_column(_source(x, ldx, index, column), out + column * stride, K, b0, min(n_blocks, b0 + CHUNK))


@kernel
def pack_float_columns(a, tid, nth):
    x, ldx, out, stride, n, K = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    groups, index = arg(a, 6), arg(a, 7)
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first = ldi(group + 8)
        for column in range(first + tid, first + ldi(group + 16), nth):
            source = _source(x, ldx, index, column)
            target = out + column * stride
            for k in range(n):
                stf(target + 4 * k, ldf(source + 4 * k))
            for k in range(n, K):
                stf(target + 4 * k, 0.0)


@emit("->i64")
def _eight_rows(e):
    """Stack space for 8 addresses."""
    return e.b.ptrtoint(e.stack(I64, 8), I64)


def tile_piece(rows, out, cols, b0, b1):  # replaced in every variant
    raise NotImplementedError


@device
def _gather(rows, x, ldx, index, column, n):
    """Addresses of the source rows of 8 columns; columns past the last repeat it (their results are never stored)."""
    for j in range(8):
        _put(rows + 8 * j, _source(x, ldx, index, column + min(j, n - 1)))


@emit("i64,i64->void")
def _put(e, address, value):
    e.store(value, address)


@kernel
def pack_int_tiles(a, tid, nth):
    x, ldx, out, stride, K, groups, index = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 5), arg(a, 6), arg(a, 7)
    counter, cols = arg(a, 8), arg(a, 9)
    rows = _eight_rows()
    n_blocks = K // 32
    per_eight = (n_blocks + CHUNK - 1) // CHUNK
    done = 0
    i = atomic_add(counter, 1)
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first, n = ldi(group + 8), ldi(group + 16)
        items = (n + cols - 1) // cols * (cols // 8) * per_eight
        while i < done + items:
            column = (i - done) // per_eight * 8
            b0 = (i - done) % per_eight * CHUNK
            _gather(rows, x, ldx, index, first + min(column, n - 1), max(1, n - column))
            tile = out + (first + column) // cols * stride
            tile_piece(rows, tile + (first + column) % cols * 4, cols, b0, min(n_blocks, b0 + CHUNK))
            i = atomic_add(counter, 1)
        done += items


@kernel
def pack_float_tiles(a, tid, nth):
    x, ldx, out, stride, length, K = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    groups, index, counter, cols = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9)
    rows = _eight_rows()
    whole = length // 8 * 8
    per_eight = max(1, (whole + 32 * CHUNK - 1) // (32 * CHUNK))
    done = 0
    i = atomic_add(counter, 1)
    for g in range(ldi(groups)):
        group = groups + 8 + 24 * g
        first, n = ldi(group + 8), ldi(group + 16)
        items = (n + cols - 1) // cols * (cols // 8) * per_eight
        while i < done + items:
            column = (i - done) // per_eight * 8
            part = (i - done) % per_eight
            _gather(rows, x, ldx, index, first + min(column, n - 1), max(1, n - column))
            tile = out + (first + column) // cols * stride + (first + column) % cols * 4
            k0 = part * 32 * CHUNK
            _float_tile(rows, tile, cols, k0, min(whole, k0 + 32 * CHUNK), K)
            if part == per_eight - 1:
                for k in range(whole, K):
                    place = tile + (k % 16 * (K // 16) + k // 16) * cols * 4
                    for j in range(8):
                        stf(place + 4 * j, ldf(ldi(rows + 8 * j) + 4 * k) if k < length else 0.0)
            i = atomic_add(counter, 1)
        done += items


PACK_TILES: dict[str, Kernel] = {
    form: variant(pack_int_tiles, f"pack_tiles_{form}", tile_piece=_make_int_tile(form))
    for form in ("s8", "s8-bias8", "s16")
}
