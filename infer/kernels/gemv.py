"""Products with few columns (decoding): one weight row at a time, straight from the mapped file.

Order of accumulation (the same in gemm.py, so that prompt and decode agree to the bit). A row forms 16 chains: of its
blocks of 32 for integer products, of its single elements for float products; chain c takes units c, c + 16, c + 32...
and adds them one after the other, starting from +0. The 16 chains are added as `Emitter.chain_total` says.

    integer  chain += float(sum of 32 integer products) * (scale * d_x), one fma; the integer sum is exact and contains
             the factors of 16 weights that some types have (`sub`). What minima take off has chains of its own,
             chain += -min * (float(sum of the 32 or 16 x) * d_x), which are added to the others at the end
    float    chain += w * x, one fma
    pairs    (BF16 weights where the processor has vdpbf16ps) a unit is two elements, whose products are added to the
             chain, see `Emitter.dot_pairs`; x is rounded to BF16

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

from ...quant.ggml.types import GGMLType
from .emit import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, arg, atomic_add, const, emit, ldi
from .isa import ISA
from .jit import Kernel, kernel, variant
from .weights import FLOAT_BLOCKS, INT_BLOCKS, LOAD16, IntBlock, eight_groups, one_block

V4I, V8I, V8F = Vec(I32, 4), Vec(I32, 8), Vec(F32, 8)
V32I8, V16I16 = Vec(I8, 32), Vec(I16, 16)
PREFETCH = 4096  # bytes ahead, into the second-level cache
MOST_BYTES, LEAST_BYTES = 192 << 10, 16 << 10  # of weights that a thread takes at a time
_GEMV_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64->void"


class GroupProducts:
    """Exact integer products of groups of 32 codes with 32 s8 of x, as vectors of partial sums.

    `partial` gives per group a <8 x i32> (NEON: <4 x i32>, still without sub) whose lanes add up to the sum over
    (code - `bias`) * sub * x, up to `bias` times the sub-weighted sum of x, which the caller takes off for all groups
    together. On AVX2, small codes without subs stay 16 sums of i16: even a sum of all of them fits.
    """

    def __init__(self, e: Emitter, block: IntBlock) -> None:
        self.e, self.block = e, block
        dot = e.isa.dot
        self.vnni = dot.startswith("vnni") and not block.subs
        # x86 multiplies u8 with s8: VNNI makes signed codes unsigned by adding 128, maddubs moves their sign to x
        self.bias = 128 if self.vnni and block.signed else block.bias or 0
        self.narrow = dot == "avx2" and not block.subs and not block.signed and block.largest + self.bias <= 16

    def partial(self, codes: Value, x: Value, subs: Value | None, group: int) -> Value:
        e, b, block = self.e, self.e.b, self.block
        if self.vnni and block.signed:
            codes = b.xor(codes, const(V32I8, -128))
        if self.vnni and e.isa.dot == "vnni":
            # LLVM knows AVX-VNNI's and AVX-512's instruction by one name
            return e.call("llvm.x86.avx512.vpdpbusd.256", V8I, const(V8I, 0), codes, x)
        if e.isa.dot in ("avx2", "vnni"):
            if block.signed:
                # |w| <= 128 and |x| <= 127: a pair of products is at most 32512, so vpmaddubsw does not saturate
                x = e.call("llvm.x86.avx2.psign.b", V32I8, x, codes)
                codes = e.call("llvm.abs.v32i8", V32I8, codes, const(I1, 0))
            pairs = e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, codes, x)
            return pairs if self.narrow else widened(e, pairs, self._factors(subs, group))
        if e.isa.dot.startswith("neon"):
            return self._sdot(codes, x)
        signed = block.signed and not self.vnni
        wide = b.sext(codes, Vec(I32, 32)) if signed else b.zext(codes, Vec(I32, 32))
        products = b.mul(wide, b.sext(x, Vec(I32, 32)))
        if subs is not None:
            products = b.mul(products, b.sext(e.shuffle(subs, self._pattern(group, 16)), Vec(I32, 32)))
        total = e.part(products, 0, 8)
        for k in (8, 16, 24):
            total = b.add(total, e.part(products, k, 8))
        return total

    def _sdot(self, codes: Value, x: Value) -> Value:
        """<4 x i32>; with subs the first two lanes belong to the first half of the group, see `sums`."""
        e, total = self.e, const(V4I, 0)
        first, second = ((e.part(codes, k, 16), e.part(x, k, 16)) for k in (0, 16))
        if self.block.subs:
            return e.add_neighbours(e.sdot(total, *first), e.sdot(total, *second))
        return e.sdot(e.sdot(total, *first), *second)

    @staticmethod
    def _pattern(group: int, width: int) -> list[int]:
        return [2 * group] * width + [2 * group + 1] * width

    def _factors(self, subs: Value | None, group: int) -> Value:
        """<16 x i16> that the pairs of products of a group are multiplied by."""
        return const(V16I16, 1) if subs is None else self.e.shuffle(subs, self._pattern(group, 8))

    def sums(self, partials: list[Value], subs: Value | None) -> Value:
        """8 vectors of partial sums -> <8 x i32> with the sum of each."""
        e = self.e
        kind = partials[0].type
        if kind == V4I:
            parts = [e.add_neighbours(partials[i], partials[i + 1]) for i in range(0, 8, 2)]
            if subs is not None:  # here are 16 sums in the order of the 16 factors: no lane has to be repeated
                wide = e.b.sext(subs, Vec(I32, 16))
                parts = [e.b.mul(v, e.part(wide, 4 * k, 4)) for k, v in enumerate(parts)]
            return e.cat(e.add_neighbours(parts[0], parts[1]), e.add_neighbours(parts[2], parts[3]))
        d = [e.b.bitcast(v, V8I) for v in partials]

        def add(a: Value, c: Value) -> Value:
            return e.b.bitcast(e.b.add(e.b.bitcast(a, kind), e.b.bitcast(c, kind)), V8I)

        return widened(e, e.b.bitcast(add(*e.reduce8(d, add)), kind))

    def sum_of_one(self, partial: Value) -> Value:
        return self.e.halving_sum(widened(self.e, partial))


def widened(e: Emitter, sums: Value, factors: Value | None = None) -> Value:
    """i16 sums (times factors) -> i32 sums of neighbours; i32 sums as they are."""
    if sums.type != V16I16:
        return sums
    return pair_sums(e, sums, const(V16I16, 1) if factors is None else factors)


def pair_sums(e: Emitter, a: Value, c: Value) -> Value:
    """<16 x i16> times <16 x i16>, neighbours added: <8 x i32>."""
    if e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.pmadd.wd", V8I, a, c)
    wide = Vec(I32, 16)
    products = e.b.mul(e.b.sext(a, wide), e.b.sext(c, wide))
    return e.b.add(e.shuffle(products, list(range(0, 16, 2))), e.shuffle(products, list(range(1, 16, 2))))


def make_int_gemv(kind: GGMLType, isa: ISA | None = None):
    """rows r0..r1 of one column. x record: s8 q[K], f32 d[K/32], i16 sums of q [K/16]."""
    block = INT_BLOCKS[kind]

    def int_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        b = e.b
        products = GroupProducts(e, block)
        bias = products.bias
        n_groups = b.lshr(K, const(I64, 5))
        n_turns = b.lshr(n_groups, const(I64, 4))
        x_d = e.at(x, K)
        x_sum = e.at(x_d, b.shl(n_groups, const(I64, 2)))

        def at(p: Value, group: Value) -> Value:
            """Address of the block that begins with this group."""
            shift = block.groups.bit_length() - 1
            return e.at(p, b.mul(b.lshr(group, const(I64, shift)), const(I64, block.nbytes)))

        def eight(p: Value, first: Value, chains: list[Value]) -> list[Value]:
            """8 groups added to [chains] or [chains, what minima take off]."""
            q, xq, o = at(p, first), e.at(x, b.shl(first, const(I64, 5))), b.shl(first, const(I64, 2))
            for line in range(0, 8 // block.groups * block.nbytes, 64):
                e.prefetch(q, PREFETCH + line, 2)
            g = eight_groups(e, block, q)
            partials = [products.partial(c, e.load(V32I8, xq, 32 * k), g.subs, k) for k, c in enumerate(g.codes)]
            isum = products.sums(partials, g.subs)
            x_sums = e.load(V16I16, x_sum, o) if bias or block.n_min else None
            if bias:
                taken = pair_sums(e, x_sums, const(V16I16, 1) if g.subs is None else g.subs)
                isum = b.sub(isum, b.mul(taken, const(V8I, bias)))
            dx = e.load(V8F, x_d, o)
            chains = list(chains)
            chains[0] = e.fma(e.to_f32(isum), b.fmul(g.scale, dx), chains[0])
            for m, part in zip(g.mins, _sums_of(e, x_sums, block.n_min), strict=True):
                chains[1] = e.fma(b.fneg(m), b.fmul(e.to_f32(part), dx), chains[1])
            return chains

        def some(p: Value, begin: Value, chains: list[Value]) -> list[Value]:
            """Up to 8 groups from `begin`, as many as the row has; lanes without a group add +0."""
            if block.weights == 256:  # whole blocks: none or 8
                return eight(p, begin, chains)
            ints, scales, minima, moments = e.stack(V8I), e.stack(V8F), e.stack(V8F), e.stack(V8F)
            count = b.sub(n_groups, begin)
            short = b.icmp_signed("<", count, const(I64, 8))
            count = b.select(short, count, const(I64, 8))
            e.store(const(V8I, 0), ints)
            for slot in (scales, minima, moments):
                e.store(const(V8F, 0.0), slot)

            def one(k, _):
                codes, d, mins = one_block(e, block, at(p, b.add(begin, k)))
                for j, c in enumerate(codes):
                    group(b.add(k, const(I64, j)), c, d, mins)

            def group(k: Value, codes: Value, d: Value, mins: list[Value]) -> None:
                i = b.add(begin, k)
                o, lane = b.shl(i, const(I64, 2)), b.shl(k, const(I64, 2))
                partial = products.partial(codes, e.load(V32I8, x, b.shl(i, const(I64, 5))), None, 0)
                isum = products.sum_of_one(partial)
                first, second = (b.sext(e.load(I16, x_sum, b.add(o, const(I64, half))), I32) for half in (0, 2))
                total = b.add(first, second)
                if bias:
                    isum = b.sub(isum, b.mul(total, const(I32, bias)))
                dx = e.load(F32, x_d, o)
                e.store(isum, ints, lane)
                e.store(b.fmul(d, dx), scales, lane)
                for m in mins:
                    e.store(b.fneg(m), minima, lane)
                    e.store(b.fmul(e.to_f32(total), dx), moments, lane)

            e.loop(count, one, step=block.groups)
            added = [e.fma(e.to_f32(e.load(V8I, ints)), e.load(V8F, scales), chains[0])]
            if block.n_min:
                added.append(e.fma(e.load(V8F, minima), e.load(V8F, moments), chains[1]))
            return added

        def row(r, _):
            p = e.at(w, b.mul(r, stride))

            n = 1 + (block.n_min > 0)

            def sixteen(i, chains):
                first = b.shl(i, const(I64, 4))
                return [*eight(p, first, chains[:n]), *eight(p, b.add(first, const(I64, 8)), chains[n:])]

            chains = e.loop(n_turns, sixteen, [const(V8F, 0.0)] * (2 * n))
            halves = []
            for h in (0, 1):
                begin = b.add(b.shl(n_turns, const(I64, 4)), const(I64, 8 * h))
                left = b.zext(b.icmp_signed(">", n_groups, begin), I64)
                half = e.loop(left, lambda _i, c, at=begin: some(p, at, c), chains[h * n : h * n + n])
                halves.append(half[0] if n == 1 else b.fadd(half[0], half[1]))
            e.store(e.chain_total_lanes(e.cat(*halves)), y, b.shl(r, const(I64, 2)))

        e.loop(r1, row, start=r0)

    return emit(_GEMV_SIGNATURE, isa)(int_gemv)


def _sums_of(e: Emitter, x_sums: Value, n_min: int) -> list[Value]:
    """Sums of q that belong to the minima of 8 groups: of the whole groups, or of their two halves."""
    if n_min == 0:
        return []
    if n_min == 1:
        return [pair_sums(e, x_sums, const(V16I16, 1))]
    return [e.b.sext(e.shuffle(x_sums, list(range(h, 16, 2))), V8I) for h in (0, 1)]


def make_float_gemv(kind: GGMLType, isa: ISA | None = None, *, pairs: bool = False):
    """rows r0..r1 of one column of f32 x[K]; K a multiple of 16 (of the block for block types).

    pairs (kind F32): the elements of rows and columns are pairs of BF16, see `Emitter.dot_pairs`.
    """
    block = FLOAT_BLOCKS[kind]

    def float_gemv(e: Emitter, w, stride, x, y, r0, r1, K):
        b, multiply = e.b, _multiply_pairs if pairs else _multiply
        shift = const(I64, block.weights.bit_length() - 1)
        n_blocks = b.lshr(K, shift)
        has_half = b.and_(b.lshr(K, const(I64, 4)), const(I64, 1))

        def row(r, _):
            p = e.at(w, b.mul(r, stride))

            def whole(i, chain):
                q = e.at(p, b.mul(i, const(I64, block.nbytes)))
                xq = e.at(x, b.shl(b.shl(i, shift), const(I64, 2)))
                for line in range(0, block.nbytes, 64):
                    e.prefetch(q, PREFETCH + line, 2)
                acc = chain[0]
                for k, weights in enumerate(block.load(e, q)):
                    acc = multiply(e, weights, e.load(Vec(F32, 16), xq, 64 * k), acc)
                return [acc]

            (chain,) = e.loop(n_blocks, whole, [const(Vec(F32, 16), 0.0)])
            if kind in LOAD16:

                def half(_i, chain):
                    q = e.at(p, b.mul(n_blocks, const(I64, block.nbytes)))
                    xq = e.at(x, b.shl(n_blocks, const(I64, 7)))
                    return [multiply(e, LOAD16[kind](e, q), e.load(Vec(F32, 16), xq), chain[0])]

                (chain,) = e.loop(has_half, half, [chain])
            e.store(e.chain_total_lanes(chain), y, b.shl(r, const(I64, 2)))

        e.loop(r1, row, start=r0)

    return emit(_GEMV_SIGNATURE, isa)(float_gemv)


def _multiply(e: Emitter, w: Value, x: Value, acc: Value) -> Value:
    return e.fma(w, x, acc)


def _multiply_pairs(e: Emitter, w: Value, x: Value, acc: Value) -> Value:
    return e.dot_pairs(acc, w, x)


def piece(w, stride, x, y, r0, r1, K):  # replaced in every variant
    raise NotImplementedError


@kernel
def gemv(a, tid, nth):
    """Chunks of rows; within a chunk the columns one after the other, so that the rows come from the cache."""
    w, stride, x, x_stride, y, ldy = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    N, K, counter, groups, expert_stride = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10)
    # long runs of memory are read fastest, but nobody shall wait long for the last chunk
    share = ldi(groups) * N * stride // (8 * nth)
    chunk = max(4, min(max(share, LEAST_BYTES), MOST_BYTES) // stride)
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


def pairs_gemv(isa: ISA) -> Kernel:
    """BF16 weights times pairs of BF16; K of the op record counts pairs."""
    if isa not in _PAIRS_GEMV:
        piece = make_float_gemv(GGMLType.F32, isa, pairs=True)
        _PAIRS_GEMV[isa] = variant(gemv, f"gemv_pairs_{isa.name}", piece=piece)
    return _PAIRS_GEMV[isa]


_PAIRS_GEMV: dict[ISA, Kernel] = {}
