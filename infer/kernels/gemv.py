"""Products with few columns (decoding): one weight row at a time, straight from the mapped file.

Order of accumulation (the same in gemm.py, so that prompt and decode agree to the bit). A row forms 16 chains: of its
blocks of 32 for integer products, of its single elements for float products; chain c takes units c, c + 16, c + 32...
and adds them one after the other, starting from +0. The 16 chains are added as `Emitter.chain_total` says.

    integer  chain += float(sum of 32 integer products) * (d_weight * d_x), one fma; the integer sum is exact
    float    chain += w * x, one fma

Op record of a product y = W x for every column of every group (see `groups` below):
     0 w         address of the first row of expert 0
     1 stride    bytes from row to row
     2 x         packed columns (pack.py)
     3 x_stride  bytes from column to column (GEMV) or from tile to tile (GEMM)
     4 y         f32 output, row of column 0
     5 ldy       bytes from column to column of y
     6 N         rows of W
     7 K         length of a row, a multiple of 32 (integer) or 16 (float)
     8 counter   i64, zero before the run: hands out chunks of rows
     9 groups    i64 [0] number of groups, then per group: expert, first column, number of columns
    10 expert_stride  bytes from expert to expert
    11 scratch, 12 scratch bytes per thread, 13 rows per chunk       (GEMM)
"""

from llvmlite import ir

from ...quant.ggml.types import GGMLType
from .emit import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, arg, atomic_add, const, emit, ldi
from .isa import ISA
from .jit import Kernel, kernel, variant
from .weights import FLOAT_BLOCKS, INT_BLOCKS, IntBlock

V8I, V8F = Vec(I32, 8), Vec(F32, 8)
V32I8, V16I16 = Vec(I8, 32), Vec(I16, 16)
PREFETCH = 4096  # bytes ahead, into the second-level cache
CHUNK_BYTES = 48 << 10  # of weights that a thread takes at a time
_GEMV_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64->void"


def dot_block(e: Emitter, kind: IntBlock, codes: Value, x: Value) -> tuple[Value, int]:
    """<32 x i8> codes times <32 x s8> x -> 8 partial sums (exact) and the bias that they still contain.

    The sums are i32; on AVX2, of codes below 16, they are 16 of i16: even a sum of half a block fits.
    """
    b = e.b
    bias = kind.bias
    if e.isa.dot.startswith("vnni") and not bias:
        codes, bias = b.xor(codes, const(V32I8, -128)), 128
    if e.isa.dot == "vnni":
        # LLVM knows AVX-VNNI's and AVX-512's instruction by one name
        return e.call("llvm.x86.avx512.vpdpbusd.256", V8I, const(V8I, 0), codes, x), bias
    if e.isa.dot == "avx2":
        if not kind.bias:
            # |w| <= 128 and |x| <= 127: a pair of products is at most 32512, so vpmaddubsw does not saturate
            x = e.call("llvm.x86.avx2.psign.b", V32I8, x, codes)
            codes = e.call("llvm.abs.v32i8", V32I8, codes, const(I1, 0))
        pairs = e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, codes, x)
        return (pairs if 0 < kind.bias <= 8 else _widened(e, pairs)), kind.bias
    wide = b.zext(codes, Vec(I32, 32)) if bias else b.sext(codes, Vec(I32, 32))
    products = b.mul(wide, b.sext(x, Vec(I32, 32)))
    total = e.part(products, 0, 8)
    for k in (8, 16, 24):
        total = b.add(total, e.part(products, k, 8))
    return total, bias


def _widened(e: Emitter, sums: Value) -> Value:
    """i16 sums -> i32 sums of neighbours; i32 sums as they are."""
    if sums.type != V16I16:
        return sums
    return e.call("llvm.x86.avx2.pmadd.wd", V8I, sums, const(V16I16, 1))


def block_sums(e: Emitter, d: list[Value]) -> Value:
    """8 vectors of partial sums (see dot_block) -> one vector with the sum of each."""
    kind = d[0].type
    d = [e.b.bitcast(v, V8I) for v in d]

    def add(a: Value, c: Value) -> Value:
        return e.b.bitcast(e.b.add(e.b.bitcast(a, kind), e.b.bitcast(c, kind)), V8I)

    def pair(a: Value, c: Value) -> Value:
        even = e.shuffle(a, [0, 2, 8, 10, 4, 6, 12, 14], c)
        odd = e.shuffle(a, [1, 3, 9, 11, 5, 7, 13, 15], c)
        return add(even, odd)

    one = [pair(d[i], d[i + 1]) for i in range(0, 8, 2)]
    two = [pair(one[0], one[1]), pair(one[2], one[3])]
    lower = e.shuffle(two[0], [0, 1, 2, 3, 8, 9, 10, 11], two[1])
    upper = e.shuffle(two[0], [4, 5, 6, 7, 12, 13, 14, 15], two[1])
    return _widened(e, e.b.bitcast(add(lower, upper), kind))


def make_int_gemv(kind: GGMLType, isa: ISA | None = None):
    """rows r0..r1 of one column. x record: s8 q[K], f32 d[K/32], i32 sum of q per block [K/32]."""
    block = INT_BLOCKS[kind]

    def int_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        b = e.b
        n_blocks = b.lshr(K, const(I64, 5))
        n_groups = b.lshr(n_blocks, const(I64, 4))
        x_d = e.at(x, K)
        x_sum = e.at(x_d, b.shl(n_blocks, const(I64, 2)))
        ints, scales = e.stack(V8I), e.stack(V8F)

        def term(isum: Value, bias: int, sums: Value, dw: Value, dx: Value, chain: Value) -> Value:
            if bias:
                isum = b.sub(isum, b.mul(sums, const(sums.type, bias)))
            return e.fma(e.to_f32(isum), b.fmul(dw, dx), chain)

        def row(r, _):
            p = e.at(w, b.mul(r, stride))

            def eight(first: Value, chain: Value) -> Value:
                q = e.at(p, b.mul(first, const(I64, block.nbytes)))
                xq = e.at(x, b.shl(first, const(I64, 5)))
                halves = ir.Constant(Vec(I16, 8), ir.Undefined)
                sums, bias = [], 0
                for k in range(8):
                    if k * block.nbytes % 64 < block.nbytes:
                        e.prefetch(q, PREFETCH + k * block.nbytes, 2)
                    at = e.at(q, k * block.nbytes)
                    partial, bias = dot_block(e, block, block.load(e, at), e.load(V32I8, xq, 32 * k))
                    sums.append(partial)
                    halves = b.insert_element(halves, e.load(I16, at), const(I32, k))
                o = b.shl(first, const(I64, 2))
                return term(
                    block_sums(e, sums), bias, e.load(V8I, x_sum, o), e.half(halves), e.load(V8F, x_d, o), chain
                )

            def sixteen(i, chains):
                first = b.shl(i, const(I64, 4))
                return [eight(first, chains[0]), eight(b.add(first, const(I64, 8)), chains[1])]

            low, high = e.loop(n_groups, sixteen, [const(V8F, 0.0)] * 2)
            first = b.shl(n_groups, const(I64, 4))

            def some(begin: Value, chain: Value) -> Value:
                """Up to 8 blocks from `begin`, as many as the row has; lanes without a block add +0."""
                count = b.sub(n_blocks, begin)
                short = b.icmp_signed("<", count, const(I64, 8))
                count = b.select(short, count, const(I64, 8))
                e.store(const(V8I, 0), ints)
                e.store(const(V8F, 0.0), scales)

                def one(k, _):
                    i = b.add(begin, k)
                    at = e.at(p, b.mul(i, const(I64, block.nbytes)))
                    partial, bias = dot_block(e, block, block.load(e, at), e.load(V32I8, x, b.shl(i, const(I64, 5))))
                    isum = e.halving_sum(_widened(e, partial))
                    o = b.shl(i, const(I64, 2))
                    if bias:
                        isum = b.sub(isum, b.mul(e.load(I32, x_sum, o), const(I32, bias)))
                    lane = b.shl(k, const(I64, 2))
                    e.store(isum, ints, lane)
                    e.store(b.fmul(e.half(e.load(I16, at)), e.load(F32, x_d, o)), scales, lane)

                e.loop(count, one)
                return e.fma(e.to_f32(e.load(V8I, ints)), e.load(V8F, scales), chain)

            (low,) = e.loop(b.zext(b.icmp_signed(">", n_blocks, first), I64), lambda _i, c: [some(first, c[0])], [low])
            first = b.add(first, const(I64, 8))
            (high,) = e.loop(
                b.zext(b.icmp_signed(">", n_blocks, first), I64), lambda _i, c: [some(first, c[0])], [high]
            )
            e.store(e.chain_total_lanes(e.cat(low, high)), y, b.shl(r, const(I64, 2)))

        e.loop(r1, row, start=r0)

    return emit(_GEMV_SIGNATURE, isa)(int_gemv)


def make_float_gemv(kind: GGMLType):
    """rows r0..r1 of one column of f32 x[K]; K a multiple of 16 (of 32 for block types)."""
    block = FLOAT_BLOCKS[kind]
    half = block.nbytes // 2  # bytes of 16 weights; only plain float types have rows of 16

    def float_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        b = e.b
        n_blocks = b.lshr(K, const(I64, 5))
        has_half = b.and_(b.lshr(K, const(I64, 4)), const(I64, 1))

        def row(r, _):
            p = e.at(w, b.mul(r, stride))

            def block32(i, chain):
                q = e.at(p, b.mul(i, const(I64, block.nbytes)))
                xq = e.at(x, b.shl(i, const(I64, 7)))
                for line in range(0, block.nbytes, 64):
                    e.prefetch(q, PREFETCH + line, 2)
                low, high = block.load(e, q)
                acc = e.fma(low, e.load(Vec(F32, 16), xq), chain[0])
                return [e.fma(high, e.load(Vec(F32, 16), xq, 64), acc)]

            (chain,) = e.loop(n_blocks, block32, [const(Vec(F32, 16), 0.0)])
            if kind in _PLAIN:

                def block16(_i, chain):
                    q = e.at(p, b.mul(n_blocks, const(I64, block.nbytes)))
                    xq = e.at(x, b.shl(n_blocks, const(I64, 7)))
                    return [e.fma(_PLAIN[kind](e, q, half), e.load(Vec(F32, 16), xq), chain[0])]

                (chain,) = e.loop(has_half, block16, [chain])
            e.store(e.chain_total_lanes(chain), y, b.shl(r, const(I64, 2)))

        e.loop(r1, row, start=r0)

    return emit(_GEMV_SIGNATURE)(float_gemv)


_PLAIN = {
    GGMLType.F32: lambda e, p, _n: e.load(Vec(F32, 16), p),
    GGMLType.F16: lambda e, p, _n: e.half(e.load(Vec(I16, 16), p)),
    GGMLType.BF16: lambda e, p, _n: e.bfloat(e.load(Vec(I16, 16), p)),
}


def piece(w, stride, x, y, r0, r1, K):  # replaced in every variant
    raise NotImplementedError


@kernel
def gemv(a, tid, nth):
    """Chunks of rows; within a chunk the columns one after the other, so that the rows come from the cache."""
    w, stride, x, x_stride, y, ldy = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    N, K, counter, groups, expert_stride = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10)
    # a few microseconds of work: nobody waits long for the last chunk, and a core that is taken away costs its share
    chunk = max(4, CHUNK_BYTES // stride)
    n_chunks = (N + chunk - 1) // chunk
    total = ldi(groups) * n_chunks
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        group = groups + 8 + i // n_chunks * 24
        r0 = i % n_chunks * chunk
        r1 = min(N, r0 + chunk)
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
