"""Integer products of a row with one column in 512-bit registers: two groups of 32 weights side by side, sixteen groups
at a time.

The sums, and the order in which chains add them, are as in row_products.py.
"""

from collections.abc import Callable
from itertools import product

from hybrid.quant.ggml.types import GGMLType

from ..emit.emitter import F32, I1, I8, I16, I32, I64, Emitter, Value, Vec, const
from ..weights import INT_BLOCKS, PAIRS, Groups, bias_of, by_qwords, numbers_of_pairs, sixteen_groups
from .row_products import Rest, RowProducts

V8I, V16I, V32I16, V64I8 = Vec(I32, 8), Vec(I32, 16), Vec(I16, 32), Vec(I8, 64)
V16F = Vec(F32, 16)
INT16 = (1 << 15) - 1
# shuffles within every 128 bits of two vectors of 16 lanes
_FIRST_TWO = [q + i for q in range(0, 16, 4) for i in (0, 16, 1, 17)]
_LAST_TWO = [q + i for q in range(0, 16, 4) for i in (2, 18, 3, 19)]
_FIRST_PAIR = [q + i for q in range(0, 16, 4) for i in (0, 1, 16, 17)]
_LAST_PAIR = [q + i for q in range(0, 16, 4) for i in (2, 3, 18, 19)]
_EVEN = [q + i for q in range(0, 16, 4) for i in (0, 2, 16, 18)]
_ODD = [q + i for q in range(0, 16, 4) for i in (1, 3, 17, 19)]


class WideProducts(RowProducts):
    """RowProducts for 16 lanes: the sums of a group are two quads of a register, eight groups are four registers."""

    def __init__(self, e: Emitter, kind: GGMLType, K: Value) -> None:
        super().__init__(e, INT_BLOCKS[kind], K)
        self.kind = kind
        self.bias = bias_of(self.block)
        self._largest = min(255, self.block.largest + self.bias)
        self.by_qwords = by_qwords(kind, e.isa)

    def unpack(self, row: Value, first: Value) -> Groups:
        """Unpack eight groups of a row; codes 4 x <64 x i8> (weights/pairs.py)."""
        e, p = self.e, self.at(row, first)
        g = numbers_of_pairs(e, self.block, p, super().unpack(row, first))
        return Groups(PAIRS[self.kind](e, p), g.scale, g.mins, g.subs)

    def sixteen(self, row: Value, first: Value) -> Groups:
        """Unpack sixteen groups of a row (weights/sixteen.py)."""
        return sixteen_groups(self.e, self.kind, self.block, self.at(row, first))

    def read_soon(self, p: Value, n: int = 1) -> None:
        """Prefetch n times sixteen groups, `ahead` bytes after p."""
        e, there = self.e, self.e.at(p, self.ahead)
        for line in range(0, n * 16 // self.block.groups * self.block.nbytes, 64):
            e.prefetch(there, line, e.isa.near)

    def row(
        self, row: Value, x: Value, turns: Value, eight: Callable[[Value, list[Value]], list[Value]], rest: Rest
    ) -> Value:
        """The product of a row of `turns` times eight groups plus fewer than eight. `eight` adds a turn's groups to the
        first half of its chains, <8 x f32>, and returns the second half first; `rest` adds the last groups."""
        e, b, n = self.e, self.e.b, self.n_chains
        n_sixteens, odd = b.lshr(turns, const(I64, 1)), b.and_(turns, const(I64, 1))
        chains = e.loop(
            n_sixteens, lambda i, c: self._sixteen(row, x, b.shl(i, const(I64, 4)), c), [const(V16F, 0.0)] * n
        )

        def last(_i: Value, chains: list[Value]) -> list[Value]:
            new = eight(b.shl(n_sixteens, const(I64, 1)), [e.part(v, k, 8) for k in (0, 8) for v in chains])
            return [e.cat(new[n + k], new[k]) for k in range(n)]

        def last_groups(_i: Value, chains: list[Value]) -> list[Value]:
            low, high = ([e.part(v, k, 8) for v in chains] for k in (0, 8))
            is_high = b.trunc(odd, I1)
            following = [b.select(is_high, c, a) for a, c in zip(low, high, strict=True)]
            new = rest(row, x, b.shl(turns, const(I64, 3)), following)
            return [
                e.cat(b.select(is_high, a, v), b.select(is_high, v, c)) for a, c, v in zip(low, high, new, strict=True)
            ]

        chains = e.loop(odd, last, chains)
        if self.block.weights < 256:
            left = b.icmp_signed(">", self.n_groups, b.shl(turns, const(I64, 3)))
            chains = e.loop(b.zext(left, I64), last_groups, chains)
        return e.chain_total_lanes(chains[0] if n == 1 else b.fadd(chains[0], chains[1]))

    def _sixteen(self, row: Value, x: Value, first: Value, chains: list[Value]) -> list[Value]:
        """Add sixteen groups from `first` on to the chains, <16 x f32>: of products and, if any, of minima."""
        e, b = self.e, self.e.b
        self.read_soon(self.at(row, first))
        xq, g = e.at(x, b.shl(first, const(I64, 5))), self.sixteen(row, first)
        dots: list[Value] = []
        for k, codes in enumerate(g.codes):
            total = dots.pop() if self.by_qwords and k % 4 else const(V16I, 0)
            dots.append(self.dot(codes, e.load(V64I8, xq, 64 * k), total))
        x_d, x_sum = self.scales_and_sums(x)
        o = b.shl(first, const(I64, 2))
        x_sums, dx = e.load(V32I16, x_sum, o), e.load(V16F, x_d, o)
        isum = self._sums_of_sixteen(dots, g.subs, x_sums)
        chains = list(chains)
        chains[0] = e.fma(e.to_f32(isum), b.fmul(g.scale, dx), chains[0])
        for m, part in zip(g.mins, self.sums_of_x(x_sums, len(g.mins)), strict=True):
            chains[1] = e.fma(b.fneg(m), b.fmul(e.to_f32(part), dx), chains[1])
        return chains

    def _sums_of_sixteen(self, dots: list[Value], subs: Value | None, x_sums: Value) -> Value:
        """<16 x i32>: the integer sums of sixteen groups, bias subtracted; `dots`: their products, two groups per
        vector, or two sums of each of eight groups (`by_qwords`)."""
        e, b = self.e, self.e.b
        if self.by_qwords:
            assert subs is None and self.bias
            isum = b.add(*(e.shuffle(dots[0], list(range(h, 32, 2)), dots[1]) for h in (0, 1)))
            return b.sub(isum, b.mul(self.added_pairs(x_sums, const(V32I16, 1)), const(V16I, self.bias)))
        once = [self._first_merge(dots[k], dots[k + 1]) for k in range(0, 8, 2)]
        # in each eight, quad h, lane k: half h % 2 of group 2 k + h // 2
        twice = [self._second_merge(once[k], once[k + 1]) for k in (0, 2)]
        if subs is not None and self._fit_in_16_bits(16):
            words = e.call("llvm.x86.avx512.packssdw.512", V32I16, *twice)
            words = e.shuffle(
                words, [8 * (2 * (g % 2) + h) + 4 * n + g // 2 for n, g, h in product((0, 1), range(8), (0, 1))]
            )
            if self.bias:
                words = b.sub(words, b.mul(x_sums, const(V32I16, self.bias)))
            return self.added_pairs(words, subs)
        places = [16 * n + 8 * (g % 2) + g // 2 for n, g in product((0, 1), range(8))]
        halves = [e.shuffle(twice[0], [place + 4 * h for place in places], twice[1]) for h in (0, 1)]
        if subs is not None:
            halves = [b.mul(half, factors) for half, factors in zip(halves, self._even_and_odd(subs), strict=True)]
        isum = b.add(*halves)
        if self.bias:
            taken = self.added_pairs(x_sums, const(V32I16, 1) if subs is None else subs)
            isum = b.sub(isum, b.mul(taken, const(V16I, self.bias)))
        return isum

    def sums_of_x(self, x_sums: Value, n_min: int) -> list[Value]:
        """The sums of x for each of n_min minima: over whole groups, or over their halves."""
        return self._even_and_odd(x_sums) if n_min == 2 else [self.added_pairs(x_sums, const(V32I16, 1))] * n_min

    def _even_and_odd(self, v: Value) -> list[Value]:
        """<32 x i16> -> the even lanes, the odd lanes, each <16 x i32>."""
        b, shift = self.e.b, const(V16I, 16)
        wide = b.bitcast(v, V16I)
        return [b.ashr(b.shl(wide, shift), shift), b.ashr(wide, shift)]

    def added_pairs(self, a: Value, c: Value) -> Value:
        """<32 x i16> times <32 x i16>, neighbours added."""
        e, b = self.e, self.e.b
        if e.isa.dot == "vnni":
            return e.call("llvm.x86.avx512.pmaddw.d.512", V16I, a, c)
        products = b.mul(b.sext(a, Vec(I32, 32)), b.sext(c, Vec(I32, 32)))
        return b.add(*(e.shuffle(products, list(range(h, 32, 2))) for h in (0, 1)))

    def isums(self, g: Groups, x: Value, first: Value, last: Value | None = None) -> Value:
        e, b = self.e, self.e.b
        xq = e.at(x, b.shl(first, const(I64, 5)))
        places = self._places(4, last and b.lshr(last, const(I64, 1)), 6)
        dots = [
            self.dot(codes, e.load(V64I8, xq, place), const(V16I, 0))
            for codes, place in zip(g.codes, places, strict=True)
        ]
        once = [self._first_merge(dots[k], dots[k + 1]) for k in (0, 2)]
        # quad h, lane k: the sum over half h % 2 of group h // 2 of register k
        halves = self._second_merge(*once)
        if g.subs is not None:
            factors = e.shuffle(g.subs, [4 * k + h for h in range(4) for k in range(4)])
            halves = b.mul(halves, b.sext(factors, V16I))
        order = [(h, k) for k in range(4) for h in (0, 2)]
        even, odd = ([4 * (h + i) + k for h, k in order] for i in (0, 1))
        return b.add(e.shuffle(halves, even), e.shuffle(halves, odd))

    def dot(self, codes: Value, x: Value, total: Value) -> Value:
        """<16 x i32>: total plus the sums of four products of u8 and s8."""
        e, b = self.e, self.e.b
        if e.isa.dot == "vnni":
            return e.call("llvm.x86.avx512.vpdpbusd.512", V16I, total, codes, x)
        wide = Vec(I32, 64)
        products = b.mul(b.zext(codes, wide), b.sext(x, wide))
        for k in range(4):
            total = b.add(total, e.shuffle(products, list(range(k, 64, 4))))
        return total

    def _first_merge(self, a: Value, c: Value) -> Value:
        """Per quad: two partial sums of a, two of c (in an order that `_second_merge` knows)."""
        if self._fit_in_16_bits(4):
            return self._add_words(a, c)
        # a0 + a2, c0 + c2, a1 + a3, c1 + c3
        return self.e.b.add(self.e.shuffle(a, _FIRST_TWO, c), self.e.shuffle(a, _LAST_TWO, c))

    def _second_merge(self, a: Value, c: Value) -> Value:
        """Per quad: the totals of the two vectors merged in a, then of the two merged in c."""
        e, b = self.e, self.e.b
        if self._fit_in_16_bits(8):
            return self._add_words(a, c)
        first, last = (_EVEN, _ODD) if self._fit_in_16_bits(4) else (_FIRST_PAIR, _LAST_PAIR)
        return b.add(e.shuffle(a, first, c), e.shuffle(a, last, c))

    def _fit_in_16_bits(self, n: int) -> bool:
        return self.e.isa.dot == "vnni" and n * 127 * self._largest <= INT16

    def _add_words(self, a: Value, c: Value) -> Value:
        """Neighbours of a, then of c, added within each quad; the inputs must fit 16 bits."""
        e = self.e
        words = e.call("llvm.x86.avx512.packssdw.512", V32I16, a, c)
        return e.call("llvm.x86.avx512.pmaddw.d.512", V16I, words, const(V32I16, 1))
