"""Products with many columns (prompts, batches): tokens in the SIMD lanes.

A thread takes a chunk of weight rows, unpacks them once into its scratch (integer codes and scales, or f32), and runs
over all tiles of columns with a register tile of R rows x C vectors of columns. A weight is broadcast; nothing but the
activations is transposed, once per input (pack.py). The order of accumulation is that of gemv.py.

Integer products by target:
    vnni   u8 codes (w + 128 or w + 8) x s8, vpdpbusd
    s16    s16 codes x s16, vpmaddwd: AVX2's vpmaddubsw saturates with 8-bit codes, and this is as fast (AVX2, Q8_0)
    ub     u8 codes below 16 x s8, vpmaddubsw summed in 16 bits over a block (AVX2, Q4_0). The sums start from minus
           bias * x, so what is left at the end is 16 products of at most 8 * 127 per half: it fits, and how the sum
           wraps on the way does not matter
"""

from dataclasses import dataclass

from ...quant.ggml.types import GGMLType
from .emit import F32, I8, I16, I32, I64, Emitter, Value, Vec, arg, atomic_add, const, emit, ldf, ldi, stf
from .isa import ISA, host
from .jit import Kernel, device, kernel, variant
from .weights import FLOAT_BLOCKS, INT_BLOCKS

V8F = Vec(F32, 8)


@dataclass(frozen=True)
class Scheme:
    """How an integer product is done: `steps` dwords of a block of 32, bytes of a code in the scratch, codes' bias."""

    name: str
    steps: int
    code_bytes: int
    bias: int

    @property
    def packing(self) -> str:
        """The form of the columns: a key of pack.PACK_TILES."""
        return {"vnni": "s8", "s16": "s16", "ub": "s8-bias8"}[self.name]


def scheme(kind: GGMLType, isa: ISA) -> Scheme:
    bias = INT_BLOCKS[kind].bias
    if isa.dot.startswith("vnni"):
        return Scheme("vnni", 8, 1, bias or 128)
    if isa.dot == "avx2" and bias == 8:
        return Scheme("ub", 8, 1, bias)
    return Scheme("s16", 16, 2, 0)


@dataclass(frozen=True)
class Tile:
    """Register tile: `rows` rows x `vectors` vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def cols(self) -> int:
        return self.vectors * self.lanes


def tiles(isa: ISA) -> tuple[Tile, Tile]:
    """(narrow, wide): for ubatches of at most `narrow.cols` columns, and for larger ones."""
    if isa.lanes == 16:
        return Tile(12, 1, 16), Tile(8, 2, 16)
    return Tile(12, 1, 8), Tile(6, 2, 8)


UNROLL = 2  # steps per iteration of the innermost loop
ROWS = 24  # a chunk of rows is a multiple of this: of every tile's rows, and of the 8 of the output transposition


def _dot(e: Emitter, how: Scheme, acc: Value, w: Value, x: Value) -> Value:
    """acc += products of one dword of codes per lane. ub: acc is <2 lanes x i16>, else <lanes x i32>."""
    b = e.b
    n = x.type.count
    if how.name == "vnni" and e.isa.dot == "vnni":
        bits = {16: 512, 8: 256}[n]
        bytes_ = Vec(I8, 4 * n)
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        return e.call(name, acc.type, acc, b.bitcast(w, bytes_), b.bitcast(x, bytes_))
    if how.name == "ub" and e.isa.dot == "avx2":
        pairs = e.call("llvm.x86.avx2.pmadd.ub.sw", Vec(I16, 16), b.bitcast(w, Vec(I8, 32)), b.bitcast(x, Vec(I8, 32)))
        return b.add(acc, pairs)
    if how.name == "s16" and e.isa.dot == "avx2":
        pairs = e.call("llvm.x86.avx2.pmadd.wd", acc.type, b.bitcast(w, Vec(I16, 16)), b.bitcast(x, Vec(I16, 16)))
        return b.add(acc, pairs)
    # any target: widen, multiply, add neighbours
    parts = 2 if how.name == "s16" else 4
    narrow = Vec(I16 if parts == 2 else I8, parts * n)
    wide = Vec(I32, parts * n)
    left = b.sext(b.bitcast(w, narrow), wide) if parts == 2 else b.zext(b.bitcast(w, narrow), wide)
    products = b.mul(left, b.sext(b.bitcast(x, narrow), wide))
    for k in range(parts):
        acc = b.add(acc, e.shuffle(products, [parts * i + k for i in range(n)]))
    return acc


def make_int_tile(how: Scheme, tile: Tile, isa: ISA | None = None):
    """One register tile over the whole of K. codes and scales: rows of the scratch; x: packed tile; out: f32 [R][cols].

    `chains`: f32 [16][R][cols], scratch. Blocks are visited in their natural order, each added to its chain in memory.
    """
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vi, vf = Vec(I32, L), Vec(F32, L)
    n_acc = R * C

    def int_tile(e: Emitter, codes, code_stride, scales, scale_stride, x, out, chains, n_blocks):
        b = e.b
        row_codes = [e.at(codes, b.mul(code_stride, const(I64, r))) for r in range(R)]
        row_scales = [e.at(scales, b.mul(scale_stride, const(I64, r))) for r in range(R)]
        chains = e.ptr(chains)
        # short rows leave chains empty: they are neither cleared nor added, which changes no bit (x + 0 = x)
        short = b.icmp_signed("<", n_blocks, const(I64, 16))
        n_chains = b.select(short, n_blocks, const(I64, 16))

        def clear(c, _):
            for k in range(n_acc):
                e.store(const(vf, 0.0), e.at(chains, b.mul(c, const(I64, 4 * L * n_acc))), 4 * L * k, 32)

        e.loop(n_chains, clear)
        block_bytes = (how.steps + 2) * 4 * tile.cols
        acc_type = Vec(I16, 2 * L) if how.name == "ub" else vi

        def block(i, _):
            xb = e.at(x, b.mul(i, const(I64, block_bytes)))
            o = b.mul(i, const(I64, 32 * how.code_bytes))
            rows = [e.at(p, o) for p in row_codes]

            def step(s, acc):
                acc = list(acc)
                xp = e.at(xb, b.mul(s, const(I64, 4 * tile.cols)))
                o = b.shl(s, const(I64, 2))
                for u in range(UNROLL):
                    xs = [e.load(vi, xp, (u * C + j) * 4 * L, 32) for j in range(C)]
                    for r in range(R):
                        w = e.splat(e.load(I32, e.at(rows[r], o), 4 * u), L)
                        for j in range(C):
                            acc[r * C + j] = _dot(e, how, acc[r * C + j], w, xs[j])
                return acc

            # a loop, not 16 steps in a row: LLVM's scheduler would mix them and spill the accumulators
            begin = [const(acc_type, 0)] * n_acc
            if how.name == "ub":
                starts = [e.load(acc_type, xb, ((how.steps + 1) * C + j) * 4 * L, 32) for j in range(C)]
                begin = [starts[k % C] for k in range(n_acc)]
            acc = e.loop(how.steps, step, begin, step=UNROLL)
            d = [e.load(vf, xb, (how.steps * C + j) * 4 * L, 32) for j in range(C)]
            corrected = how.bias and how.name != "ub"
            sums = [e.load(vi, xb, ((how.steps + 1) * C + j) * 4 * L, 32) for j in range(C)] if corrected else []
            bias = [b.mul(v, const(vi, how.bias)) for v in sums]
            slot = e.at(chains, b.mul(b.and_(i, const(I64, 15)), const(I64, 4 * L * n_acc)))
            for r in range(R):
                scale = e.splat(e.load(F32, row_scales[r], b.shl(i, const(I64, 2))), L)
                for j in range(C):
                    k = r * C + j
                    isum = acc[k]
                    if how.name == "ub":
                        isum = e.call("llvm.x86.avx2.pmadd.wd", vi, isum, const(acc_type, 1))
                    if corrected:
                        isum = b.sub(isum, bias[j])
                    old = e.load(vf, slot, 4 * L * k, 32)
                    e.store(e.fma(e.to_f32(isum), b.fmul(scale, d[j]), old), slot, 4 * L * k, 32)

        e.loop(n_blocks, block)

        def total(k, _):
            o = b.mul(k, const(I64, 4 * L))
            e.store(e.chain_total([e.load(vf, e.at(chains, 4 * L * n_acc * c), o, 32) for c in range(16)]), out, o, 32)

        def short_total(k, _):
            o = b.mul(k, const(I64, 4 * L))
            total = const(vf, 0.0)
            for i in range(4):

                def quarter(c, q, o=o):
                    return [b.fadd(q[0], e.load(vf, e.at(chains, b.mul(c, const(I64, 4 * L * n_acc))), o, 32))]

                (q,) = e.loop(n_chains, quarter, [const(vf, 0.0)], start=i, step=4)
                total = b.fadd(total, q)
            e.store(total, out, o, 32)

        with b.if_else(short) as (then, otherwise):
            with then:
                e.loop(n_acc, short_total)
            with otherwise:
                e.loop(n_acc, total)

    return emit("i64,i64,i64,i64,i64,i64,i64,i64->void", isa)(int_tile)


def make_float_tile(tile: Tile, isa: ISA | None = None):
    """As make_int_tile for f32 rows that lie chain after chain (element k at (k % 16) * (K / 16) + k / 16)."""
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vf = Vec(F32, L)
    n_acc = R * C

    def float_tile(e: Emitter, w, w_stride, _s, _ss, x, out, part, per_chain):
        b = e.b
        rows = [e.at(w, b.mul(w_stride, const(I64, r))) for r in range(R)]
        out, part = e.ptr(out), e.ptr(part)
        zero = const(vf, 0.0)
        for k in range(n_acc):
            e.store(zero, out, 4 * L * k, 32)

        def quarter(i, _):
            for k in range(n_acc):
                e.store(zero, part, 4 * L * k, 32)

            def chain(q, _):
                first = b.mul(b.add(i, b.shl(q, const(I64, 2))), per_chain)

                def step(p, acc):
                    acc = list(acc)
                    xp = e.at(x, b.mul(p, const(I64, 4 * tile.cols)))
                    o = b.shl(p, const(I64, 2))
                    xs = [e.load(vf, xp, 4 * L * j, 32) for j in range(C)]
                    for r in range(R):
                        value = e.splat(e.load(F32, rows[r], o), L)
                        for j in range(C):
                            acc[r * C + j] = e.fma(value, xs[j], acc[r * C + j])
                    return acc

                acc = e.loop(b.add(first, per_chain), step, [zero] * n_acc, start=first)
                for k in range(n_acc):
                    e.store(b.fadd(e.load(vf, part, 4 * L * k, 32), acc[k]), part, 4 * L * k, 32)

            e.loop(4, chain)
            for k in range(n_acc):
                o = 4 * L * k
                e.store(b.fadd(e.load(vf, out, o, 32), e.load(vf, part, o, 32)), out, o, 32)

        e.loop(4, quarter)

    return emit("i64,i64,i64,i64,i64,i64,i64,i64->void", isa)(float_tile)


def make_int_unpack(kind: GGMLType, how: Scheme):
    """A row of blocks -> codes (u8 or s16) and f32 scales."""
    block = INT_BLOCKS[kind]

    def int_unpack(e: Emitter, source, codes, scales, n_blocks):
        b = e.b

        def one(i, _):
            p = e.at(source, b.mul(i, const(I64, block.nbytes)))
            e.prefetch(p, 4096)
            q = block.load(e, p)
            if how.name == "s16":
                q = b.zext(q, Vec(I16, 32)) if block.bias else b.sext(q, Vec(I16, 32))
                if block.bias:
                    q = b.sub(q, const(Vec(I16, 32), block.bias))
            elif how.bias != block.bias:
                q = b.xor(q, const(Vec(I8, 32), -128))
            e.store(q, codes, b.mul(i, const(I64, 32 * how.code_bytes)))
            e.store(e.half(e.load(I16, p)), scales, b.shl(i, const(I64, 2)))

        e.loop(n_blocks, one)

    return emit("i64,i64,i64,i64->void")(int_unpack)


def make_float_unpack(kind: GGMLType):
    """n elements (a multiple of 16) of a row -> f32, chain after chain."""
    block = FLOAT_BLOCKS[kind]

    def float_unpack(e: Emitter, source, out, K):
        b = e.b
        per_chain_bytes = b.shl(b.lshr(K, const(I64, 4)), const(I64, 2))

        def transposed(vectors: list[Value], turn: Value) -> None:
            """8 vectors of 16 elements, of turns turn..turn+7, to 16 chains."""
            for h in (0, 8):
                for j, v in enumerate(e.transpose8([e.part(v, h, 8) for v in vectors])):
                    e.store(v, out, b.add(b.mul(per_chain_bytes, const(I64, h + j)), b.shl(turn, const(I64, 2))))

        def four_blocks(i, _):
            p = e.at(source, b.mul(i, const(I64, 4 * block.nbytes)))
            for line in range(0, 4 * block.nbytes, 64):
                e.prefetch(p, 4096 + line)
            vectors: list[Value] = []
            for k in range(4):
                vectors += block.load(e, e.at(p, k * block.nbytes))
            transposed(vectors, b.shl(i, const(I64, 3)))

        quads = b.lshr(K, const(I64, 7))
        e.loop(quads, four_blocks)
        buffer = e.stack(F32, 32)

        def scatter(first_turn: Value, n: int) -> None:
            for k in range(n):
                chain = b.mul(per_chain_bytes, const(I64, k % 16))
                turn = b.shl(b.add(first_turn, const(I64, k // 16)), const(I64, 2))
                e.store(e.load(F32, buffer, 4 * k), out, b.add(chain, turn))

        def one_block(i, _):
            low, high = block.load(e, e.at(source, b.mul(i, const(I64, block.nbytes))))
            e.store(low, buffer)
            e.store(high, buffer, 64)
            scatter(b.shl(i, const(I64, 1)), 32)

        blocks = b.lshr(K, const(I64, 5))
        e.loop(blocks, one_block, start=b.shl(quads, const(I64, 2)))
        if TRAIT_ONE[kind]:
            size = block.nbytes // 32

            def element(k, _):
                raw = e.load({2: I16, 4: F32}[size], source, b.mul(k, const(I64, size)))
                if kind == GGMLType.F16:
                    raw = e.half(raw)
                elif kind == GGMLType.BF16:
                    raw = b.bitcast(b.shl(b.zext(raw, I32), const(I32, 16)), F32)
                turn = b.shl(b.lshr(k, const(I64, 4)), const(I64, 2))
                e.store(raw, out, b.add(b.mul(per_chain_bytes, b.and_(k, const(I64, 15))), turn))

            e.loop(K, element, start=b.shl(blocks, const(I64, 5)))

    return emit("i64,i64,i64->void")(float_unpack)


TRAIT_ONE = {kind: kind in (GGMLType.F32, GGMLType.F16, GGMLType.BF16) for kind in FLOAT_BLOCKS}


@emit("i64,i64,i64,i64->void")
def _store8(e, source, line, y, ldy):
    """8 rows x 8 columns of the tile's output, transposed to 8 rows of y."""
    b = e.b
    vectors = [e.load(V8F, source, b.mul(line, const(I64, r))) for r in range(8)]
    for j, v in enumerate(e.transpose8(vectors)):
        e.store(v, y, b.mul(ldy, const(I64, j)))


@device
def _store_tile(out, cols, y, ldy, n_rows, n_cols):
    """out f32 [row][cols] -> y[column][row], only what exists."""
    line = 4 * cols
    for r in range(0, n_rows, 8):
        for c in range(0, n_cols, 8):
            if r + 8 <= n_rows and c + 8 <= n_cols:
                _store8(out + r * line + 4 * c, line, y + c * ldy + 4 * r, ldy)
            else:
                for j in range(c, min(c + 8, n_cols)):
                    for i in range(r, min(r + 8, n_rows)):
                        stf(y + j * ldy + 4 * i, ldf(out + i * line + 4 * j))


def tile_piece(codes, code_stride, scales, scale_stride, x, out, chains, n):  # these are replaced in every variant
    raise NotImplementedError


def unpack_piece(source, codes, scales, n):
    raise NotImplementedError


CODE_BYTES = COLS = TILE_ROWS = 1


@kernel
def gemm_int(a, tid, nth):
    """Op record: gemv.py. Scratch: codes [rows][K], scales [rows][K/32], out [rows][cols], chains [16][R][cols]."""
    w, stride, x, x_stride, y, ldy = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    N, K, counter, groups, expert_stride = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10)
    scratch, rows = arg(a, 11) + tid * arg(a, 12), arg(a, 13)
    n_blocks = K // 32
    codes = scratch
    scales = codes + rows * K * CODE_BYTES
    out = scales + (rows * n_blocks * 4 + 63) // 64 * 64
    chains = out + rows * COLS * 4
    n_chunks = (N + rows - 1) // rows
    total = ldi(groups) * n_chunks
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        group = groups + 8 + i // n_chunks * 24
        r0 = i % n_chunks * rows
        n_rows = min(rows, N - r0)
        first, n_cols = ldi(group + 8), ldi(group + 16)
        source = w + ldi(group) * expert_stride + r0 * stride
        for r in range(n_rows):
            unpack_piece(source + r * stride, codes + r * K * CODE_BYTES, scales + r * n_blocks * 4, n_blocks)
        for c in range(0, n_cols, COLS):
            tile = x + (first + c) // COLS * x_stride
            for r in range(0, n_rows, TILE_ROWS):
                tile_piece(
                    codes + r * K * CODE_BYTES, K * CODE_BYTES, scales + r * n_blocks * 4, n_blocks * 4,
                    tile, out + r * COLS * 4, chains, n_blocks,
                )  # fmt: skip
            _store_tile(out, COLS, y + (first + c) * ldy + r0 * 4, ldy, n_rows, min(COLS, n_cols - c))


@kernel
def gemm_float(a, tid, nth):
    """Op record: gemv.py. Scratch: f32 [rows][K], out [rows][cols], part [R][cols]."""
    w, stride, x, x_stride, y, ldy = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    N, K, counter, groups, expert_stride = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10)
    scratch, rows = arg(a, 11) + tid * arg(a, 12), arg(a, 13)
    values = scratch
    out = values + rows * K * 4
    part = out + rows * COLS * 4
    n_chunks = (N + rows - 1) // rows
    total = ldi(groups) * n_chunks
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        group = groups + 8 + i // n_chunks * 24
        r0 = i % n_chunks * rows
        n_rows = min(rows, N - r0)
        first, n_cols = ldi(group + 8), ldi(group + 16)
        source = w + ldi(group) * expert_stride + r0 * stride
        for r in range(n_rows):
            unpack_piece(source + r * stride, values + r * K * 4, K)
        for c in range(0, n_cols, COLS):
            tile = x + (first + c) // COLS * x_stride
            for r in range(0, n_rows, TILE_ROWS):
                tile_piece(values + r * K * 4, K * 4, 0, 0, tile, out + r * COLS * 4, part, K // 16)
            _store_tile(out, COLS, y + (first + c) * ldy + r0 * 4, ldy, n_rows, min(COLS, n_cols - c))


def scratch_bytes(kind: GGMLType, tile: Tile, K: int, rows: int, *, integer: bool, isa: ISA) -> int:
    """Scratch that one thread needs (a multiple of 64)."""
    body = rows * K * scheme(kind, isa).code_bytes + rows * K // 32 * 4 + 64 if integer else rows * K * 4
    size = body + rows * tile.cols * 4 + (16 if integer else 1) * tile.rows * tile.cols * 4
    return (size + 4096 + 63) // 64 * 64


def make_gemm(kind: GGMLType, tile: Tile, *, integer: bool, isa: ISA | None = None) -> Kernel:
    """The kernel for one weight type and one register tile."""
    isa = isa or host()
    name = f"gemm_{'int' if integer else 'float'}_{kind.name.lower()}_{tile.cols}{'' if isa is host() else isa.name}"
    if not integer:
        return variant(
            gemm_float,
            name,
            tile_piece=make_float_tile(tile, isa),
            unpack_piece=make_float_unpack(kind),
            COLS=tile.cols,
            TILE_ROWS=tile.rows,
        )
    how = scheme(kind, isa)
    return variant(
        gemm_int,
        name,
        tile_piece=make_int_tile(how, tile, isa),
        unpack_piece=make_int_unpack(kind, how),
        COLS=tile.cols,
        TILE_ROWS=tile.rows,
        CODE_BYTES=how.code_bytes,
    )
