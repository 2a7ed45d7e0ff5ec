"""Register tiles of the products with many columns: how 8-bit products are done on each target, and their loops.

Stored codes c stand for weights c - base:
    vnni   u8 codes (signed ones plus 128) x s8, vpdpbusd
    ub     u8 codes x s8, vpmaddubsw summed in 16 bits over a block, or half of one (AVX2, codes of up to 6 bits). The
           sums start from minus base * x, so what is left at the end fits, and how it wraps on the way does not matter
    sdot   s8 codes with the bias taken off x s8, NEON's sdot
    s16    s16 codes x s16, vpmaddwd: AVX2's vpmaddubsw saturates with 8-bit codes, and this is as fast (AVX2, Q8_0);
           the integer factors of 16 weights (`sub`) are in the codes
Elsewhere those factors multiply the sums of half a block.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...quant.ggml.types import GGMLType
from .emit import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit
from .isa import ISA
from .pack import LINES
from .weights import INT_BLOCKS


@dataclass(frozen=True)
class Scheme:
    """How an integer product is done.

    steps       dwords of a block of 32
    code_bytes  bytes of a stored code
    add         stored code minus the type's code
    base        what stored codes have too much; taken off by starting the sums from -base * x
    restore     part of `base` that they do not have too much (it only keeps the sums in 16 bits) and is given back
    halves      sums of half a block are multiplied by the type's factors
    words       4-byte numbers per block after the codes: scale, factors, minima
    """

    name: str
    steps: int
    code_bytes: int
    add: int
    base: int
    restore: int
    halves: bool
    words: int

    @property
    def record(self) -> int:
        """Bytes of an unpacked block: codes and numbers."""
        return 32 * self.code_bytes + 4 * self.words

    @property
    def unroll(self) -> int:
        """Steps at a time."""
        return QUAD if self.name == "sdot" else UNROLL

    @property
    def packing(self) -> str:
        """The form of the columns: a key of pack.PACK_TILES."""
        return {"s16": "s16", "vnni": "dots"}.get(self.name, "s8")


def scheme(kind: GGMLType, isa: ISA) -> Scheme:
    block = INT_BLOCKS[kind]
    bias = block.bias or 0
    words = 1 + 2 * block.subs + block.n_min
    if isa.dot.startswith("vnni"):
        add = 128 if block.signed else 0
        return Scheme("vnni", 8, 1, add, bias + add, 0, block.subs, words)
    if isa.dot.startswith("neon"):
        return Scheme("sdot", 8, 1, -bias, 0, 0, block.subs, words)
    # 16 sums of products of a block, or of half a block, in 16 bits: 16 * 16 * 127 and 8 * 32 * 127 fit
    limit = 32 if block.subs else 16
    if isa.dot == "avx2":
        if block.signed and block.largest <= 16:
            return Scheme("ub", 8, 1, 16, 16, 0, block.subs, words)
        if not block.signed and block.largest <= limit:
            return Scheme("ub", 8, 1, 0, bias, 0, block.subs, words)
        if not block.signed and block.largest < 2 * limit and not bias:
            return Scheme("ub", 8, 1, 0, limit, limit, block.subs, words)
    return Scheme("s16", 16, 2, -bias, 0, 0, False, 1 + block.n_min)


@dataclass(frozen=True)
class Tile:
    """Register tile: `rows` rows x `vectors` vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def cols(self) -> int:
        return self.vectors * self.lanes

    @property
    def in_registers(self) -> bool:
        """Whether the sums of a chain have registers beside those of a block: there are 32 of 16 lanes."""
        return self.lanes == 16 and self.rows * self.vectors <= 12


def tiles(isa: ISA) -> tuple[Tile, Tile]:
    """(narrow, wide): for ubatches of at most `narrow.cols` columns, and for larger ones."""
    if isa.lanes == 16:
        return Tile(12, 1, 16), Tile(6, 2, 16)
    # NEON: 32 registers of half the lanes, of which each row takes one: see QUAD
    tile = Tile(4, 2, 8) if isa.dot.startswith("neon") else Tile(6, 2, 8)
    return tile, tile


def float_tile_of(tile: Tile) -> Tile:
    """The tile of floats for columns packed for `tile`: without sums of blocks beside its own it can have more rows."""
    return Tile(8, 2, 16) if tile == Tile(6, 2, 16) else tile


UNROLL = 2  # steps per iteration of the innermost loop
QUAD = 4  # NEON: steps whose weights of a row are loaded at once, into a register whose lanes are multiplied with


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
    if how.name == "s16" and e.isa.dot in ("avx2", "vnni"):
        pairs = e.call("llvm.x86.avx2.pmadd.wd", acc.type, b.bitcast(w, Vec(I16, 16)), b.bitcast(x, Vec(I16, 16)))
        return b.add(acc, pairs)
    if how.name == "sdot":
        byte = Vec(I8, 16)
        w, x = ([b.bitcast(e.part(v, k, 4), byte) for k in range(0, n, 4)] for v in (w, x))
        # in this order LLVM finds the form of sdot that multiplies with one dword of w
        sums = [e.sdot(e.part(acc, 4 * k, 4), v, u) for k, (u, v) in enumerate(zip(w, x, strict=True))]
        return sums[0] if n == 4 else e.cat(*sums)
    # any target: widen, multiply, add neighbours
    parts = 2 if how.name == "s16" else 4
    narrow = Vec(I16 if parts == 2 else I8, parts * n)
    wide = Vec(I32, parts * n)
    left = b.sext(b.bitcast(w, narrow), wide) if parts == 2 else b.zext(b.bitcast(w, narrow), wide)
    products = b.mul(left, b.sext(b.bitcast(x, narrow), wide))
    for k in range(parts):
        acc = b.add(acc, e.shuffle(products, [parts * i + k for i in range(n)]))
    return acc


_TILE_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64->void"


class _Block:
    """A block of 32 of all rows and columns of a tile: addresses and what is computed from it."""

    def __init__(self, e: Emitter, how: Scheme, tile: Tile, x: Value, rows: list[Value]) -> None:
        self.e, self.how, self.tile, self.x, self.rows = e, how, tile, x, rows

    def moved(self, offset: Value) -> "_Block":
        """Columns at an offset; the rows are the same."""
        return _Block(self.e, self.how, self.tile, self.e.at(self.x, offset), self.rows)

    # --- numbers of columns and rows ---
    def line(self, ty: Value, k: int) -> list[Value]:
        """Line k after the codes, one vector per group of columns."""
        C, L = self.tile.vectors, self.tile.lanes
        return [self.e.load(ty, self.x, ((self.how.steps + k) * C + j) * 4 * L, 32) for j in range(C)]

    def scales(self) -> list[Value]:
        return self.line(Vec(F32, self.tile.lanes), 0)

    def pairs(self, half: int | None) -> list[Value]:
        """Sums of the first and of the last two s8 of the dwords, i16, of one half or of the block."""
        ty = Vec(I16, 2 * self.tile.lanes)
        if half is not None:
            return self.line(ty, 1 + half)
        return [self.e.b.add(u, v) for u, v in zip(self.line(ty, 1), self.line(ty, 2), strict=True)]

    def sums(self, half: int | None) -> list[Value]:
        """Sums of x over the block or a half, i32."""
        if self.how.packing != "dots":
            return [_add_pairs(self.e, p) for p in self.pairs(half)]
        ty = Vec(I32, self.tile.lanes)
        sums = self.line(ty, 2 if half == 1 else 1)
        return [self.e.b.sub(u, v) for u, v in zip(sums, self.line(ty, 2), strict=True)] if half == 0 else sums

    def number(self, r: int, place: int, kind=F32) -> Value:
        """Number `place` of a row, in all lanes."""
        number = self.e.load(kind, self.rows[r], 32 * self.how.code_bytes + 4 * place)
        return self.e.splat(number, self.tile.lanes)

    # --- integer sums ---
    def begin(self, half: int | None, n_rows: int) -> list[Value]:
        """What the sums of products start from."""
        e, base = self.e, self.how.base
        if self.how.name == "ub":
            ty = Vec(I16, 2 * self.tile.lanes)
            values = [e.b.mul(v, const(ty, -base)) for v in self.pairs(half)] if base else [const(ty, 0)]
        else:
            ty = Vec(I32, self.tile.lanes)
            values = [e.b.mul(v, const(ty, -base)) for v in self.sums(half)] if base else [const(ty, 0)]
        return [values[k % len(values)] for k in range(n_rows * self.tile.vectors)]

    def step(self, s: Value, acc: list[Value], some: range, unroll: int) -> list[Value]:
        """`unroll` steps of some of the tile's rows."""
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
        """Sums of products of some of the tile's rows, without a loop: with factors, both halves times theirs."""
        if not self.how.halves:
            return self._steps(range(self.how.steps), self.begin(None, len(some)), some)
        e, b = self.e, self.e.b
        total: list[Value] = []
        middle = self.how.steps // 2
        for h in (0, 1):
            acc = self._steps(range(h * middle, (h + 1) * middle), self.begin(h, len(some)), some)
            for k in range(len(acc)):
                factor = self.number(some[k // self.tile.vectors], 1 + h, I32)
                if self.how.name == "ub":
                    acc[k] = _add_pairs(e, acc[k], b.bitcast(factor, acc[k].type))
                else:
                    acc[k] = b.mul(acc[k], factor)
            total = [b.add(u, v) for u, v in zip(total, acc, strict=True)] if h else acc
        return total

    def _steps(self, steps: range, acc: list[Value], some: range) -> list[Value]:
        for s in steps[:: self.how.unroll]:
            acc = self.step(const(I64, s), acc, some, self.how.unroll)
        return acc

    def halves_of_rows(self) -> list[range]:
        """The tile's rows in two parts, where their sums and those of half a block are to stay in registers."""
        R = self.tile.rows
        return [range(R // 2), range(R // 2, R)] if self.how.halves else [range(R)]


def _add_pairs(e: Emitter, v: Value, factors: Value | None = None) -> Value:
    """<2 n x i16>, times factors -> sums of neighbours, <n x i32>."""
    b, n = e.b, v.type.count // 2
    factors = const(v.type, 1) if factors is None else factors
    if n == 8 and e.isa.x86 and e.isa.dot != "plain":
        return e.call("llvm.x86.avx2.pmadd.wd", Vec(I32, n), v, factors)
    if n == 16 and e.isa.dot == "vnni":
        return e.call("llvm.x86.avx512.pmaddw.d.512", Vec(I32, n), v, factors)
    wide = Vec(I32, 2 * n)
    products = b.mul(b.sext(v, wide), b.sext(factors, wide))
    return b.add(e.shuffle(products, list(range(0, 2 * n, 2))), e.shuffle(products, list(range(1, 2 * n, 2))))


def make_int_tile(kind: GGMLType, how: Scheme, tile: Tile, isa: ISA | None = None):
    """One chain of one register tile: q = before + the chain's products, f32 [R][cols].

    Where `out` is not 0 this is added to `out` instead of written to q.

    `x`: the chain's blocks of a packed tile. `rows`: the first row's blocks, each 32 codes, f32 scale, i32 factor[2]
    if the scheme has halves, f32 -min[n_min]. Both lie one after the other.
    """
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vf = Vec(F32, L)
    n_acc, n_min = R * C, INT_BLOCKS[kind].n_min
    block_bytes = (how.steps + LINES) * 4 * tile.cols

    def int_tile(e: Emitter, rows, stride, x, length, before, q, out):
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
                    value = here.number(r, 1 + 2 * how.halves + m)
                    acc[r * C : r * C + C] = [e.fma(value, moments[j], acc[r * C + j]) for j in range(C)]
            return acc

        chain = (_chain_in_registers if tile.in_registers else _chain_in_memory)(e, block, how, tile, length)
        taken = e.loop(length, minima, [const(vf, 0.0)] * n_acc) if n_min else []
        values = [b.fadd(chain(k), taken[k]) if n_min else chain(k) for k in range(n_acc)]
        values = [b.fadd(e.load(vf, before, 4 * L * k, 32), v) for k, v in enumerate(values)]
        with b.if_else(b.icmp_signed("!=", out, const(I64, 0))) as (last, others):
            with last:
                for k, v in enumerate(values):
                    e.store(b.fadd(e.load(vf, out, 4 * L * k, 32), v), out, 4 * L * k, 32)
            with others:
                for k, v in enumerate(values):
                    e.store(v, q, 4 * L * k, 32)

    return emit(_TILE_SIGNATURE, isa)(int_tile)


_BlockAt = Callable[[Value], _Block]


def _chain_in_registers(e: Emitter, block: _BlockAt, how: Scheme, tile: Tile, length: Value) -> Callable[[int], Value]:
    """The chain's sums, carried beside the integer sums of a block.

    Nothing is stored on the way: on Zen 4 a clump of stores holds up instructions with three operands (vpdpbusd, fma).
    """
    C = tile.vectors

    def add(i, chain):
        here, chain = block(i), list(chain)
        d = here.scales()
        for some in here.halves_of_rows():
            # an address of its own, as far as LLVM knows: it would keep what both parts read, and spill it
            part = here.moved(e.b.lshr(length, const(I64, 62))) if some[0] else here
            for k, isum in enumerate(part.products(some), some[0] * C):
                chain[k] = e.fma(e.to_f32(isum), e.b.fmul(here.number(k // C, 0), d[k % C]), chain[k])
        return chain

    sums = e.loop(length, add, [const(Vec(F32, tile.lanes), 0.0)] * (tile.rows * C))
    return lambda k: sums[k]


def _chain_in_memory(e: Emitter, block: _BlockAt, how: Scheme, tile: Tile, length: Value) -> Callable[[int], Value]:
    """The chain's sums, where those of a block take the registers."""
    b, R, C, L = e.b, tile.rows, tile.vectors, tile.lanes
    vi, vf = Vec(I32, L), Vec(F32, L)
    chain = e.stack(vf, R * C)
    for k in range(R * C):
        e.store(const(vf, 0.0), chain, 4 * L * k, 32)

    def products(here: _Block) -> list[Value]:
        if how.halves:
            return [isum for some in here.halves_of_rows() for isum in here.products(some)]
        # a loop, not 16 steps in a row: LLVM's scheduler would mix them and spill the accumulators. A few turns it
        # would unroll, if it knew their number
        few = how.name == "sdot" or (how.name == "vnni" and C == 2)
        hidden = b.lshr(length, const(I64, 56)) if few else const(I64, 0)
        step = lambda s, acc: here.step(s, acc, range(R), how.unroll)
        return e.loop(b.add(hidden, const(I64, how.steps)), step, here.begin(None, R), step=how.unroll)

    def add(i, _):
        here = block(i)
        acc = products(here)
        d = here.scales()
        given = [b.mul(v, const(vi, how.restore)) for v in here.sums(None)] if how.restore else []
        # an address that changes, as far as LLVM knows: it would keep the sums in registers, and spill them
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


def make_float_tile(tile: Tile, isa: ISA | None = None, *, pairs: bool = False):
    """Part of a chain that goes on: chain [R][cols] += products of f32 (or pairs of BF16) of each row and column."""
    R, C, L = tile.rows, tile.vectors, tile.lanes
    vf = Vec(F32, L)
    n_acc = R * C

    def float_tile(e: Emitter, w, w_stride, x, length, before, chain, out):
        b = e.b
        rows = [e.at(w, b.mul(w_stride, const(I64, r))) for r in range(R)]
        chain = e.ptr(chain)

        def step(p, acc, width=1):
            """`width` elements of each row and column."""
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
                        acc[r * C + j] = e.dot_pairs(a, xs[j], value) if pairs else e.fma(value, xs[j], a)
            return acc

        acc, first = [e.load(vf, chain, 4 * L * k, 32) for k in range(n_acc)], const(I64, 0)
        if e.isa.dot.startswith("neon"):
            first = b.and_(length, const(I64, -QUAD))
            acc = e.loop(first, lambda p, acc: step(p, acc, QUAD), acc, step=QUAD)
        acc = e.loop(length, step, acc, start=first)
        for k in range(n_acc):
            e.store(acc[k], chain, 4 * L * k, 32)

    return emit(_TILE_SIGNATURE, isa)(float_tile)
