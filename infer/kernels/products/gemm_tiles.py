"""Register tiles of the products with many columns: integer tiles (see gemm_schemes.py) and float tiles."""

from collections.abc import Callable

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import ISA
from .gemm_schemes import QUAD, WORDS, Scheme, Tile


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


_TILE_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64,i64->void"


class _Block:
    """A block of 32 of all rows and columns of a tile: addresses, loads and products."""

    def __init__(self, e: Emitter, how: Scheme, tile: Tile, x: Value, rows: list[Value]) -> None:
        self.e, self.how, self.tile, self.x, self.rows = e, how, tile, x, rows

    def moved(self, offset: Value) -> "_Block":
        """The block with its columns' address moved by `offset` bytes; the rows are the same."""
        return _Block(self.e, self.how, self.tile, self.e.at(self.x, offset), self.rows)

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
            return [_add_pairs(self.e, p) for p in self.pair_sums(half)]
        ty = Vec(I32, self.tile.lanes)
        sums = self.line(ty, 2 if half == 1 else 1)
        return [self.e.b.sub(u, v) for u, v in zip(sums, self.line(ty, 2), strict=True)] if half == 0 else sums

    def number(self, r: int, place: int, kind=F32) -> Value:
        """Number `place` after the codes of row r, in all lanes."""
        number = self.e.load(kind, self.rows[r], self.how.weights * self.how.code_bytes + 4 * place)
        return self.e.splat(number, self.tile.lanes)

    # --- integer sums ---
    def begin(self, half: int | None, n_rows: int) -> list[Value]:
        """Start values of the sums of products: -base times the sums of x."""
        e, base = self.e, self.how.base
        if self.how.name == "ub":
            ty = Vec(I16, 2 * self.tile.lanes)
            values = [e.b.mul(v, const(ty, -base)) for v in self.pair_sums(half)] if base else [const(ty, 0)]
        else:
            ty = Vec(I32, self.tile.lanes)
            values = [e.b.mul(v, const(ty, -base)) for v in self.sums(half)] if base else [const(ty, 0)]
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
            self._with_factors(some[k // self.tile.vectors], first, second)
            for k, (first, second) in enumerate(zip(*sums, strict=True))
        ]

    def _with_factors(self, r: int, first: Value, second: Value) -> Value:
        """first * its factor + second * its factor, for the sums of both halves of a block of row r; i32."""
        e, b = self.e, self.e.b
        if self.how.factors == 1:
            interleaved = b.or_(b.and_(first, const(first.type, 0xFFFF)), b.shl(second, const(first.type, 16)))
            ty = Vec(I16, 2 * self.tile.lanes)
            return _add_pairs(e, b.bitcast(interleaved, ty), b.bitcast(self.number(r, 1, I32), ty))
        factors = [self.number(r, 1 + h, I32) for h in (0, 1)]
        if self.how.name == "ub":
            return b.add(
                *(_add_pairs(e, v, b.bitcast(f, v.type)) for v, f in zip((first, second), factors, strict=True))
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


def _add_pairs(e: Emitter, v: Value, factors: Value | None = None) -> Value:
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


def make_int_tile(how: Scheme, tile: Tile, isa: ISA | None = None):
    """Piece for one chain of one register tile: q = before + the chain's products, f32 [R][cols].

    If `out` is not 0, the sum is added to `out` instead. `start` is unused: chains are whole, unlike in
    `make_float_tile`.

    `x`: the chain's blocks of a packed tile. `rows`: the first row's blocks, each 32 codes, f32 scale, factors
    (see Scheme), f32 -min[n_min]. The blocks of both are adjacent.
    """
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vf = Vec(F32, L)
    n_acc, n_min = R * C, how.n_min
    block_bytes = how.unit_bytes * tile.cols

    def int_tile(e: Emitter, rows, stride, x, length, _start, before, q, out):
        b = e.b
        begins = [e.at(rows, b.mul(stride, const(I64, r))) for r in range(R)]

        def block(i: Value) -> _Block:
            o = b.mul(i, const(I64, how.record))
            return _Block(e, how, tile, e.at(x, b.mul(i, const(I64, block_bytes))), [e.at(p, o) for p in begins])

        def minima(i, acc):
            here = block(i)
            d = here.scales()
            for m in range(n_min):
                moments = [b.fmul(e.to_f32(v), d[j]) for j, v in enumerate(here.sums(m if n_min == 2 else None))]
                for r in range(R):
                    value = here.number(r, 1 + how.factors + m)
                    acc[r * C : r * C + C] = [e.fma(value, moments[j], acc[r * C + j]) for j in range(C)]
            return acc

        chain = (_chain_in_registers if tile.in_registers else _chain_in_memory)(e, block, how, tile, length)
        taken = e.loop(length, minima, [const(vf, 0.0)] * n_acc) if n_min else []
        values = [b.fadd(chain(k), taken[k]) if n_min else chain(k) for k in range(n_acc)]
        _leave(e, values, before, q, out)

    return emit(_TILE_SIGNATURE, isa)(int_tile)


def _leave(e: Emitter, chain: list[Value], before: Value, q: Value, out: Value) -> None:
    """q = before + chain or, if `out` is not 0, out += before + chain; `before`: sums of the previous chains."""
    size = 4 * chain[0].type.count
    values = [e.b.fadd(e.load(v.type, before, size * k, 32), v) for k, v in enumerate(chain)]
    with e.b.if_else(e.b.icmp_signed("!=", out, const(I64, 0))) as (last, others):
        with last:
            for k, v in enumerate(values):
                e.store(e.b.fadd(e.load(v.type, out, size * k, 32), v), out, size * k, 32)
        with others:
            for k, v in enumerate(values):
                e.store(v, q, size * k, 32)


_BlockAt = Callable[[Value], _Block]


def _chain_in_registers(e: Emitter, block: _BlockAt, how: Scheme, tile: Tile, length: Value) -> Callable[[int], Value]:
    """The chain's sums, in registers beside the integer sums of a block.

    Nothing is stored meanwhile: on Zen 4 a cluster of stores delays instructions with three operands (vpdpbusd, fma).
    """
    C = tile.vectors

    def add(i, chain):
        here, chain = block(i), list(chain)
        d = here.scales()
        for some in here.halves_of_rows():
            # length >> 62 is 0, but LLVM does not know: it would keep the data that both parts read, and spill them
            part = here.moved(e.b.lshr(length, const(I64, 62))) if some[0] else here
            for k, isum in enumerate(part.products(some), some[0] * C):
                chain[k] = e.fma(e.to_f32(isum), e.b.fmul(here.number(k // C, 0), d[k % C]), chain[k])
        return chain

    sums = e.loop(length, add, [const(Vec(F32, tile.lanes), 0.0)] * (tile.rows * C))
    return lambda k: sums[k]


def _chain_in_memory(e: Emitter, block: _BlockAt, how: Scheme, tile: Tile, length: Value) -> Callable[[int], Value]:
    """The chain's sums, in memory, for tiles whose block sums need the registers."""
    b, R, C, L = e.b, tile.rows, tile.vectors, tile.lanes
    vi, vf = Vec(I32, L), Vec(F32, L)
    chain = e.stack(vf, R * C)
    for k in range(R * C):
        e.store(const(vf, 0.0), chain, 4 * L * k, 32)

    def products(here: _Block) -> list[Value]:
        if how.halves:
            return [isum for some in here.halves_of_rows() for isum in here.products(some)]
        # a loop, not 16 steps in a row: LLVM's scheduler would mix them and spill the accumulators. Where the steps are
        # few, their number is hidden, since LLVM would unroll them
        few = how.name == "sdot" or (how.name == "vnni" and C == 2)
        hidden = b.lshr(length, const(I64, 56)) if few else const(I64, 0)
        step = lambda s, acc: here.step(s, acc, range(R), how.unroll)
        return e.loop(b.add(hidden, const(I64, how.steps)), step, here.begin(None, R), step=how.unroll)

    def add(i, _):
        here = block(i)
        acc = products(here)
        d = here.scales()
        given = [b.mul(v, const(vi, how.restore)) for v in here.sums(None)] if how.restore else []
        # length >> 62 is 0, but LLVM does not know: it would keep the sums in registers, and spill them
        slot = e.at(chain, b.mul(i, b.lshr(length, const(I64, 62))))
        for r in range(R):
            scale = here.number(r, 0)
            for j in range(C):
                k = r * C + j
                isum = acc[k]
                if how.name == "ub" and not how.halves:
                    isum = _add_pairs(e, isum)
                if how.restore:
                    isum = b.add(isum, given[j])
                value = e.fma(e.to_f32(isum), b.fmul(scale, d[j]), e.load(vf, slot, 4 * L * k, 32))
                e.store(value, slot, 4 * L * k, 32)

    e.loop(length, add)
    return lambda k: e.load(vf, chain, 4 * L * k, 32)


def make_word_tile(tile: Tile, isa: ISA | None = None):
    """Piece for one block of words (see gemm_schemes.py): as `make_int_tile`, with chains of one block."""

    def word_tile(e: Emitter, rows, stride, x, _length, _start, before, q, out):
        R, C = range(tile.rows), tile.vectors
        here = _Block(e, WORDS, tile, x, [e.at(rows, e.b.mul(stride, const(I64, r))) for r in R])
        step = lambda s, acc: here.step(s, acc, R, WORDS.unroll)
        sums, d = e.loop(WORDS.steps, step, here.begin(None, tile.rows), step=WORDS.unroll), here.scales()
        scales = [here.number(r, 0) for r in R]
        values = [e.b.fmul(e.to_f32(v), e.b.fmul(scales[k // C], d[k % C])) for k, v in enumerate(sums)]
        _leave(e, values, before, q, out)

    return emit(_TILE_SIGNATURE, isa)(word_tile)


def make_float_tile(tile: Tile, isa: ISA | None = None, *, bf16_pairs: bool = False):
    """Piece for part of a chain: start [R][cols] + products of f32 (or pairs of BF16) of each row and column.

    If `before` is 0, the chain continues and the sums are stored in q; otherwise it ends, and the sums are stored or
    added as in `make_int_tile`.
    """
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vf = Vec(F32, L)
    n_acc = R * C

    def float_tile(e: Emitter, w, w_stride, x, length, start, before, q, out):
        b = e.b
        rows = [e.at(w, b.mul(w_stride, const(I64, r))) for r in range(R)]

        def step(p, acc, width=1):
            """Add the products of `width` elements, from element p on, of each row and column."""
            acc = list(acc)
            xp = e.at(x, b.mul(p, const(I64, 4 * tile.cols)))
            o = b.shl(p, const(I64, 2))
            weights = [e.load(F32 if width == 1 else Vec(F32, width), rows[r], o) for r in range(R)]
            for u in range(width):
                xs = [e.load(vf, xp, 4 * (tile.cols * u + L * j), 32) for j in range(C)]
                for r in range(R):
                    value = e.splat(weights[r], L) if width == 1 else e.shuffle(weights[r], [u] * L)
                    for j in range(C):
                        a = acc[r * C + j]
                        acc[r * C + j] = e.dot_pairs(a, xs[j], value) if bf16_pairs else e.fma(value, xs[j], a)
            return acc

        acc, first = [e.load(vf, start, 4 * L * k, 32) for k in range(n_acc)], const(I64, 0)
        if e.isa.dot.startswith("neon"):
            first = b.and_(length, const(I64, -QUAD))
            acc = e.loop(first, lambda p, acc: step(p, acc, QUAD), acc, step=QUAD)
        acc = e.loop(length, step, acc, start=first)
        with b.if_else(b.icmp_signed("!=", before, const(I64, 0))) as (ends, goes_on):
            with ends:
                _leave(e, acc, before, q, out)
            with goes_on:
                for k in range(n_acc):
                    e.store(acc[k], q, 4 * L * k, 32)

    return emit(_TILE_SIGNATURE, isa)(float_tile)
