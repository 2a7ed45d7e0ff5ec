"""Latent attention: the values are the last part of the keys, and are taken out of the keys of a block.

Keys have positions in the lanes (kv.py); the sums of outputs have values in the lanes. So the keys are unpacked and
transposed once for all rows of a tile: a whole block if the cache has room (`make_unpack_keys`), otherwise 16 positions
at a time for the scores and 16 values at a time for the outputs, which stay in the first-level cache
(`make_latent_scores`, `make_latent_values`). With few rows and 16 lanes nothing is written: keys are converted and
transposed in registers (`make_few_values`).
"""

import functools
from typing import Any

from ..emit.emitter import F32, I64, Value, Vec, const, emit
from .attention_products import add_unpacked, few_rows, scores_of_group, unpack_keys
from .attention_tile import BLOCK, DIRECT, GROUPS_OF, HEAD, SLAB, Tile, at_most
from .kv import F32_KV, GROUP, K_LANES, KVType
from .kv_read import VECTOR, KeyReader, count_of, rounded_up, scaled

SIDE = 8  # side of the squares that are transposed in registers


def _take(at: Tile, g: Value, keys: Value, d: Value, last: Value | None) -> None:
    """Transpose values d .. d + SIDE - 1 of group g of 16 positions into the tile; keys f32 [d_pad][16], from the first
    value on.

    last: index of the last value, read again in place of values beyond it; None: no value is beyond it.
    """
    e, b = at.e, at.e.b
    target = b.add(at.values, b.mul(b.ashr(d, const(I64, 4)), const(I64, SLAB)))
    target = b.add(target, b.add(b.shl(g, const(I64, 10)), b.shl(b.and_(d, const(I64, 15)), const(I64, 2))))
    places = [b.add(d, const(I64, i)) for i in range(SIDE)]
    if last is not None:
        places = [e.intr("smin", place, last) for place in places]
    places = [b.shl(place, const(I64, 6)) for place in places]
    for half in range(0, K_LANES, SIDE):
        rows = [e.load(Vec(F32, SIDE), b.add(keys, place), 4 * half) for place in places]
        for i, column in enumerate(e.transpose(rows)):
            e.store(column, target, 64 * (half + i))


def make_unpack_keys(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64->i64", apart=True)
    def unpack(e, tile, k, v, row, vrow, d_head, d_value, seen):
        """`unpack` of attention_products.py, with the last d_value values of the keys as values; v is not read."""
        b = e.b
        at = Tile(e, tile, d_head)
        size, first = b.shl(row, const(I64, 4)), b.shl(b.sub(d_head, d_value), const(I64, 6))
        whole = b.and_(d_value, const(I64, -SIDE))

        def group(g: Value, _: list[Value]) -> None:
            keys = b.add(k, b.mul(g, size))
            if kind is not F32_KV:
                unpack_keys(at, kind, keys, g)
                keys = at.keys_of(g)
            keys, last = b.add(keys, first), b.sub(d_value, const(I64, 1))
            e.loop(whole, lambda d, _: _take(at, g, keys, d, None), step=SIDE)
            e.loop(d_value, lambda d, _: _take(at, g, keys, d, last), start=whole, step=SIDE)

        e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group)
        return at.keys if kind is not F32_KV else k

    return unpack


# --- a part at a time -------------------------------------------------------------------------------------------------
@emit("i64,i64,i64,i64,i64,i64,i64,i64->i64")
def left_packed(e, tile, k, v, row, vrow, d_head, d_value, seen):
    """Replaces `unpack` of attention_products.py: unpacks nothing and returns the address of the packed keys."""
    return k


def _size(at: Tile, kind: KVType) -> Value:
    """Bytes of the keys of 16 positions."""
    e, b = at.e, at.e.b
    parts = [b.mul(count_of(e, plane, at.d_pad), const(I64, plane.size)) for plane in kind.planes]
    return b.shl(functools.reduce(b.add, parts), const(I64, 4))


def make_latent_scores(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def latent_scores(e, tile, n_row, micro, keys, d_head, b0, seen):
        """`unpacked_scores` of attention_products.py, for keys still packed as in the cache."""
        b = e.b
        at = Tile(e, tile, d_head)
        size = _size(at, kind)

        def group(g: Value, _: list[Value]) -> None:
            source = b.add(keys, b.mul(g, size))
            if kind is not F32_KV:
                unpack_keys(at, kind, source, const(I64, 0))
                source = at.keys
            scores_of_group(at, n_row, micro, [source], g, b0)

        e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group)

    return latent_scores


def make_latent_values(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def latent_values(e, tile, n_row, micro, keys, d_head, d_value, b0, window, seen):
        """`unpacked_values` of attention_products.py, for keys still packed as in the cache."""
        at = Tile(e, tile, d_head)

        def column(d: Value, _: list[Value]) -> None:
            _write_column(at, kind, keys, d_value, d, seen)
            add_unpacked(at, n_row, micro, 1, d, at.values, b0, window)

        e.loop(rounded_up(e, d_value), column, step=16)

    return latent_values


def _write_column(at: Tile, kind: KVType, keys: Value, d_value: Value, d: Value, seen: Value) -> None:
    """Values d .. d + 15 of positions 0 .. seen of a block, f32 [position][16], to the tile's first slab."""
    e, b = at.e, at.e.b
    size, first, last = _size(at, kind), b.sub(at.d_head, d_value), b.sub(at.d_head, const(I64, 1))

    def group(g: Value, _: list[Value]) -> None:
        source, target = b.add(keys, b.mul(g, size)), b.add(at.values, b.shl(g, const(I64, 10)))
        for half in range(0, 16, SIDE):
            rows = _dims(at, kind, source, b.add(b.add(d, first), const(I64, half)), last)
            for part in range(0, K_LANES, SIDE):
                columns = e.transpose([e.part(x, part, SIDE) for x in rows])
                for i, values in enumerate(columns):
                    e.store(values, target, 64 * (part + i) + 4 * half)

    e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group)


def _dims(at: Tile, kind: KVType, source: Value, d: Value, last: Value) -> list[Value]:
    """Values d .. d + SIDE - 1 of the keys of 16 positions, f32 lanes; after `last`, that one again."""
    e, b, reader = at.e, at.e.b, KeyReader(at.e, kind, at.d_head)
    out = []
    for i in range(SIDE):
        place = e.intr("smin", b.add(d, const(I64, i)), last)
        times = reader.times(source, b.and_(place, const(I64, -GROUP)))
        out.append(scaled(e, reader.code(source, place), times))
    return out


# --- few rows, 16 lanes -----------------------------------------------------------------------------------------------
def make_few_values(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def few_values(e, tile, n_row, keys, next_keys, row, d_head, d_value, b0, window):
        """`direct_values` of attention_products.py, with the last d_value values of the keys as values.

        keys: address of the block, `row` the bytes of a position in it. Prefetches the block at next_keys meanwhile.
        """
        b, end = e.b, const(I64, BLOCK - 1)
        at = Tile(e, tile, d_head)
        final = b.sub(n_row, const(I64, 1))
        sides = b.and_(b.or_(d_value, b.sub(d_head, d_value)), const(I64, K_LANES - 1))
        whole = b.and_(b.icmp_signed(">=", at.last(const(I64, 0), b0), end), b.icmp_signed("==", sides, const(I64, 0)))
        whole = b.and_(whole, b.icmp_signed("==", at.first(final, b0, window), const(I64, 0)))
        with b.if_else(whole) as (all_seen, some_seen):
            with all_seen:
                _add_block(at, kind, n_row, keys, row, d_value, next_keys)
            with some_seen:
                seen = at_most(e, at.last(final, b0), end)

                def column(d: Value, _: list[Value]) -> None:
                    _write_column(at, kind, keys, d_value, d, seen)
                    add_unpacked(at, n_row, const(I64, DIRECT), 1, d, at.values, b0, window)

                e.loop(rounded_up(e, d_value), column, step=16)

    return few_values


def _add_block(at: Tile, kind: KVType, n_row: Value, keys: Value, row: Value, d_value: Value, soon: Value) -> None:
    """Add weights times values of a block, all of whose positions all rows see, to n_row rows; squares of 16 positions
    and 16 values are transposed in registers. d_value and at.d_head - d_value are multiples of 16. soon: the next
    block, to prefetch."""
    e, b, reader = at.e, at.e.b, KeyReader(at.e, kind, at.d_head)
    first = b.sub(at.d_head, d_value)
    # cache lines for each square: the whole block if keys are at most an eighth longer than values
    lines = 64 * -(-32 * kind.eighth * 9 // (8 * 64))

    def square(key: Value, g: Value, d: Value) -> None:
        index = b.add(b.mul(g, d_value), d)  # 16 times the number of squares before this one
        for line in range(0, lines, 64):
            e.prefetch(b.add(soon, b.mul(index, const(I64, lines // 16))), line)
        place = b.add(d, first)
        times = reader.times(key, b.and_(place, const(I64, -GROUP)))
        codes = [x for i in range(0, 16, reader.step) for x in reader.codes(key, b.add(place, const(I64, i)))]
        values = e.transpose([scaled(e, x, times) for x in codes])

        def take(rows: int, r: Value) -> None:
            weights = b.add(at.weights(r), b.shl(g, const(I64, 6)))
            out = b.add(at.chunk_record(r), b.shl(d, const(I64, 2)))
            targets = [b.add(out, b.mul(at.record, const(I64, i))) for i in range(rows)]
            acc = [e.load(VECTOR, target, HEAD) for target in targets]
            for j, value in enumerate(values):
                for i in range(rows):
                    acc[i] = e.fma(e.splat(e.load(F32, weights, 4 * (BLOCK * i + j)), 16), value, acc[i])
            for total, target in zip(acc, targets, strict=True):
                e.store(total, target, HEAD)

        few_rows(e, n_row, tuple(GROUPS_OF), take)

    def group(g: Value, _: list[Value]) -> None:
        key = b.add(keys, b.mul(b.shl(g, const(I64, 4)), row))
        e.loop(d_value, lambda d, _: square(key, g, d), step=16)

    e.loop(const(I64, BLOCK // K_LANES), group)
