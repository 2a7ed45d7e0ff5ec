"""Register tiles of the products with many columns: integer tiles (see gemm_schemes.py) and float tiles."""

from collections.abc import Callable
from functools import cache

from ..emit.emitter import F32, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import ISA
from .gemm_blocks import PairedBlock, TileBlock, add_pairs
from .gemm_schemes import QUAD, WORDS, Scheme, Tile

_TILE_SIGNATURE = "i64,i64,i64,i64,i64,i64,i64,i64->void"


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
        begins = [e.at(rows, b.mul(stride, const(I64, r - r % how.rows_together))) for r in range(R)]
        make = PairedBlock if how.rows_together == 2 else TileBlock

        def block(i: Value) -> TileBlock:
            o = b.mul(i, const(I64, how.record * how.rows_together))
            return make(e, how, tile, e.at(x, b.mul(i, const(I64, block_bytes))), [e.at(p, o) for p in begins])

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
        values = block(const(I64, 0)).by_rows([chain(k) for k in range(n_acc)])
        _leave(e, [b.fadd(v, taken[k]) if n_min else v for k, v in enumerate(values)], before, q, out)

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


_BlockAt = Callable[[Value], TileBlock]


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

    def products(here: TileBlock, some: range) -> list[Value]:
        if how.halves:
            return here.products(some)
        # a loop, not 16 steps in a row: LLVM's scheduler would mix them and spill the accumulators. Where the steps are
        # few, their number is hidden, since LLVM would unroll them
        few = how.name in ("sdot", "smmla") or (how.name == "vnni" and C == 2)
        hidden = b.lshr(length, const(I64, 56)) if few else const(I64, 0)
        step = lambda s, acc: here.step(s, acc, some, how.unroll)
        return e.loop(b.add(hidden, const(I64, how.steps)), step, here.begin(None, R), step=how.unroll)

    def add(i, _):
        here = block(i)
        given = [b.mul(v, const(vi, how.restore)) for v in here.sums(None)] if how.restore else []
        # length >> 62 is 0, but LLVM does not know: it would keep the sums in registers, and spill them
        slot = e.at(chain, b.mul(i, b.lshr(length, const(I64, 62))))
        for some in here.halves_of_rows():
            sums = dict(enumerate(products(here, some), some[0] * C))
            for together in here.turns(sums):
                of_rows, of_columns = cache(lambda r: here.number_of_sum(r * C, 0)), cache(here.scale_of_sum)
                for k in together:
                    isum = sums[k]
                    if how.name == "ub" and not how.halves:
                        isum = add_pairs(e, isum)
                    if how.restore:
                        isum = b.add(isum, given[k % C])
                    scale = b.fmul(of_rows(k // C), of_columns(k % (C * how.rows_together)))
                    e.store(e.fma(here.to_f32(isum), scale, e.load(vf, slot, 4 * L * k, 32)), slot, 4 * L * k, 32)
                e.barrier()

    e.loop(length, add)
    return lambda k: e.load(vf, chain, 4 * L * k, 32)


def make_word_tile(tile: Tile, isa: ISA | None = None):
    """Piece for one block of words (see gemm_schemes.py): as `make_int_tile`, with chains of one block."""

    def word_tile(e: Emitter, rows, stride, x, _length, _start, before, q, out):
        R, C = range(tile.rows), tile.vectors
        here = TileBlock(e, WORDS, tile, x, [e.at(rows, e.b.mul(stride, const(I64, r))) for r in R])
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
