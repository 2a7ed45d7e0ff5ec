"""A block of 32 weights in a register tile: loads, integer products and scales, for the methods of gemm_schemes.py."""

from collections.abc import Iterable

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const
from .gemm_schemes import OCTET, Scheme, Tile

_UNITS = 0x4B400000  # the bits of 3 * 2^22 in f32


def _dot(e: Emitter, how: Scheme, acc: Value, w: Value, x: Value) -> Value:
    """acc += products of one dword of codes per lane. acc: <2 lanes x i16> for `ub`, else <lanes x i32>."""
    b = e.b
    n = x.type.count
    if how.name == "vnni" and e.isa.dot == "vnni":
        bits = {16: 512, 8: 256}[n]
        bytes_ = Vec(I8, 4 * n)
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        return e.call(name, acc.type, acc, b.bitcast(w, bytes_), b.bitcast(x, bytes_))
    if how.name == "ub" and e.isa.dot == "avx2":
        sums_of_two = e.call(
            "llvm.x86.avx2.pmadd.ub.sw", Vec(I16, 16), b.bitcast(w, Vec(I8, 32)), b.bitcast(x, Vec(I8, 32))
        )
        return b.add(acc, sums_of_two)
    if how.code_bytes == 2 and e.isa.dot in ("avx2", "vnni"):
        words = Vec(I16, 2 * n)
        name = "llvm.x86.avx512.pmaddw.d.512" if n == 16 else "llvm.x86.avx2.pmadd.wd"
        return b.add(acc, e.call(name, acc.type, b.bitcast(w, words), b.bitcast(x, words)))
    if how.name == "sdot":
        byte = Vec(I8, 16)
        w, x = ([b.bitcast(e.part(v, k, 4), byte) for k in range(0, n, 4)] for v in (w, x))
        # in this order LLVM selects the form of sdot that multiplies with one dword of w
        sums = [e.sdot(e.part(acc, 4 * k, 4), v, u) for k, (u, v) in enumerate(zip(w, x, strict=True))]
        return sums[0] if n == 4 else e.cat(*sums)
    # any target: widen, multiply, add neighbours
    parts = 2 if how.code_bytes == 2 else 4
    narrow = Vec(I16 if parts == 2 else I8, parts * n)
    wide = Vec(I32, parts * n)
    left = b.sext(b.bitcast(w, narrow), wide) if parts == 2 else b.zext(b.bitcast(w, narrow), wide)
    products = b.mul(left, b.sext(b.bitcast(x, narrow), wide))
    for k in range(parts):
        acc = b.add(acc, e.shuffle(products, [parts * i + k for i in range(n)]))
    return acc


class TileBlock:
    """A block of 32 of all rows and columns of a tile: addresses, loads and products."""

    def __init__(self, e: Emitter, how: Scheme, tile: Tile, x: Value, rows: list[Value]) -> None:
        self.e, self.how, self.tile, self.x, self.rows = e, how, tile, x, rows

    def moved(self, offset: Value) -> "TileBlock":
        """The block with its columns' address moved by `offset` bytes; the rows are the same."""
        return TileBlock(self.e, self.how, self.tile, self.e.at(self.x, offset), self.rows)

    # --- numbers of columns and rows ---
    def line(self, ty: Value, k: int) -> list[Value]:
        """Line k after the codes of the columns, one vector per `tile.lanes` columns."""
        C, L = self.tile.vectors, self.tile.lanes
        return [self.e.load(ty, self.x, ((self.how.steps + k) * C + j) * 4 * L, 32) for j in range(C)]

    def scales(self) -> list[Value]:
        return self.line(Vec(F32, self.tile.lanes), 0)

    def pair_sums(self, half: int | None) -> list[Value]:
        """i16 `pair` sums (see pack.py) of x over half `half`, or over the block (None)."""
        ty = Vec(I16, 2 * self.tile.lanes)
        if half is not None:
            return self.line(ty, 1 + half)
        return [self.e.b.add(u, v) for u, v in zip(self.line(ty, 1), self.line(ty, 2), strict=True)]

    def sums(self, half: int | None) -> list[Value]:
        """i32 sums of x over half `half`, or over the block (None)."""
        if self.how.packing != "dots":
            return [add_pairs(self.e, p) for p in self.pair_sums(half)]
        ty = Vec(I32, self.tile.lanes)
        sums = self.line(ty, 2 if half == 1 else 1)
        return [self.e.b.sub(u, v) for u, v in zip(sums, self.line(ty, 2), strict=True)] if half == 0 else sums

    def number(self, r: int, place: int, kind=F32) -> Value:
        """Number `place` after the codes of row r, in all lanes."""
        number = self.e.load(kind, self.rows[r], self.how.weights * self.how.code_bytes + 4 * place)
        return self.e.splat(number, self.tile.lanes)

    # --- the order of the sums: sum k is of row k // vectors and vector k % vectors of the columns ---
    def scale_of_sum(self, k: int) -> Value:
        """The scales of its columns in the lanes of sum k."""
        C, L = self.tile.vectors, self.tile.lanes
        return self.e.load(Vec(F32, L), self.x, (self.how.steps * C + k % C) * 4 * L, 32)

    def number_of_sum(self, k: int, place: int, kind=F32) -> Value:
        """Number `place` of its row in every lane of sum k."""
        return self.number(k // self.tile.vectors, place, kind)

    def turns(self, sums: Iterable[int]) -> list[list[int]]:
        """The numbers of sums in the order in which they are multiplied with scales, a list together."""
        return [list(sums)]

    def by_rows(self, sums: list[Value]) -> list[Value]:
        """The sums with a row and vector of columns each."""
        return sums

    # --- integer sums ---
    @property
    def from_bits(self) -> bool:
        """Whether the sums are the bits of floats near 3 * 2^22, whose unit is 1: they fit 22 bits without factors.

        For arm64, where a conversion takes one of the pipelines twice, a subtraction any of them once.
        """
        return self.how.name in ("sdot", "smmla") and not self.how.halves

    def to_f32(self, isum: Value) -> Value:
        """A sum that began as in `begin`, in f32: exact either way."""
        if not self.from_bits:
            return self.e.to_f32(isum)
        ty = Vec(F32, self.tile.lanes)
        return self.e.b.fsub(self.e.b.bitcast(isum, ty), const(ty, 3.0 * 2**22))

    def begin(self, half: int | None, n_rows: int) -> list[Value]:
        """Start values of the sums of products: -base times the sums of x."""
        e, base = self.e, self.how.base
        if self.how.name == "ub":
            ty = Vec(I16, 2 * self.tile.lanes)
            values = [e.b.mul(v, const(ty, -base)) for v in self.pair_sums(half)] if base else [const(ty, 0)]
        else:
            ty = Vec(I32, self.tile.lanes)
            first = const(ty, _UNITS if self.from_bits else 0)
            values = [e.b.mul(v, const(ty, -base)) for v in self.sums(half)] if base else [first]
        return [values[k % len(values)] for k in range(n_rows * self.tile.vectors)]

    def step(self, s: Value, acc: list[Value], some: range, unroll: int) -> list[Value]:
        """Add `unroll` steps, from step s on, for some of the tile's rows."""
        e, b, tile = self.e, self.e.b, self.tile
        C, L = tile.vectors, tile.lanes
        ty, acc = Vec(I32, L), list(acc)
        x, o = e.at(self.x, b.mul(s, const(I64, 4 * tile.cols))), b.shl(s, const(I64, 2))
        quads = [e.load(Vec(I32, 4), e.at(self.rows[r], o)) for r in some] if self.how.name == "sdot" else []
        for u in range(unroll):
            xs = [e.load(ty, x, (u * C + j) * 4 * L, 32) for j in range(C)]
            for k, r in enumerate(some):
                if quads:
                    w = e.shuffle(quads[k], [u] * L)
                else:
                    w = e.splat(e.load(I32, e.at(self.rows[r], o), 4 * u), L)
                for j in range(C):
                    acc[k * C + j] = _dot(e, self.how, acc[k * C + j], w, xs[j])
        return acc

    def products(self, some: range) -> list[Value]:
        """Sums of products of some of the tile's rows, without a loop; each half multiplied with its factor, if any."""
        if not self.how.halves:
            return self._steps(range(self.how.steps), self.begin(None, len(some)), some)
        middle = self.how.steps // 2
        sums = [self._steps(range(h * middle, (h + 1) * middle), self.begin(h, len(some)), some) for h in (0, 1)]
        return [
            self._with_factors(k, first, second)
            for k, (first, second) in enumerate(zip(*sums, strict=True), some[0] * self.tile.vectors)
        ]

    def _with_factors(self, k: int, first: Value, second: Value) -> Value:
        """first * its factor + second * its factor, for the sums k of both halves of a block; i32."""
        e, b = self.e, self.e.b
        if self.how.factors == 1:
            interleaved = b.or_(b.and_(first, const(first.type, 0xFFFF)), b.shl(second, const(first.type, 16)))
            ty = Vec(I16, 2 * self.tile.lanes)
            return add_pairs(e, b.bitcast(interleaved, ty), b.bitcast(self.number_of_sum(k, 1, I32), ty))
        factors = [self.number_of_sum(k, 1 + h, I32) for h in (0, 1)]
        if self.how.name == "ub":
            return b.add(
                *(add_pairs(e, v, b.bitcast(f, v.type)) for v, f in zip((first, second), factors, strict=True))
            )
        return b.add(*(b.mul(v, f) for v, f in zip((first, second), factors, strict=True)))

    def _steps(self, steps: range, acc: list[Value], some: range) -> list[Value]:
        for s in steps[:: self.how.unroll]:
            acc = self.step(const(I64, s), acc, some, self.how.unroll)
        return acc

    def halves_of_rows(self) -> list[range]:
        """The tile's rows; with factors in two parts, so that all sums, also of half blocks, fit the registers."""
        R = self.tile.rows
        return [range(R // 2), range(R // 2, R)] if self.how.halves else [range(R)]


class PairedBlock(TileBlock):
    """A block whose rows and columns are interleaved in pairs, for smmla.

    Lanes of a sum: two rows with two columns, then with the next two. Of each pair of rows, the first row's place holds
    both rows' sums with columns 0 to 3 of each eight, the second row's place the sums with columns 4 to 7.
    """

    def number(self, r: int, place: int, kind=F32) -> Value:
        number = self.e.load(kind, self.rows[r], 2 * self.how.weights + 16 * place + r % 2 * 8)
        return self.e.splat(number, self.tile.lanes)

    def scale_of_sum(self, k: int) -> Value:
        C, L = self.tile.vectors, self.tile.lanes
        d = self.e.load(Vec(F32, 4), self.x, (self.how.steps * C + k % C) * 4 * L + k // C % 2 * 16, 16)
        return self.e.shuffle(d, [0, 1, 0, 1, 2, 3, 2, 3])

    def number_of_sum(self, k: int, place: int, kind=F32) -> Value:
        both = self.e.load(Vec(kind, 4), self.rows[k // self.tile.vectors], 2 * self.how.weights + 16 * place)
        return self.e.cat(both, both)

    def turns(self, sums: Iterable[int]) -> list[list[int]]:
        """Column by column, since the scales of all do not fit the registers beside the sums."""
        places = 2 * self.tile.vectors
        return [[k for k in sums if k % places == place] for place in range(places)]

    def by_rows(self, sums: list[Value]) -> list[Value]:
        C, of_row = self.tile.vectors, ([0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15])
        return [
            self.e.shuffle(sums[r * C + j], of_row[h], sums[(r + 1) * C + j])
            for r in range(0, self.tile.rows, 2)
            for h in (0, 1)
            for j in range(C)
        ]

    def step(self, s: Value, acc: list[Value], some: range, unroll: int) -> list[Value]:
        e, b, tile = self.e, self.e.b, self.tile
        C, byte, acc = tile.vectors, Vec(I8, 16), list(acc)
        x, o = e.at(self.x, b.mul(s, const(I64, 4 * tile.cols))), b.shl(s, const(I64, 3))
        for u in range(0, unroll, 2):
            ws = [e.load(byte, e.at(self.rows[r], o), OCTET * u) for r in some[::2]]
            for place in range(2 * C):
                xs = [e.load(byte, x, 4 * tile.lanes * (u * C + place) + 16 * half, 16) for half in (0, 1)]
                for pair, w in enumerate(ws):
                    k = pair * 2 * C + place
                    acc[k] = e.cat(*(e.smmla(e.part(acc[k], 4 * half, 4), w, v) for half, v in enumerate(xs)))
        return acc

    def halves_of_rows(self) -> list[range]:
        R = self.tile.rows
        return [range(r, r + 2) for r in range(0, R, 2)] if self.how.halves else [range(R)]


def add_pairs(e: Emitter, v: Value, factors: Value | None = None) -> Value:
    """<2 n x i16> times factors (None: 1) -> sums of neighbours, <n x i32>."""
    b, n = e.b, v.type.count // 2
    factors = const(v.type, 1) if factors is None else factors
    if n == 8 and e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.pmadd.wd", Vec(I32, n), v, factors)
    if n == 16 and e.isa.dot == "vnni":
        return e.call("llvm.x86.avx512.pmaddw.d.512", Vec(I32, n), v, factors)
    wide = Vec(I32, 2 * n)
    products = b.mul(b.sext(v, wide), b.sext(factors, wide))
    return b.add(e.shuffle(products, list(range(0, 2 * n, 2))), e.shuffle(products, list(range(1, 2 * n, 2))))
