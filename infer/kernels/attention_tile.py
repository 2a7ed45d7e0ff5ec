"""Pieces of the attention kernels: what is done with a tile of queries and a block of keys and values.

A tile is up to TILE_ROWS rows, a row is one query (token, head); all use one KV head. It takes BLOCK positions at a
time. Few rows (up to DIRECT) convert keys and values in registers, as they come from memory; more rows unpack a block
into scratch once, as f32, and go over it MICRO rows at a time. Both read the same numbers and add them in the same
order: a score is one chain of fma over d_head, an output one over positions, ascending.

The scratch of a tile, and the record in which the result of a chunk of positions is kept:
    record   f32 [16 + d_pad]: largest score, sum of weights, 14 unused, outputs not yet divided by the sum
"""

from collections.abc import Callable, Sequence
from typing import Any

from .emit import F32, I16, I32, I64, Emitter, Value, Vec, const, emit
from .isa import host
from .kv import F32_KV, GROUP, K_LANES, VECTOR, KVType, load16, padded_head, rounded_up

LANES = host().lanes
BLOCK = 64  # positions of one step of the online softmax
TILE_ROWS = 96  # rows of a tile, at most
MICRO = 6 if LANES == 8 else 12  # rows in registers at once, of an unpacked block
DIRECT = 4 if LANES == 8 else 8  # ... and of a block in memory
LOWEST = -3.0e38  # a maximum before the first score
HEAD = 64  # bytes of a record before its outputs

_GROUPS = BLOCK // K_LANES
_WEIGHTS = 0  # f32 [row][BLOCK]: scores, then weights, of the current block
_SUMS = _WEIGHTS + TILE_ROWS * BLOCK * 4  # f32 [row][16]: sum of the weights of the chunk, by position modulo 16
_WHERE = _SUMS + TILE_ROWS * K_LANES * 4  # i64 [row]: position of the query, ascending; negative: no query
_FACTOR = _WHERE + TILE_ROWS * 8  # f32 [row]: what sums under the previous maximum are worth
_QUERY = _FACTOR + TILE_ROWS * 4  # f32 [row][d_pad]: queries times a factor
# then, with sizes that depend on d_head:
#   records of the chunk, records of all chunks   [row]
#   keys of a block    f32 [BLOCK / 16][d_pad][16]
#   values of a block  f32 [d_pad / 16][BLOCK + 1][16], one more so that columns do not share cache sets
_SLAB = (BLOCK + 1) * 64


def record_bytes(d_head: int) -> int:
    return HEAD + 4 * padded_head(d_head)


def tile_bytes(d_head: int) -> int:
    """Scratch of one thread."""
    d_pad = padded_head(d_head)
    return _QUERY + TILE_ROWS * (4 * d_pad + 2 * record_bytes(d_head)) + BLOCK * d_pad * 4 + d_pad // 16 * _SLAB


class _Tile:
    """Addresses in the scratch at `base`."""

    def __init__(self, e: Emitter, base: Value, d_head: Value) -> None:
        self.e, self.base, self.d_head = e, base, d_head
        b = e.b
        self.d_pad = rounded_up(e, d_head)
        self.line = b.shl(self.d_pad, const(I64, 2))
        self.record = b.add(self.line, const(I64, HEAD))
        rows = const(I64, TILE_ROWS)
        self.query = b.add(base, const(I64, _QUERY))
        self.chunk = b.add(self.query, b.mul(rows, self.line))
        self.total = b.add(self.chunk, b.mul(rows, self.record))
        self.keys = b.add(self.total, b.mul(rows, self.record))
        self.values = b.add(self.keys, b.mul(self.d_pad, const(I64, BLOCK * 4)))

    def row(self, part: int, r: Value, size: int) -> Value:
        return self.e.b.add(self.base, self.e.b.add(self.e.b.mul(r, const(I64, size)), const(I64, part)))

    def weights(self, r: Value) -> Value:
        return self.row(_WEIGHTS, r, 4 * BLOCK)

    def chunk_record(self, r: Value) -> Value:
        return self.e.b.add(self.chunk, self.e.b.mul(r, self.record))

    def total_record(self, r: Value) -> Value:
        return self.e.b.add(self.total, self.e.b.mul(r, self.record))

    def last(self, r: Value, b0: Value) -> Value:
        """Last position that row r sees, from b0; negative if none."""
        return self.e.b.sub(self.e.load(I64, self.row(_WHERE, r, 8)), b0)

    def first(self, r: Value, b0: Value, window: Value) -> Value:
        """First position that row r sees, from b0."""
        b = self.e.b
        return self.e.intr("smax", const(I64, 0), b.add(b.sub(self.last(r, b0), window), const(I64, 1)))


def _clamp(e: Emitter, value: Value, most: int) -> Value:
    return e.intr("smin", value, const(I64, most))


def _each16(e: Emitter, d_pad: Value, source: Value, target: Value, change: Callable[[Value], Value]) -> None:
    """target[d] = change(source[d]), f32 [d_pad]."""

    def body(d: Value, _: list[Value]) -> None:
        offset = e.b.shl(d, const(I64, 2))
        e.store(change(e.load(VECTOR, source, offset)), target, offset)

    e.loop(d_pad, body, step=16)


# --- rows -------------------------------------------------------------------------------------------------------------
@emit("i64,i64,i64,i64,f32,i64->void")
def enter_row(e, tile, r, source, d_head, factor, position):
    """Row r: its query times `factor`, nothing summed up. `position` negative: a row without a query."""
    b = e.b
    at = _Tile(e, tile, d_head)
    query = b.add(at.query, b.mul(r, at.line))
    e.loop(at.d_pad, lambda d, _: e.store(const(VECTOR, 0.0), query, b.shl(d, const(I64, 2))), step=16)
    with b.if_then(b.icmp_signed(">=", position, const(I64, 0))):
        whole = b.and_(d_head, const(I64, -16))

        def scaled(ty: Any, times: Value) -> Any:
            def body(d: Value, _: list[Value]) -> None:
                offset = b.shl(d, const(I64, 2))
                e.store(b.fmul(e.load(ty, source, offset), times), query, offset)

            return body

        e.loop(whole, scaled(VECTOR, e.splat(factor, 16)), step=16)
        e.loop(d_head, scaled(F32, factor), start=whole)
    e.store(position, at.row(_WHERE, r, 8))
    _clear_record(e, at.total_record(r), at.d_pad)


def _clear_record(e: Emitter, record: Value, d_pad: Value) -> None:
    e.store(const(F32, LOWEST), record)
    e.store(const(F32, 0.0), record, 4)
    e.loop(d_pad, lambda d, _: e.store(const(VECTOR, 0.0), e.at(record, HEAD), e.b.shl(d, const(I64, 2))), step=16)


@emit("i64,i64->void")
def clear_record(e, record, d_head):
    """Nothing summed up."""
    _clear_record(e, record, rounded_up(e, d_head))


@emit("i64,i64,i64->void")
def begin_chunk(e, tile, n_row, d_head):
    """Rows start to sum anew."""
    at = _Tile(e, tile, d_head)

    def body(r: Value, _: list[Value]) -> None:
        e.store(const(VECTOR, 0.0), at.row(_SUMS, r, 4 * K_LANES))
        _clear_record(e, at.chunk_record(r), at.d_pad)

    e.loop(n_row, body)


@emit("i64,i64,i64->i64")
def end_chunk(e, tile, r, d_head):
    """Complete the record of the chunk of row r; returns its address."""
    at = _Tile(e, tile, d_head)
    record = at.chunk_record(r)
    e.store(e.halving_sum(e.load(VECTOR, at.row(_SUMS, r, 4 * K_LANES))), record, 4)
    return record


@emit("i64,i64,i64->i64")
def total_record(e, tile, r, d_head):
    """Address of the record of all chunks of row r."""
    return _Tile(e, tile, d_head).total_record(r)


@emit("i64,i64,i64->void")
def copy_record(e, source, target, d_head):
    _each16(e, e.b.add(rounded_up(e, d_head), const(I64, 16)), source, target, lambda x: x)


@emit("i64,i64,i64->void")
def merge_record(e, total, chunk, d_head):
    """total = total and the next chunk, both under the larger of their maxima. An empty total changes nothing."""
    b = e.b
    before, found = e.load(F32, total), e.load(F32, chunk)
    top = e.intr("maxnum", before, found)
    pair = e.splat(b.fsub(before, top), 4)
    pair = b.insert_element(pair, b.fsub(found, top), const(I32, 1))
    pair = e.exp2(pair)
    old, new = e.lane(pair, 0), e.lane(pair, 1)
    e.store(top, total)
    e.store(e.fma(e.load(F32, total, 4), old, b.fmul(e.load(F32, chunk, 4), new)), total, 4)
    old, new = e.splat(old, 16), e.splat(new, 16)

    def body(d: Value, _: list[Value]) -> None:
        offset = b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))
        e.store(e.fma(e.load(VECTOR, total, offset), old, b.fmul(e.load(VECTOR, chunk, offset), new)), total, offset)

    e.loop(rounded_up(e, d_head), body, step=16)


@emit("i64,i64,i64->void")
def leave_row(e, record, target, d_head):
    """target f32 [d_head] = outputs of a record divided by its sum."""
    b = e.b
    total = e.load(F32, record, 4)
    whole = b.and_(d_head, const(I64, -16))

    def divided(ty: Any, by: Value) -> Any:
        def body(d: Value, _: list[Value]) -> None:
            offset = b.shl(d, const(I64, 2))
            e.store(b.fdiv(e.load(ty, e.at(record, HEAD), offset), by), target, offset)

        return body

    e.loop(whole, divided(VECTOR, e.splat(total, 16)), step=16)
    e.loop(d_head, divided(F32, total), start=whole)


# --- scores -----------------------------------------------------------------------------------------------------------
def _scores(
    e: Emitter, kind: KVType, rows: int, q: Value, line: Value, keys: Sequence[Value], p: Value, d_head: Value,
    soon: Sequence[Value] = (),
) -> None:  # fmt: skip
    """Scores of `rows` queries with blocks of 16 positions, one fma chain each.

    q f32 [rows], `line` bytes apart; `keys` are the addresses of blocks of K; p f32 [rows][BLOCK]. `soon`: memory to
    ask for meanwhile, as much at each address as a block of K has.
    """
    b = e.b
    queries = [b.add(q, b.mul(line, const(I64, r))) for r in range(rows)]
    width = K_LANES * kind.item

    def span(scales: list[Value]) -> Any:
        def dim(d: Value, acc: list[Value]) -> list[Value]:
            column, place = b.shl(d, const(I64, 2)), b.mul(d, const(I64, width))
            acc, at = list(acc), 0
            loaded = [load16(e, kind, key, place) for key in keys]
            if scales:
                loaded = [b.fmul(x, scale) for x, scale in zip(loaded, scales, strict=True)]
            for query in queries:
                value = e.splat(e.load(F32, query, column), K_LANES)
                for key in loaded:
                    acc[at] = e.fma(value, key, acc[at])
                    at += 1
            for address in soon:
                e.prefetch(b.add(address, place), 0)
            return acc

        return dim

    totals = [const(VECTOR, 0.0)] * (rows * len(keys))
    if kind.scale:
        scales_at = b.mul(rounded_up(e, d_head), const(I64, width))

        def group(first: Value, acc: list[Value]) -> list[Value]:
            place = b.add(scales_at, first)  # 32 bytes of scales for 32 dimensions
            scales = [e.half(e.load(Vec(I16, K_LANES), key, place)) for key in keys]
            stop = e.intr("smin", d_head, b.add(first, const(I64, GROUP)))
            return e.loop(stop, span(scales), acc, start=first)

        totals = e.loop(d_head, group, totals, step=GROUP)
    else:
        totals = e.loop(d_head, span([]), totals)
    for r in range(rows):
        for i in range(len(keys)):
            e.store(totals[r * len(keys) + i], p, 4 * BLOCK * r + 4 * K_LANES * i)


def make_direct_scores(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64->void")
    def direct_scores(e, tile, n_row, k, v, row, d_head, seen):
        """Scores of up to DIRECT rows with the positions 0 .. seen of a block; asks for its values and the next keys.

        k and v are addresses of the block, `row` the bytes of a position in either.
        """
        b = e.b
        at = _Tile(e, tile, d_head)
        size = b.shl(row, const(I64, 4))
        last = b.ashr(seen, const(I64, 4))
        single = b.icmp_signed("==", n_row, const(I64, 1))
        with b.if_else(single) as (one, several):
            with one:
                # blocks after the last that the query sees repeat it; their scores are masked
                keys = [b.add(k, b.mul(size, e.intr("smin", const(I64, i), last))) for i in range(_GROUPS)]
                ahead = [b.add(k, b.mul(size, const(I64, _GROUPS + i))) for i in range(_GROUPS)]
                values = [b.add(v, b.mul(size, const(I64, i))) for i in range(_GROUPS)]
                _scores(e, kind, 1, at.query, at.line, keys, at.weights(const(I64, 0)), d_head, [*ahead, *values])
            with several:

                def group(g: Value, _: list[Value]) -> None:
                    place = b.mul(g, size)
                    p = b.add(at.weights(const(I64, 0)), b.shl(g, const(I64, 6)))
                    soon = [b.add(k, b.add(place, b.shl(size, const(I64, 2)))), b.add(v, place)]
                    _scores(e, kind, DIRECT, at.query, at.line, [b.add(k, place)], p, d_head, soon)

                e.loop(b.add(last, const(I64, 1)), group)

    return direct_scores


@emit("i64,i64,i64,i64,i64,i64->void")
def unpacked_scores(e, tile, n_row, keys, d_head, b0, seen):
    """Scores of all rows with the positions 0 .. seen of a block at b0; keys f32 [BLOCK / 16][d_pad][16]."""
    b = e.b
    at = _Tile(e, tile, d_head)
    size = b.shl(at.d_pad, const(I64, 6))

    def group(g: Value, _: list[Value]) -> None:
        key = b.add(keys, b.mul(g, size))

        def micro(r: Value, _: list[Value]) -> None:
            final = e.intr("smin", b.add(r, const(I64, MICRO - 1)), b.sub(n_row, const(I64, 1)))
            with b.if_then(b.icmp_signed(">=", at.last(final, b0), b.shl(g, const(I64, 4)))):
                q, p = b.add(at.query, b.mul(r, at.line)), b.add(at.weights(r), b.shl(g, const(I64, 6)))
                _scores(e, F32_KV, MICRO, q, at.line, [key], p, d_head)

        e.loop(n_row, micro, step=MICRO)

    e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group)


# --- softmax ----------------------------------------------------------------------------------------------------------
def _cap(e: Emitter, p: Value, cap: Value) -> None:
    """Scores of one row become cap * tanh(score)."""
    times = e.splat(cap, K_LANES)
    for i in range(_GROUPS):
        e.store(e.b.fmul(e.tanh(e.load(VECTOR, p, 4 * K_LANES * i)), times), p, 4 * K_LANES * i)


def _mask(e: Emitter, p: Value, low: Value, high: Value) -> None:
    """Scores of one row outside positions low..high of the block become LOWEST."""
    b, lanes = e.b, Vec(I32, K_LANES)
    low, high = (e.splat(b.trunc(v, I32), K_LANES) for v in (low, high))
    for i in range(_GROUPS):
        place = const(lanes, list(range(i * K_LANES, (i + 1) * K_LANES)))
        inside = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<=", place, high))
        score = e.load(VECTOR, p, 4 * K_LANES * i)
        e.store(b.select(inside, score, const(VECTOR, LOWEST)), p, 4 * K_LANES * i)


def _maximum(e: Emitter, p: Value, top: Value, factor: Value) -> None:
    """The maximum of a row goes up; `factor` is for what was summed under the old one."""
    best = e.load(VECTOR, p)
    for i in range(1, _GROUPS):
        best = e.intr("maxnum", best, e.load(VECTOR, p, 4 * K_LANES * i))
    before = e.load(F32, top)
    now = e.intr("maxnum", before, e.halving_max(best))
    e.store(now, top)
    e.store(e.lane(e.exp2(e.splat(e.b.fsub(before, now), 4)), 0), factor)


def _soften(e: Emitter, p: Value, top: Value, sums: Value, factor: Value) -> None:
    """Scores (base 2) of a row and block -> weights, in place; masked ones -> 0. A NaN stays NaN."""
    b = e.b
    now = e.splat(e.load(F32, top), K_LANES)
    total = b.fmul(e.load(VECTOR, sums), e.splat(factor, K_LANES))
    for i in range(_GROUPS):
        score = e.load(VECTOR, p, 4 * K_LANES * i)
        masked = b.fcmp_ordered("==", score, const(VECTOR, LOWEST))
        weight = b.select(masked, const(VECTOR, 0.0), e.exp2(b.fsub(score, now)))
        e.store(weight, p, 4 * K_LANES * i)
        total = b.fadd(total, weight)
    e.store(total, sums)


@emit("i64,i64,i64,i64,i64,f32->void")
def soften(e, tile, n_row, d_head, b0, window, cap):
    """The scores of a block become weights, what was summed before is brought under the new maximum.

    cap 0: none; otherwise scores come divided by the soft cap, and `cap` is the cap times log2(e).
    """
    b = e.b
    at = _Tile(e, tile, d_head)

    def maximum(r: Value, _: list[Value]) -> None:
        begin, last = at.first(r, b0, window), at.last(r, b0)
        with b.if_then(b.icmp_signed(">=", last, const(I64, 0))):
            with b.if_then(b.fcmp_unordered("!=", cap, const(F32, 0.0))):
                _cap(e, at.weights(r), cap)
            partly = b.or_(b.icmp_signed(">", begin, const(I64, 0)), b.icmp_signed("<", last, const(I64, BLOCK - 1)))
            with b.if_then(partly):
                _mask(e, at.weights(r), _clamp(e, begin, BLOCK), _clamp(e, last, BLOCK))
            _maximum(e, at.weights(r), at.chunk_record(r), at.row(_FACTOR, r, 4))

    def weigh(r: Value, _: list[Value]) -> None:
        with b.if_then(b.icmp_signed(">=", at.last(r, b0), const(I64, 0))):
            factor = e.load(F32, at.row(_FACTOR, r, 4))
            record = at.chunk_record(r)
            _soften(e, at.weights(r), record, at.row(_SUMS, r, 4 * K_LANES), factor)
            with b.if_then(b.fcmp_unordered("!=", factor, const(F32, 1.0))):
                out = b.add(record, const(I64, HEAD))
                _each16(e, at.d_pad, out, out, lambda x: b.fmul(x, e.splat(factor, 16)))

    e.loop(n_row, maximum)
    e.loop(n_row, weigh)


# --- values -----------------------------------------------------------------------------------------------------------
def _ranges(at: _Tile, rows: int, r: Value, n_row: Value, b0: Value, window: Value) -> tuple[Value, Value]:
    """The positions first .. stop - 1 that `rows` rows from r on all see; rows without a query see what others do."""
    e, b = at.e, at.e.b
    end = e.intr("smin", b.add(r, const(I64, rows)), n_row)
    first = at.first(b.sub(end, const(I64, 1)), b0, window)
    stop = _clamp(e, b.add(at.last(r, b0), const(I64, 1)), BLOCK)
    common = b.icmp_signed("<", first, stop)
    return b.select(common, first, const(I64, 0)), b.select(common, stop, const(I64, 0))


def _add(
    e: Emitter,
    rows: int,
    vectors: int,
    load: Callable[[Value, int], Value],
    p: Value,
    out: Value,
    record: Value,
    first: Value,
    stop: Value,
) -> None:
    """out [rows][16 * vectors] += weights [rows][j] * load(j, vector) for j = first .. stop - 1, one fma each."""
    b = e.b
    cells = [(r, i) for r in range(rows) for i in range(vectors)]
    targets = [b.add(out, b.mul(record, const(I64, r))) for r in range(rows)]

    def position(j: Value, acc: list[Value]) -> list[Value]:
        column = e.at(p, b.shl(j, const(I64, 2)))
        loaded = [load(j, i) for i in range(vectors)]
        weights = [e.splat(e.load(F32, column, 4 * BLOCK * r), 16) for r in range(rows)]
        return [e.fma(weights[r], loaded[i], s) for (r, i), s in zip(cells, acc, strict=True)]

    with b.if_then(b.icmp_signed("<", first, stop)):
        starts = [e.load(VECTOR, targets[r], 64 * i) for r, i in cells]
        for (r, i), total in zip(cells, e.loop(stop, position, starts, start=first), strict=True):
            e.store(total, targets[r], 64 * i)


def _add_ragged(
    at: _Tile,
    rows: int,
    load: Callable[[Value, int], Value],
    out: Callable[[Value], Value],
    limits: tuple[Value, Value, Value, Value, Value],
) -> None:
    """`_add` of one column of 16 for rows r .. r + rows - 1: what all of them see together, the rest row by row.

    What only some see is added before and after, so that an output always sums over ascending positions.
    """
    e, b = at.e, at.e.b
    r, n_row, b0, window, end = limits
    first, stop = _ranges(at, rows, r, n_row, b0, window)

    def phase(after: Value, _: list[Value]) -> None:
        is_after = b.icmp_signed("!=", after, const(I64, 0))
        together = b.select(is_after, stop, first)
        _add(e, rows, 1, load, at.weights(r), out(r), at.record, first, together)

        def single(u: Value, _: list[Value]) -> None:
            low = at.first(u, b0, window)
            begin = b.select(is_after, e.intr("smax", low, stop), low)
            seen = _clamp(e, b.add(at.last(u, b0), const(I64, 1)), BLOCK)
            limit = b.select(is_after, seen, first)
            _add(e, 1, 1, load, at.weights(u), out(u), at.record, begin, limit)

        ragged = b.or_(
            b.icmp_signed("<", at.first(r, b0, window), first),
            b.icmp_signed(
                ">", _clamp(e, at.last(b.sub(end, const(I64, 1)), b0), BLOCK - 1), b.sub(stop, const(I64, 1))
            ),
        )
        with b.if_then(ragged):
            e.loop(end, single, start=r)

    e.loop(2, phase)


def make_direct_values(kind: KVType) -> Any:
    def loader(e: Emitter, source: Value, scales: Value, row: Value) -> Callable[[Value, int], Value]:
        """16 values of position j, `source` and `scales` being those of position 0."""
        b = e.b

        def load(j: Value, i: int) -> Value:
            place = b.mul(j, row)
            x = load16(e, kind, b.add(source, place), 16 * kind.item * i)
            if kind.scale:
                scale = e.half(e.load(I16, b.add(scales, place), 2 * (i // 2)))
                x = b.fmul(x, e.splat(scale, 16))
            return x

        return load

    @emit("i64,i64,i64,i64,i64,i64,i64->void")
    def direct_values(e, tile, n_row, v, row, d_head, b0, window):
        """Up to DIRECT rows add weights times values of a block; v is its address, `row` the bytes of a position."""
        b = e.b
        at = _Tile(e, tile, d_head)

        def columns(vectors: int, d: Value) -> tuple[Callable[[Value, int], Value], Callable[[Value], Value]]:
            source = b.add(v, b.mul(d, const(I64, kind.item)))
            # two bytes for 32 values; `vectors` above 1 start at a multiple of 32
            scales = b.add(
                v, b.add(b.mul(at.d_pad, const(I64, kind.item)), b.shl(b.ashr(d, const(I64, 5)), const(I64, 1)))
            )
            offset = b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))
            return loader(e, source, scales, row), lambda r: b.add(at.chunk_record(r), offset)

        zero = const(I64, 0)
        with b.if_else(b.icmp_signed("==", n_row, const(I64, 1))) as (one, several):
            with one:
                first = at.first(zero, b0, window)
                stop = _clamp(e, b.add(at.last(zero, b0), const(I64, 1)), BLOCK)

                def single(vectors: int) -> Any:
                    def body(d: Value, _: list[Value]) -> None:
                        load, out = columns(vectors, d)
                        _add(e, 1, vectors, load, at.weights(zero), out(zero), at.record, first, stop)

                    return body

                whole = b.and_(at.d_pad, const(I64, -64))
                e.loop(whole, single(4), step=64)
                e.loop(at.d_pad, single(1), start=whole, step=16)
            with several:

                def column(d: Value, _: list[Value]) -> None:
                    load, out = columns(1, d)
                    _add_ragged(at, DIRECT, load, out, (zero, n_row, b0, window, n_row))

                e.loop(at.d_pad, column, step=16)

    return direct_values


@emit("i64,i64,i64,i64,i64->void")
def unpacked_values(e, tile, n_row, d_head, b0, window):
    """All rows add weights times the unpacked values of a block."""
    b = e.b
    at = _Tile(e, tile, d_head)

    def column(d: Value, _: list[Value]) -> None:
        slab = b.add(at.values, b.mul(b.ashr(d, const(I64, 4)), const(I64, _SLAB)))
        offset = b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))

        def load(j: Value, _: int) -> Value:
            return e.load(VECTOR, slab, b.shl(j, const(I64, 6)))

        def micro(r: Value, _: list[Value]) -> None:
            end = e.intr("smin", n_row, b.add(r, const(I64, MICRO)))
            _add_ragged(at, MICRO, load, lambda r: b.add(at.chunk_record(r), offset), (r, n_row, b0, window, end))

        e.loop(n_row, micro, step=MICRO)

    e.loop(at.d_pad, column, step=16)


# --- unpacking --------------------------------------------------------------------------------------------------------
def make_unpack(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64->i64")
    def unpack(e, tile, k, v, row, d_head, seen):
        """Positions 0 .. seen of a block as f32, keys (unless they are f32) and values; returns where the keys are."""
        b = e.b
        at = _Tile(e, tile, d_head)
        size = b.shl(row, const(I64, 4))
        width = K_LANES * kind.item

        def keys(g: Value, _: list[Value]) -> None:
            source = b.add(k, b.mul(g, size))
            target = b.add(at.keys, b.mul(g, b.shl(at.d_pad, const(I64, 6))))

            def span(scale: Value | None) -> Any:
                def dim(d: Value, _: list[Value]) -> None:
                    x = load16(e, kind, source, b.mul(d, const(I64, width)))
                    e.store(x if scale is None else b.fmul(x, scale), target, b.shl(d, const(I64, 6)))

                return dim

            if not kind.scale:
                e.loop(d_head, span(None))
                return
            scales = b.add(source, b.mul(at.d_pad, const(I64, width)))

            def group(first: Value, _: list[Value]) -> None:
                stop = e.intr("smin", d_head, b.add(first, const(I64, GROUP)))
                e.loop(stop, span(e.half(e.load(Vec(I16, K_LANES), scales, first))), start=first)

            e.loop(d_head, group, step=GROUP)

        def values(j: Value, _: list[Value]) -> None:
            source, target = b.add(v, b.mul(j, row)), b.add(at.values, b.shl(j, const(I64, 6)))
            scales = b.add(source, b.mul(at.d_pad, const(I64, kind.item)))

            def column(d: Value, _: list[Value]) -> None:
                x = load16(e, kind, source, b.mul(d, const(I64, kind.item)))
                if kind.scale:
                    scale = e.half(e.load(I16, scales, b.shl(b.ashr(d, const(I64, 5)), const(I64, 1))))
                    x = b.fmul(x, e.splat(scale, 16))
                e.store(x, target, b.mul(b.ashr(d, const(I64, 4)), const(I64, _SLAB)))

            e.loop(at.d_pad, column, step=16)

        if kind is not F32_KV:
            e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), keys)
        e.loop(b.add(seen, const(I64, 1)), values)
        # keys in f32 are as they should be; blocks lie behind one another
        return at.keys if kind is not F32_KV else k

    return unpack
