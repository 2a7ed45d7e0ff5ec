"""Integer products of a row of blocks with packed columns, eight groups of 32 weights at a time.

Shared by gemv.py (one column) and gemv_columns.py (several); for the order of accumulation see gemv.py.
"""

from collections.abc import Callable

from ..emit.emitter import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, const
from ..emit.isa import prefetch_ahead
from ..weights import Groups, IntBlock, eight_groups, one_block, signed

V4I, V8I, V8F = Vec(I32, 4), Vec(I32, 8), Vec(F32, 8)
V32I8, V16I16 = Vec(I8, 32), Vec(I16, 16)
SMALL = 16  # signed codes up to this magnitude may be made unsigned by adding it

Rest = Callable[[Value, Value, Value, list[Value]], list[Value]]


class GroupProducts:
    """Exact integer products of groups of 32 codes with 32 s8 of x, as vectors of partial sums.

    `partial` gives per group a vector whose elements add up to the sum over code * sub * x, where codes include `bias`;
    the caller subtracts `bias` times the sub-weighted sum of x for all groups together. The vector is <8 x i32>; not
    yet multiplied with sub, it is <4 x i32> on NEON and <16 x i16> where x86 multiplies bytes. `sums` adds the latter
    as i16 as long as the results fit, so that few vectors must be widened or multiplied.
    """

    def __init__(self, e: Emitter, block: IntBlock) -> None:
        self.e, self.block = e, block
        self.vnni = e.isa.dot.startswith("vnni") and not block.subs
        # x86 multiplies u8 with s8: signed codes become unsigned by adding `added`, or move their signs to x
        self.added = 0
        if block.signed and self.vnni:
            self.added = 128
        elif block.signed and e.isa.dot in ("avx2", "vnni") and block.largest <= SMALL:
            self.added = SMALL
        self.moves_signs = block.signed and not self.added and e.isa.dot in ("avx2", "vnni")
        self.bias = self.added + (block.bias or 0)
        self.fitting = (1 << 15) // (127 * (block.largest + self.bias))  # number of products whose sum fits an i16

    def partial(self, codes: Value, x: Value, subs: Value | None, group: int, signs: Value | None = None) -> Value:
        """Partial sums of a group. codes, signs, subs: of the group, see Groups; `group`: its index in subs."""
        e, b, block = self.e, self.e.b, self.block
        if self.moves_signs:
            # |w| <= 128 and |x| <= 127: a pair of products is at most 32512, so vpmaddubsw does not saturate
            x = signed(e, x, codes if signs is None else signs)
            codes = e.call("llvm.abs.v32i8", V32I8, codes, const(I1, 0)) if signs is None else codes
            return e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, codes, x)
        if signs is not None:
            codes = signed(e, codes, signs)
        if self.added:
            codes = b.add(codes, const(V32I8, self.added - 256 if self.added > 127 else self.added))
        if self.vnni and e.isa.dot == "vnni":
            # LLVM has one name for AVX-VNNI's and AVX-512's instruction
            return e.call("llvm.x86.avx512.vpdpbusd.256", V8I, const(V8I, 0), codes, x)
        if e.isa.dot in ("avx2", "vnni"):
            return e.call("llvm.x86.avx2.pmadd.ub.sw", V16I16, codes, x)
        if e.isa.dot.startswith("neon"):
            return self._sdot(codes, x)
        wide = b.sext(codes, Vec(I32, 32)) if block.signed and not self.added else b.zext(codes, Vec(I32, 32))
        products = b.mul(wide, b.sext(x, Vec(I32, 32)))
        if subs is not None:
            factors = e.shuffle(subs, [2 * group] * 16 + [2 * group + 1] * 16)
            products = b.mul(products, b.sext(factors, Vec(I32, 32)))
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

    def sums(self, partials: list[Value], subs: Value | None) -> Value:
        """8 vectors of partial sums -> <8 x i32> with the sum of each."""
        e, b = self.e, self.e.b
        if partials[0].type == V4I:
            parts = [e.add_neighbours(partials[i], partials[i + 1]) for i in range(0, 8, 2)]
            if subs is not None:  # 16 sums in the order of the 16 factors: no lane must be repeated
                wide = b.sext(subs, Vec(I32, 16))
                parts = [b.mul(v, e.part(wide, 4 * k, 4)) for k, v in enumerate(parts)]
            return e.cat(e.add_neighbours(parts[0], parts[1]), e.add_neighbours(parts[2], parts[3]))

        def add(a: Value, c: Value) -> Value:
            return b.bitcast(b.add(b.bitcast(a, kind), b.bitcast(c, kind)), V8I)

        kind, rows = partials[0].type, [b.bitcast(v, V8I) for v in partials]
        # groups: for each register, the groups of the dwords in its two halves
        for step, groups in enumerate(([[k] * 4 for k in range(8)], [[k, k + 1] * 2 for k in range(0, 8, 2)])):
            if kind == V16I16 and 4 << step > self.fitting:
                factors = [self._factors(subs, [2 * g + half for half in (0, 1) for g in of]) for of in groups]
                rows, kind = [pair_sums(e, b.bitcast(v, kind), f) for v, f in zip(rows, factors, strict=True)], V8I
            rows = e.merged(rows, step, add)
        halves = list(e.lower_upper(*rows))
        if kind == V16I16 and (subs is not None or self.fitting < 16):
            factors = [self._factors(subs, list(range(half, 16, 2))) for half in (0, 1)]
            halves = [pair_sums(e, b.bitcast(v, kind), f) for v, f in zip(halves, factors, strict=True)]
            kind = V8I
        return widened(e, b.bitcast(add(*halves), kind))

    def _factors(self, subs: Value | None, numbers: list[int]) -> Value:
        """<16 x i16>: the subs of these indices, each twice, or 1 without subs."""
        return const(V16I16, 1) if subs is None else self.e.shuffle(subs, [n for n in numbers for _ in range(2)])

    def sum_of_one(self, partial: Value) -> Value:
        return self.e.halving_sum(widened(self.e, partial))


def widened(e: Emitter, sums: Value) -> Value:
    """i16 sums -> i32 sums of neighbours; i32 sums unchanged."""
    return pair_sums(e, sums, const(V16I16, 1)) if sums.type == V16I16 else sums


def pair_sums(e: Emitter, a: Value, c: Value) -> Value:
    """<16 x i16> times <16 x i16>, neighbours added: <8 x i32>."""
    if e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.pmadd.wd", V8I, a, c)
    wide = Vec(I32, 16)
    products = e.b.mul(e.b.sext(a, wide), e.b.sext(c, wide))
    return e.b.add(e.shuffle(products, list(range(0, 16, 2))), e.shuffle(products, list(range(1, 16, 2))))


class RowProducts:
    """Rows of K weights of a type times packed columns: s8 q[K], f32 d[K/32], i16 sums of q [K/16].

    Chains are lists of <8 x f32>, one lane per group of a turn: [products] or, with minima, [products, minima].
    """

    def __init__(self, e: Emitter, block: IntBlock, K: Value) -> None:
        self.e, self.block, self.K = e, block, K
        self.products = GroupProducts(e, block)
        self.bias = self.products.bias  # included in the codes of `isums`
        self.ahead: Value = const(I64, prefetch_ahead())  # prefetch distance in bytes
        self.n_groups = e.b.lshr(K, const(I64, 5))
        self.n_chains = 1 + (block.n_min > 0)

    def at(self, row: Value, group: Value) -> Value:
        """Address of the block that begins with this group."""
        b, shift = self.e.b, self.block.groups.bit_length() - 1
        return self.e.at(row, b.mul(b.lshr(group, const(I64, shift)), const(I64, self.block.nbytes)))

    def scales_and_sums(self, x: Value) -> tuple[Value, Value]:
        """(address of a column's d, address of its sums of q)."""
        x_d = self.e.at(x, self.K)
        return x_d, self.e.at(x_d, self.e.b.shl(self.n_groups, const(I64, 2)))

    def unpack(self, row: Value, first: Value) -> Groups:
        """Unpack eight groups of a row from group `first` on."""
        q = self.at(row, first)
        for line in range(0, 8 // self.block.groups * self.block.nbytes, 64):
            self.e.prefetch(self.e.at(q, self.ahead), line, self.e.isa.near)
        return eight_groups(self.e, self.block, q)

    def isums(self, g: Groups, x: Value, first: Value, last: Value | None = None) -> Value:
        """<8 x i32>: the integer sums of eight groups, from group `first` of the column on; bias included.

        last: index (0 to 7) of the last group that the column has; it is read in place of later ones. None: 7.
        """
        e = self.e
        places = self._places(8, last, 5)
        xq = e.at(x, e.b.shl(first, const(I64, 5)))
        signs = g.signs or [None] * 8
        partials = [
            self.products.partial(c, e.load(V32I8, xq, place), g.subs, k, sign)
            for k, (c, sign, place) in enumerate(zip(g.codes, signs, places, strict=True))
        ]
        return self.products.sums(partials, g.subs)

    def _places(self, n: int, last: Value | None, shift: int) -> list[Value | int]:
        """Byte offsets of n parts of 2^shift bytes; those after `last` get the offset of `last`."""
        if last is None:
            return [k << shift for k in range(n)]
        e = self.e
        return [e.b.shl(e.intr("smin", const(I64, k), last), const(I64, shift)) for k in range(n)]

    def add(
        self, g: Groups, isum: Value, bias: int, x: Value, first: Value, chains: list[Value], left: Value | None = None
    ) -> list[Value]:
        """Add eight groups to their chains. `bias`: the bias of the codes in `isum`.

        left: how many of the groups exist; the others add +0. None: all.
        """
        e, b = self.e, self.e.b
        x_d, x_sum = self.scales_and_sums(x)
        o = b.shl(first, const(I64, 2))
        x_sums = e.load(V16I16, x_sum, o) if bias or self.block.n_min else None
        if bias:
            taken = pair_sums(e, x_sums, const(V16I16, 1) if g.subs is None else g.subs)
            isum = b.sub(isum, b.mul(taken, const(V8I, bias)))
        dx = e.load(V8F, x_d, o)

        def there(v: Value) -> Value:
            if left is None:
                return v
            lanes = b.icmp_signed("<", const(V8I, list(range(8))), e.splat(b.trunc(left, I32), 8))
            return b.select(lanes, v, const(v.type, 0))

        chains = list(chains)
        chains[0] = e.fma(there(e.to_f32(isum)), there(b.fmul(g.scale, dx)), chains[0])
        for m, part in zip(g.mins, _sums_of(e, x_sums, self.block.n_min), strict=True):
            chains[1] = e.fma(there(b.fneg(m)), there(b.fmul(e.to_f32(part), dx)), chains[1])
        return chains

    def rest(self, row: Value, x: Value, begin: Value, chains: list[Value], following: Value) -> list[Value]:
        """`add_rest`, but with eight groups at once if they can be read; `following`: number of rows after this one.

        A column's bytes are a multiple of 64 (program/products.py); with 1 or 3 groups left, reading the sums of eight
        would exceed them. With 256-bit registers this is slower than one group after the other.
        """
        e, b = self.e, self.e.b
        left = b.sub(self.n_groups, begin)
        readable = b.icmp_signed(">=", b.add(left, b.mul(following, self.n_groups)), const(I64, 8))
        at_once = b.and_(b.lshr(const(I64, 0b11110100), left), b.zext(readable, I64))

        def eight(_i: Value, chains: list[Value]) -> list[Value]:
            g = self.unpack(row, begin)
            isum = self.isums(g, x, begin, b.sub(left, const(I64, 1)))
            return self.add(g, isum, self.bias, x, begin, chains, left)

        chains = e.loop(at_once, eight, chains)
        return e.loop(b.xor(at_once, const(I64, 1)), lambda _i, c: self.add_rest(row, x, begin, c), chains)

    def add_rest(self, row: Value, x: Value, begin: Value, chains: list[Value]) -> list[Value]:
        """Add the row's last groups, fewer than eight, from `begin` on; lanes without a group add +0."""
        e, b, block = self.e, self.e.b, self.block
        assert block.weights < 256, "rows are whole blocks"
        x_d, x_sum = self.scales_and_sums(x)
        ints, scales, minima, moments = e.stack(V8I), e.stack(V8F), e.stack(V8F), e.stack(V8F)
        e.store(const(V8I, 0), ints)
        for slot in (scales, minima, moments):
            e.store(const(V8F, 0.0), slot)

        def one(k, _):
            codes, d, mins = one_block(e, block, self.at(row, b.add(begin, k)))
            for j, c in enumerate(codes):
                group(b.add(k, const(I64, j)), c, d, mins)

        def group(k: Value, codes: Value, d: Value, mins: list[Value]) -> None:
            """Store the sum, scale and minimum terms of group begin + k in lane k."""
            i = b.add(begin, k)
            o, lane = b.shl(i, const(I64, 2)), b.shl(k, const(I64, 2))
            partial = self.products.partial(codes, e.load(V32I8, x, b.shl(i, const(I64, 5))), None, 0)
            isum = self.products.sum_of_one(partial)
            first, second = (b.sext(e.load(I16, x_sum, b.add(o, const(I64, half))), I32) for half in (0, 2))
            total = b.add(first, second)
            if self.products.bias:
                isum = b.sub(isum, b.mul(total, const(I32, self.products.bias)))
            dx = e.load(F32, x_d, o)
            e.store(isum, ints, lane)
            e.store(b.fmul(d, dx), scales, lane)
            for m in mins:
                e.store(b.fneg(m), minima, lane)
                e.store(b.fmul(e.to_f32(total), dx), moments, lane)

        e.loop(b.sub(self.n_groups, begin), one, step=block.groups)
        added = [e.fma(e.to_f32(e.load(V8I, ints)), e.load(V8F, scales), chains[0])]
        if block.n_min:
            added.append(e.fma(e.load(V8F, minima), e.load(V8F, moments), chains[1]))
        return added

    def finish(self, row: Value, x: Value, turns: Value, following: list[Value], others: list[Value]) -> Value:
        """Add the row's groups after `turns` times eight; returns its product. `following`: the next turn's chains;
        `others`: the other ones."""
        e, b = self.e, self.e.b
        if self.block.weights < 256:
            begin = b.shl(turns, const(I64, 3))
            left = b.zext(b.icmp_signed(">", self.n_groups, begin), I64)
            following = e.loop(left, lambda _i, c: self.add_rest(row, x, begin, c), following)
        a, c = (v[0] if len(v) == 1 else b.fadd(v[0], v[1]) for v in (following, others))
        odd = b.trunc(turns, I1)
        return e.chain_total_lanes(e.cat(b.select(odd, c, a), b.select(odd, a, c)))


def totals_of(rows: RowProducts, row: Value, columns: list[Value]) -> list[Value]:
    """The products of a row with columns; the row is unpacked once for all."""
    e, b, n = rows.e, rows.e.b, rows.n_chains
    turns = b.lshr(rows.n_groups, const(I64, 3))

    def of(k: int, chains: list[Value]) -> tuple[list[Value], list[Value]]:
        """Chains of column k: (of the next turn, the others)."""
        return chains[2 * n * k :][:n], chains[2 * n * k + n :][:n]

    def eight(i: Value, chains: list[Value]) -> list[Value]:
        first = b.shl(i, const(I64, 3))
        g, out = rows.unpack(row, first), []
        for k, x in enumerate(columns):
            here, others = of(k, chains)
            out += [*others, *rows.add(g, rows.isums(g, x, first), rows.bias, x, first, here)]
        return out

    chains = e.loop(turns, eight, [const(V8F, 0.0)] * (2 * n * len(columns)))
    return [rows.finish(row, x, turns, *of(k, chains)) for k, x in enumerate(columns)]


def _sums_of(e: Emitter, x_sums: Value, n_min: int) -> list[Value]:
    """The sums of q for each of n_min minima of 8 groups: over whole groups, or over their halves."""
    if n_min == 0:
        return []
    if n_min == 1:
        return [pair_sums(e, x_sums, const(V16I16, 1))]
    return list(e.even_odd(x_sums))
