"""Integer products of a row with one column in registers of 512 bits: two groups of 32 weights side by side.

The sums, and the order in which they are added to the chains, are those of row_products.py.
"""

from ...quant.ggml.types import GGMLType
from .emit import I8, I16, I32, I64, Emitter, Value, Vec, const
from .row_products import RowProducts
from .weights import INT_BLOCKS, PAIRS, Groups, numbers_of_pairs

V8I, V16I, V32I16, V64I8 = Vec(I32, 8), Vec(I32, 16), Vec(I16, 32), Vec(I8, 64)
INT16 = (1 << 15) - 1
# shuffles within every 128 bits of two vectors of 16 lanes
_FIRST_TWO = [q + i for q in range(0, 16, 4) for i in (0, 16, 1, 17)]
_LAST_TWO = [q + i for q in range(0, 16, 4) for i in (2, 18, 3, 19)]
_FIRST_PAIR = [q + i for q in range(0, 16, 4) for i in (0, 1, 16, 17)]
_LAST_PAIR = [q + i for q in range(0, 16, 4) for i in (2, 3, 18, 19)]
_EVEN = [q + i for q in range(0, 16, 4) for i in (0, 2, 16, 18)]
_ODD = [q + i for q in range(0, 16, 4) for i in (1, 3, 17, 19)]


class WideProducts(RowProducts):
    """RowProducts for 16 lanes: a group's 32 products are two quads of a register, eight groups are four registers."""

    def __init__(self, e: Emitter, kind: GGMLType, K: Value) -> None:
        super().__init__(e, INT_BLOCKS[kind], K)
        self.kind = kind
        self.bias = 128 if self.block.signed else self.block.bias or 0
        self._largest = 255 if self.block.signed else self.block.largest + self.bias

    def unpack(self, row: Value, first: Value) -> Groups:
        """Eight groups of a row; codes are four times <64 x i8> (weights/pairs.py)."""
        e, p = self.e, self._at(row, first)
        g = numbers_of_pairs(e, self.block, p, super().unpack(row, first))
        return Groups(PAIRS[self.kind](e, p), g.scale, g.mins, g.subs)

    def isums(self, g: Groups, x: Value, first: Value) -> Value:
        """<8 x i32>: the integer sums of eight groups, beginning with group `first` of the column; biases included."""
        e, b = self.e, self.e.b
        xq = e.at(x, b.shl(first, const(I64, 5)))
        dots = [self.dot(codes, e.load(V64I8, xq, 64 * k), const(V16I, 0)) for k, codes in enumerate(g.codes)]
        pairs = [self._first_merge(dots[k], dots[k + 1]) for k in (0, 2)]
        # quad h: of every register the sum over half h % 2 of its group h // 2
        halves = self._second_merge(*pairs)
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
        """Per quad: two sums that a has to give, two of c."""
        if self._fit_in_16_bits(4):
            return self._add_words(a, c)
        # a0 + a2, c0 + c2, a1 + a3, c1 + c3
        return self.e.b.add(self.e.shuffle(a, _FIRST_TWO, c), self.e.shuffle(a, _LAST_TWO, c))

    def _second_merge(self, a: Value, c: Value) -> Value:
        """Per quad: the totals of the two vectors in a, then of the two in c."""
        e, b = self.e, self.e.b
        if self._fit_in_16_bits(8):
            return self._add_words(a, c)
        first, last = (_EVEN, _ODD) if self._fit_in_16_bits(4) else (_FIRST_PAIR, _LAST_PAIR)
        return b.add(e.shuffle(a, first, c), e.shuffle(a, last, c))

    def _fit_in_16_bits(self, n: int) -> bool:
        return self.e.isa.dot == "vnni" and n * 127 * self._largest <= INT16

    def _add_words(self, a: Value, c: Value) -> Value:
        """Neighbours of a and of c added, per quad, through 16 bits."""
        e = self.e
        words = e.call("llvm.x86.avx512.packssdw.512", V32I16, a, c)
        return e.call("llvm.x86.avx512.pmaddw.d.512", V16I, words, const(V32I16, 1))
