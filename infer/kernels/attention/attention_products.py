"""Queries times keys and weights times values, for a tile of queries and a block of positions (see attention_tile.py).

With few rows, `direct_*` convert keys and values in registers as they read them; with more rows, `unpack` writes a
block to scratch once, as f32, for `unpacked_*`. Both ways read the same numbers and add them in the same order:
a score is one chain of fma over d_head, an output one chain over the positions of a chunk, ascending.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..emit.emitter import F32, I64, Emitter, Value, const, emit
from .attention_tile import AT_ONCE, BLOCK, DIRECT, GROUPS_OF, HEAD, MICRO, SLAB, Tile, at_most
from .kv import F32_KV, GROUP, K_LANES, KVType
from .kv_read import VECTOR, KeyReader, ValueReader, position_offsets, read_values, rounded_up, scaled


# --- scores -----------------------------------------------------------------------------------------------------------
def _scores(
    e: Emitter, kind: KVType, rows: int, q: Value, line: Value, keys: Sequence[Value], p: Value, d_head: Value,
    soon: Sequence[Value] = (),
) -> None:  # fmt: skip
    """Scores of `rows` queries with blocks of 16 positions.

    q f32 [rows][d_head], rows `line` bytes apart; `keys`: addresses of blocks of K; p f32 [rows][BLOCK], written.
    `soon`: addresses to prefetch meanwhile, as many bytes at each as the values of a block of K.
    """
    n = len(keys)

    def body(e: Emitter, q: Value, line: Value, p: Value, d_head: Value, *more: Value) -> None:
        _write_scores(e, kind, rows, q, line, more[:n], p, d_head, more[n:])

    e.function(f"scores_{kind.name}_{rows}_{n}_{len(soon)}", body, q, line, p, d_head, *keys, *soon)


def _write_scores(  # noqa: C901  one loop nest
    e: Emitter, kind: KVType, rows: int, q: Value, line: Value, keys: Sequence[Value], p: Value, d_head: Value,
    soon: Sequence[Value],
) -> None:  # fmt: skip
    b, reader = e.b, KeyReader(e, kind, d_head)
    queries = [b.add(q, b.mul(line, const(I64, r))) for r in range(rows)]
    n = len(keys)

    def some(d: Value, acc: list[Value], times: Sequence[Sequence[Value]]) -> list[Value]:
        """`reader.step` dimensions from d on."""
        acc = list(acc)
        columns = zip(*[reader.codes(key, d) for key in keys], strict=True)
        for i, codes in enumerate(columns):
            loaded = [scaled(e, x, each) for x, each in zip(codes, times, strict=True)]
            for r, query in enumerate(queries):
                value = e.splat(e.load(F32, query, b.shl(b.add(d, const(I64, i)), const(I64, 2))), K_LANES)
                for k, key in enumerate(loaded):
                    acc[r * n + k] = e.fma(value, key, acc[r * n + k])
        return acc

    def span(start: Value | int, stop: Value, acc: list[Value], times: Sequence[Sequence[Value]]) -> list[Value]:
        """Dimensions start .. stop - 1. With `soon`, one iteration takes a cache line, which is prefetched once."""
        step = max(reader.step, 64 * reader.step // reader.width) if soon else reader.step

        def dims(d: Value, acc: list[Value]) -> list[Value]:
            for address in soon:
                e.prefetch(b.add(address, b.mul(b.udiv(d, const(I64, reader.step)), const(I64, reader.width))), 0)
            for i in range(0, step, reader.step):
                acc = some(b.add(d, const(I64, i)), acc, times)
            return acc

        if step == reader.step:
            return e.loop(stop, dims, acc, start=start, step=step)
        whole = b.and_(stop, const(I64, -step))
        acc = e.loop(whole, dims, acc, start=start, step=step)
        return e.loop(stop, lambda d, acc: some(d, acc, times), acc, start=whole)

    totals = [const(VECTOR, 0.0)] * (rows * n)
    if kind.quantized:

        def group(first: Value, acc: list[Value]) -> list[Value]:
            for address in soon:
                for place in reader.places_of_times(address, first):
                    e.prefetch(place, 0)
            return span(first, reader.stop(first), acc, [reader.times(key, first) for key in keys])

        totals = e.loop(reader.end, group, totals, step=GROUP)
    else:
        totals = span(0, reader.end, totals, [()] * n)
    for r in range(rows):
        for i in range(n):
            e.store(totals[r * n + i], p, 4 * BLOCK * r + 4 * K_LANES * i)


WriteScores = Callable[[Emitter, int, Value, Value, Sequence[Value], Value, Value, Sequence[Value]], None]


def scores_of_block(
    e: Emitter, tile: Value, k: Value, next_keys: Value, row: Value, d_head: Value, seen: Value, write: WriteScores,
    groups_of: Mapping[int, int] = GROUPS_OF,
) -> Callable[[int, Value], None]:  # fmt: skip
    """A function that writes the scores of `rows` rows from r on with positions 0 .. seen of a block; it prefetches the
    keys of the next block meanwhile. Fields as of `direct_scores`; write(e, rows, q, line, keys, p, d_head, soon): as
    `_scores`."""
    b, at = e.b, Tile(e, tile, d_head)
    size = b.shl(row, const(I64, 4))
    last = b.ashr(seen, const(I64, 4))

    def take(rows: int, r: Value) -> None:
        n = groups_of[rows]

        def groups(g: Value, _: list[Value]) -> None:
            # groups after the last that the queries see read the last again; their scores are masked
            here = [at_most(e, b.add(g, const(I64, i)), last) for i in range(n)]
            blocks = [b.add(k, b.mul(size, i)) for i in here]
            soon = [b.add(next_keys, b.mul(size, b.add(g, const(I64, i)))) for i in range(n)]
            q, p = b.add(at.query, b.mul(r, at.line)), b.add(at.weights(r), b.shl(g, const(I64, 6)))
            write(e, rows, q, at.line, blocks, p, d_head, soon)

        e.loop(b.add(last, const(I64, 1)), groups, step=n)

    return take


def make_direct_scores(keys: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def direct_scores(e, tile, n_row, k, next_keys, row, d_head, seen):
        """Scores of n_row rows with positions 0 .. seen of a block; prefetches the next block of keys meanwhile.

        k and next_keys are addresses of blocks, `row` the bytes of a position in them.
        """
        write = lambda e, *given: _scores(e, keys, *given)
        take = scores_of_block(e, tile, k, next_keys, row, d_head, seen, write)
        few_rows(e, n_row, tuple(GROUPS_OF), take)

    return direct_scores


def few_rows(e: Emitter, n_row: Value, sizes: Sequence[int], take: Callable[[int, Value], None]) -> None:
    """Call take(rows, r) for all rows: the largest of `sizes` (ascending, a power of two) at a time, then once for the
    rest, with the least size that is enough. The last of these rows may have no query."""
    b = e.b
    whole = b.and_(n_row, const(I64, -sizes[-1]))
    e.loop(whole, lambda r, _: take(sizes[-1], r), step=sizes[-1])
    rest = b.sub(n_row, whole)
    below = 0
    for rows in sizes:
        enough = b.and_(b.icmp_signed(">", rest, const(I64, below)), b.icmp_signed("<=", rest, const(I64, rows)))
        with b.if_then(enough):
            take(rows, whole)
        below = rows


def _by_rows(e: Emitter, n_row: Value, micro: Value, take: Callable[[int, Value], None]) -> None:
    """Call take(rows, r) for all rows, `micro` (MICRO or DIRECT) at a time. The last rows may have no query."""
    for rows in (MICRO, DIRECT):
        with e.b.if_then(e.b.icmp_signed("==", micro, const(I64, rows))):
            e.loop(n_row, lambda r, _, rows=rows: take(rows, r), step=rows)  # type: ignore[misc]


def scores_of_group(at: Tile, n_row: Value, micro: Value, keys: Sequence[Value], g: Value, b0: Value) -> None:
    """Scores of all rows with groups of 16 positions, from group g of a block at b0 on; one per address in `keys`, of
    f32 [d_pad][16]."""
    e, b = at.e, at.e.b

    def take(rows: int, r: Value) -> None:
        final = at_most(e, b.add(r, const(I64, rows - 1)), b.sub(n_row, const(I64, 1)))
        with b.if_then(b.icmp_signed(">=", at.last(final, b0), b.shl(g, const(I64, 4)))):
            q, p = b.add(at.query, b.mul(r, at.line)), b.add(at.weights(r), b.shl(g, const(I64, 6)))
            _scores(e, F32_KV, rows, q, at.line, keys, p, at.d_head)

    _by_rows(e, n_row, micro, take)


@emit("i64,i64,i64,i64,i64,i64,i64->void", apart=True)
def unpacked_scores(e, tile, n_row, micro, keys, d_head, b0, seen):
    """Scores of all rows with the positions 0 .. seen of a block at b0; keys f32 [BLOCK / 16][d_pad][16]."""
    b = e.b
    at = Tile(e, tile, d_head)
    size = b.shl(at.d_pad, const(I64, 6))

    def group(g: Value, _: list[Value]) -> None:
        key = b.add(keys, b.mul(g, size))
        scores_of_group(at, n_row, micro, [e.at(key, b.mul(size, const(I64, i))) for i in range(AT_ONCE)], g, b0)

    # the second group of a pair may lie after `seen`: its scores are masked
    e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group, step=AT_ONCE)


# --- values -----------------------------------------------------------------------------------------------------------
def _add(
    e: Emitter, kind: KVType, rows: int, vectors: int, p: Value, out: Value, record: Value, first: Value, stop: Value,
    step: Value, code_row: Value, *at: Value, apart: int = 0,
) -> None:  # fmt: skip
    """out [rows][16 * vectors] += weights [rows][j] * values [j] for j = first .. stop - 1, one fma each.

    step, code_row: see `position_offsets`. at: `ValueReader.addresses` of position 0, and further addresses, to
    prefetch for each position as many bytes as the values have. Rows of `out` are `record` bytes apart. apart: see
    `read_values`.
    """
    n_plane = len(kind.planes)

    def body(
        e: Emitter, p: Value, out: Value, record: Value, first: Value, stop: Value, step: Value, code_row: Value,
        *at: Value,
    ) -> None:  # fmt: skip
        b = e.b
        at, soon = at[:n_plane], at[n_plane:]
        cells = [(r, i) for r in range(rows) for i in range(vectors)]
        targets = [b.add(out, b.mul(record, const(I64, r))) for r in range(rows)]

        def position(j: Value, acc: list[Value]) -> list[Value]:
            column = e.at(p, b.shl(j, const(I64, 2)))
            offsets = position_offsets(e, kind, j, step, code_row)
            loaded = read_values(e, kind, at, offsets, vectors, apart, K_LANES)
            weights = [e.splat(e.load(F32, column, 4 * BLOCK * r), 16) for r in range(rows)]
            size = 2 * vectors * kind.eighth
            for address in soon:
                for line in range(0, size, 64):
                    e.prefetch(b.add(address, b.mul(j, const(I64, size))), line)
            return [e.fma(weights[r], loaded[i], s) for (r, i), s in zip(cells, acc, strict=True)]

        starts = [e.load(VECTOR, targets[r], 64 * i) for r, i in cells]
        for (r, i), total in zip(cells, e.loop(stop, position, starts, start=first), strict=True):
            e.store(total, targets[r], 64 * i)

    with e.b.if_then(e.b.icmp_signed("<", first, stop)):
        name = f"values_{kind.name}_{rows}_{vectors}_{len(at)}_{apart}"
        e.function(name, body, p, out, record, first, stop, step, code_row, *at)


def _add_ragged(
    at: Tile, kind: KVType, rows: int, vectors: int, where: tuple[Value, Value, Value, Value], offset: Value,
    *source: Value, apart: int = 0,
) -> None:  # fmt: skip
    """`_add` to the vectors at byte `offset` of the records, for rows r .. r + rows - 1; `where`: r, n_row, b0, window.
    source: step, code_row and addresses.

    Positions that all of these rows see are added for all rows together, earlier and later ones for the single rows
    that see them. So an output sums exactly the positions it sees, ascending. Rows without a query get the common ones.
    """

    def body(e: Emitter, tile: Value, d_head: Value, *given: Value) -> None:
        b = e.b
        at = Tile(e, tile, d_head)
        r, n_row, b0, window, offset, *source = given
        final = b.sub(at_most(e, b.add(r, const(I64, rows)), n_row), const(I64, 1))

        def out(r: Value) -> Value:
            return b.add(at.chunk_record(r), offset)

        def end(r: Value) -> Value:
            return at_most(e, b.add(at.last(r, b0), const(I64, 1)), const(I64, BLOCK))

        first, stop = at.first(final, b0, window), end(r)
        common = b.icmp_signed("<", first, stop)
        first, stop = b.select(common, first, const(I64, 0)), b.select(common, stop, const(I64, 0))

        def singles(low: Callable[[Value], Value], high: Callable[[Value], Value]) -> None:
            def single(u: Value, _: list[Value]) -> None:
                _add(e, kind, 1, vectors, at.weights(u), out(u), at.record, low(u), high(u), *source, apart=apart)

            e.loop(b.add(final, const(I64, 1)), single, start=r)

        def low(u: Value) -> Value:
            return at.first(u, b0, window)

        with b.if_then(b.icmp_signed("<", low(r), first)):
            singles(low, lambda u: at_most(e, first, end(u)))
        _add(e, kind, rows, vectors, at.weights(r), out(r), at.record, first, stop, *source, apart=apart)
        with b.if_then(b.icmp_signed(">", end(final), stop)):
            singles(lambda u: e.intr("smax", low(u), stop), end)

    at.e.function(f"add_{kind.name}_{rows}_{vectors}_{len(source)}", body, at.base, at.d_head, *where, offset, *source)


def make_direct_values(values: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
    def direct_values(e, tile, n_row, v, next_values, vrow, d_head, d_value, b0, window):
        """Add weights times the values of a block to n_row rows; prefetches the next block of values meanwhile.

        v and next_values are addresses of blocks, `vrow` the bytes of a position in them.
        """
        b = e.b
        at = Tile(e, tile, d_head)
        v_pad, reader = rounded_up(e, d_value), ValueReader(e, values, d_value)

        def source(d: Value) -> tuple[Value, ...]:
            soon = b.mul(b.lshr(d, const(I64, 3)), const(I64, values.eighth * BLOCK))
            return vrow, reader.code_row, *reader.addresses(v, d), b.add(next_values, soon)

        def offset(d: Value) -> Value:
            return b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))

        def columns(rows: int, r: Value, vectors: int) -> Callable[[Value, list[Value]], None]:
            def body(d: Value, _: list[Value]) -> None:
                if values.quantized:  # the scales follow the codes
                    size = BLOCK * values.group * -(-vectors // 2)
                    after = b.add(b.mul(b.lshr(v_pad, const(I64, 3)), const(I64, values.eighth * BLOCK)), next_values)
                    for line in range(0, size, 64):
                        share = b.mul(b.lshr(d, const(I64, 5)), const(I64, BLOCK * values.group))
                        e.prefetch(b.add(after, share), line)
                _add_ragged(at, values, rows, vectors, (r, n_row, b0, window), offset(d), *source(d))

            return body

        def take(rows: int, r: Value) -> None:
            n = GROUPS_OF[rows]
            whole = b.and_(v_pad, const(I64, -16 * n))
            e.loop(whole, columns(rows, r, n), step=16 * n)
            if n > 1:
                e.loop(v_pad, columns(rows, r, 1), start=whole, step=16)

        few_rows(e, n_row, tuple(GROUPS_OF), take)

    return direct_values


def add_unpacked(
    at: Tile, n_row: Value, micro: Value, vectors: int, d: Value, slab: Value, b0: Value, window: Value
) -> None:
    """Add weights times values d .. d + 16 * vectors - 1 of a block to all rows; slabs f32 [BLOCK][16], SLAB bytes
    apart, the first at `slab`."""
    b = at.e.b
    offset = b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))

    def take(rows: int, r: Value) -> None:
        where = (r, n_row, b0, window)
        _add_ragged(at, F32_KV, rows, vectors, where, offset, const(I64, 64), const(I64, 0), slab, apart=SLAB)

    _by_rows(at.e, n_row, micro, take)


@emit("i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
def unpacked_values(e, tile, n_row, micro, keys, d_head, d_value, b0, window, seen):
    """Add weights times the unpacked values of a block at b0 to all rows; only positions 0 .. seen are unpacked."""
    b = e.b
    at = Tile(e, tile, d_head)

    def columns(vectors: int) -> Callable[[Value, list[Value]], None]:
        def body(d: Value, _: list[Value]) -> None:
            slab = b.add(at.values, b.mul(b.ashr(d, const(I64, 4)), const(I64, SLAB)))
            add_unpacked(at, n_row, micro, vectors, d, slab, b0, window)

        return body

    v_pad = rounded_up(e, d_value)
    whole = b.and_(v_pad, const(I64, -16 * AT_ONCE))
    e.loop(whole, columns(AT_ONCE), step=16 * AT_ONCE)
    if AT_ONCE > 1:
        e.loop(v_pad, columns(1), start=whole, step=16)


# --- unpacking --------------------------------------------------------------------------------------------------------
def unpack_keys(at: Tile, kind: KVType, source: Value, g: Value) -> None:
    """Write the keys at `source`, of group g of 16 positions, to the tile as f32."""
    e, b, reader = at.e, at.e.b, KeyReader(at.e, kind, at.d_head)
    target = at.keys_of(g)

    def span(times: Sequence[Value]) -> Callable[[Value, list[Value]], None]:
        def dims(d: Value, _: list[Value]) -> None:
            place = b.add(target, b.shl(d, const(I64, 6)))
            for i, x in enumerate(reader.codes(source, d)):
                e.store(scaled(e, x, times), place, 64 * i)

        return dims

    def group(first: Value, _: list[Value]) -> None:
        e.loop(reader.stop(first), span(reader.times(source, first)), start=first, step=reader.step)

    if kind.quantized:
        e.loop(reader.end, group, step=GROUP)
    else:
        e.loop(reader.end, span(()), step=reader.step)


def make_unpack(keys: KVType, values: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64->i64", apart=True)
    def unpack(e, tile, k, v, row, vrow, d_head, d_value, seen):
        """Unpack positions 0 .. seen of a block to the tile as f32, keys (unless they are f32) and values. Returns the
        address of the unpacked keys."""
        b = e.b
        at = Tile(e, tile, d_head)
        size, reader = b.shl(row, const(I64, 4)), ValueReader(e, values, d_value)

        def position(j: Value, _: list[Value]) -> None:
            target, offsets = (
                b.add(at.values, b.shl(j, const(I64, 6))),
                position_offsets(e, values, j, vrow, reader.code_row),
            )

            def column(d: Value, _: list[Value]) -> None:
                (x,) = read_values(e, values, reader.addresses(v, d), offsets, 1, lanes=K_LANES)
                e.store(x, target, b.mul(b.ashr(d, const(I64, 4)), const(I64, SLAB)))

            e.loop(rounded_up(e, d_value), column, step=16)

        if keys is not F32_KV:
            groups = b.add(b.ashr(seen, const(I64, 4)), const(I64, 1))
            e.loop(groups, lambda g, _: unpack_keys(at, keys, b.add(k, b.mul(g, size)), g))
        e.loop(b.add(seen, const(I64, 1)), position)
        # keys in f32 need no unpacking; the blocks of K are adjacent
        return at.keys if keys is not F32_KV else k

    return unpack
