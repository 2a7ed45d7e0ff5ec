"""The tile of the attention kernels: its scratch, its rows, the online softmax, and the results of chunks.

A tile is up to TILE_ROWS rows; a row is one query (token, head); all rows use one KV head. A step takes BLOCK
positions: scores, softmax, values (attention_products.py has the first and the last).

The result of a chunk of positions is kept as
    record   f32 [16 + v_pad]: largest score, sum of weights, 14 unused, outputs not yet divided by the sum
"""

from collections.abc import Callable
from typing import Any

from ..build.jit import device
from ..emit.emitter import F32, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import host
from ..rows.hadamard import transform
from .kv import K_LANES, padded_head
from .kv_read import VECTOR, rounded_up

LANES = host().lanes
BLOCK = 64  # positions of one step of the online softmax
TILE_ROWS = 96  # maximum rows of a tile
# rows in registers at once. MICRO comes nearest to the processor's peak; DIRECT leaves registers for conversion, and
# wastes less when it is the better divisor of the number of rows
MICRO, DIRECT = (6, 4) if LANES == 8 else (12, 8)
# groups of 16 positions (or values) that MICRO rows are multiplied with at once: all their sums stay in registers
AT_ONCE = 1 if LANES == 8 else 2
# the same for rows that convert in registers: {rows: groups}, for each number of rows with its own code
GROUPS_OF = {1: 4, 4: 1} if LANES == 8 else {1: 4, 4: 4, 8: 2}
AHEAD = 40  # bits of a position
LOWEST = -3.0e38  # the maximum before the first score
HEAD = 64  # bytes of a record before its outputs

GROUPS = BLOCK // K_LANES
_WEIGHTS = 0  # f32 [row][BLOCK]: scores, then weights, of the current block
_SUMS = _WEIGHTS + TILE_ROWS * BLOCK * 4  # f32 [row][16]: sum of the weights of the chunk, by position modulo 16
# i64 [row]: last position that the query sees, plus 2^AHEAD times how far that is after its own, both ascending;
# negative: no query
_WHERE = _SUMS + TILE_ROWS * K_LANES * 4
_FACTOR = _WHERE + TILE_ROWS * 8  # f32 [row]: factor of the sums under the previous maximum
_QUERY = _FACTOR + TILE_ROWS * 4  # f32 [row][d_pad]: queries times a factor
# then, with sizes that depend on d_head (d_value <= d_head):
#   records of the chunk, records of all chunks   [row]
#   keys of a block    f32 [BLOCK / 16][d_pad][16]
#   values of a block  f32 [d_pad / 16][BLOCK + 1][16]; the extra row keeps columns from sharing cache sets
SLAB = (BLOCK + 1) * 64
CODES_BYTES = 10 << 10  # least bytes of these keys and values together: attention_codes.py needs them for its codes


@device
def rows_at_once(n_row):
    """MICRO or DIRECT, the faster for n_row rows: MICRO does a seventh more work per time, but may waste more rows."""
    if n_row <= DIRECT or (n_row + DIRECT - 1) // DIRECT * DIRECT * 8 < (n_row + MICRO - 1) // MICRO * MICRO * 7:
        return DIRECT
    return MICRO


@device
def heads_of_tile(group, rows, tasks, nth):
    """Number of query heads in a tile of up to `rows` rows: the whole `group` of a KV head, or a part of it if there
    are fewer tasks than threads."""
    n = min(group, rows)
    parts = (nth + tasks - 1) // tasks
    if parts > 1:
        n = min(n, ((group + parts - 1) // parts + DIRECT - 1) // DIRECT * DIRECT)
    return n


def record_bytes(d_value: int) -> int:
    return HEAD + 4 * padded_head(d_value)


def tile_bytes(d_head: int) -> int:
    """Scratch bytes of one thread."""
    d_pad = padded_head(d_head)
    unpacked = max(CODES_BYTES, BLOCK * d_pad * 4 + d_pad // 16 * SLAB)
    return _QUERY + TILE_ROWS * (4 * d_pad + 2 * record_bytes(d_head)) + unpacked


class Tile:
    """Addresses of the parts of a tile in the scratch at `base`."""

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

    def keys_of(self, g: Value) -> Value:
        """Address of the unpacked keys of group g of 16 positions."""
        return self.e.b.add(self.keys, self.e.b.mul(g, self.e.b.shl(self.d_pad, const(I64, 6))))

    def row(self, part: int, r: Value, size: int) -> Value:
        return self.e.b.add(self.base, self.e.b.add(self.e.b.mul(r, const(I64, size)), const(I64, part)))

    def weights(self, r: Value) -> Value:
        return self.row(_WEIGHTS, r, 4 * BLOCK)

    def chunk_record(self, r: Value) -> Value:
        return self.e.b.add(self.chunk, self.e.b.mul(r, self.record))

    def total_record(self, r: Value) -> Value:
        return self.e.b.add(self.total, self.e.b.mul(r, self.record))

    def last(self, r: Value, b0: Value) -> Value:
        """Last position that row r sees, relative to b0; negative if it sees none of the block."""
        b, unused = self.e.b, const(I64, 64 - AHEAD)
        return b.sub(b.ashr(b.shl(self.e.load(I64, self.row(_WHERE, r, 8)), unused), unused), b0)

    def first(self, r: Value, b0: Value, window: Value) -> Value:
        """First position that row r sees, relative to b0, at least 0. A negative `window` is ~position: all rows see
        from that position on."""
        b, zero = self.e.b, const(I64, 0)
        ahead = b.ashr(self.e.load(I64, self.row(_WHERE, r, 8)), const(I64, AHEAD))
        near = b.add(b.sub(b.sub(self.last(r, b0), ahead), window), const(I64, 1))
        fixed = b.sub(b.xor(window, const(I64, -1)), b0)
        return self.e.intr("smax", zero, b.select(b.icmp_signed("<", window, zero), fixed, near))


def at_most(e: Emitter, value: Value, most: Value) -> Value:
    return e.intr("smin", value, most)


def _each16(e: Emitter, d_pad: Value, source: Value, target: Value, change: Callable[[Value], Value]) -> None:
    """target[d] = change(source[d]), f32 [d_pad]."""

    def body(d: Value, _: list[Value]) -> None:
        offset = e.b.shl(d, const(I64, 2))
        e.store(change(e.load(VECTOR, source, offset)), target, offset)

    e.loop(d_pad, body, step=16)


# --- rows -------------------------------------------------------------------------------------------------------------
@emit("i64,i64,i64,i64,f32,i64,i64->void", apart=True)
def enter_row(e, tile, r, source, d_head, factor, position, block):
    """Set up row r: its query times `factor`, its position as in _WHERE, an empty total. Negative `position`: no query,
    zeros.

    block: of the Walsh-Hadamard transform in whose basis the keys are; 0: none.
    """
    b = e.b
    at = Tile(e, tile, d_head)
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
        with b.if_then(b.icmp_signed("!=", block, const(I64, 0))):
            e.function("transform", transform, query, d_head, block)
    e.store(position, at.row(_WHERE, r, 8))
    _clear_record(e, at.total_record(r), at.d_pad)


def _clear_record(e: Emitter, record: Value, d_pad: Value) -> None:
    e.store(const(F32, LOWEST), record)
    e.store(const(F32, 0.0), record, 4)
    e.loop(d_pad, lambda d, _: e.store(const(VECTOR, 0.0), e.at(record, HEAD), e.b.shl(d, const(I64, 2))), step=16)


@emit("i64,i64->void", apart=True)
def clear_record(e, record, d_value):
    """Make a record empty."""
    _clear_record(e, record, rounded_up(e, d_value))


@emit("i64,i64,i64->void", apart=True)
def begin_chunk(e, tile, n_row, d_head):
    """Start the sums of a new chunk in n_row rows."""
    at = Tile(e, tile, d_head)

    def body(r: Value, _: list[Value]) -> None:
        e.store(const(VECTOR, 0.0), at.row(_SUMS, r, 4 * K_LANES))
        _clear_record(e, at.chunk_record(r), at.d_pad)

    e.loop(n_row, body)


@emit("i64,i64,i64->i64")
def end_chunk(e, tile, r, d_head):
    """Complete the chunk record of row r with its sum of weights; returns the record's address."""
    at = Tile(e, tile, d_head)
    record = at.chunk_record(r)
    e.store(e.halving_sum(e.load(VECTOR, at.row(_SUMS, r, 4 * K_LANES))), record, 4)
    return record


@emit("i64,i64,i64->i64")
def total_record(e, tile, r, d_head):
    """Address of the record of row r over all chunks."""
    return Tile(e, tile, d_head).total_record(r)


@emit("i64,i64,i64->void", apart=True)
def copy_record(e, source, target, d_value):
    _each16(e, e.b.add(rounded_up(e, d_value), const(I64, 16)), source, target, lambda x: x)


@emit("i64,i64,i64->void", apart=True)
def merge_record(e, total, chunk, d_value):
    """Add the next chunk to `total`, both scaled to the larger of their maxima. An empty total contributes nothing."""
    b = e.b
    before, latest = e.load(F32, total), e.load(F32, chunk)
    top = e.intr("maxnum", before, latest)
    pair = e.splat(b.fsub(before, top), 4)
    pair = b.insert_element(pair, b.fsub(latest, top), const(I32, 1))
    pair = e.exp2(pair)
    old, new = e.lane(pair, 0), e.lane(pair, 1)
    e.store(top, total)
    e.store(e.fma(e.load(F32, total, 4), old, b.fmul(e.load(F32, chunk, 4), new)), total, 4)
    old, new = e.splat(old, 16), e.splat(new, 16)

    def body(d: Value, _: list[Value]) -> None:
        offset = b.add(b.shl(d, const(I64, 2)), const(I64, HEAD))
        e.store(e.fma(e.load(VECTOR, total, offset), old, b.fmul(e.load(VECTOR, chunk, offset), new)), total, offset)

    e.loop(rounded_up(e, d_value), body, step=16)


@emit("i64,i64,i64,i64->void", apart=True)
def leave_row(e, record, target, d_value, block):
    """target f32 [d_value] = outputs of a record divided by its sum of weights. Changes the record.

    block: of the Walsh-Hadamard transform in whose basis the values are; 0: none.
    """
    b = e.b
    with b.if_then(b.icmp_signed("!=", block, const(I64, 0))):
        e.function("transform", transform, b.add(record, const(I64, HEAD)), d_value, block)
    total = e.load(F32, record, 4)
    whole = b.and_(d_value, const(I64, -16))

    def divided(ty: Any, by: Value) -> Any:
        def body(d: Value, _: list[Value]) -> None:
            offset = b.shl(d, const(I64, 2))
            e.store(b.fdiv(e.load(ty, e.at(record, HEAD), offset), by), target, offset)

        return body

    e.loop(whole, divided(VECTOR, e.splat(total, 16)), step=16)
    e.loop(d_value, divided(F32, total), start=whole)


# --- softmax ----------------------------------------------------------------------------------------------------------
def _cap(e: Emitter, p: Value, cap: Value) -> None:
    """Scores of one row become cap * tanh(score)."""
    times = e.splat(cap, K_LANES)

    def body(i: Value, _: list[Value]) -> None:
        place = e.b.shl(i, const(I64, 6))
        e.store(e.b.fmul(e.tanh(e.load(VECTOR, p, place)), times), p, place)

    e.loop(GROUPS, body)


def _mask(e: Emitter, p: Value, low: Value, high: Value) -> None:
    """Scores of one row outside positions low..high of the block become LOWEST."""
    b, lanes = e.b, Vec(I32, K_LANES)
    low, high = (e.splat(b.trunc(v, I32), K_LANES) for v in (low, high))
    for i in range(GROUPS):
        place = const(lanes, list(range(i * K_LANES, (i + 1) * K_LANES)))
        inside = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<=", place, high))
        score = e.load(VECTOR, p, 4 * K_LANES * i)
        e.store(b.select(inside, score, const(VECTOR, LOWEST)), p, 4 * K_LANES * i)


def _larger(e: Emitter, a: Value, b: Value) -> Value:
    """max(a, b); may drop a NaN, which the weights bring back. One instruction on x86."""
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


def _maximum(e: Emitter, p: Value, top: Value, fall: Value) -> None:
    """Update the maximum of a row at `top` with scores p; writes the old maximum minus the new, <= 0, to `fall`."""
    parts = [e.load(VECTOR, p, 4 * K_LANES * i) for i in range(GROUPS)]
    while len(parts) > 1:
        parts = [_larger(e, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    best, n = parts[0], K_LANES
    while n > 1:
        n //= 2
        best = _larger(e, e.part(best, 0, n), e.part(best, n, n))
    before = e.load(F32, top)
    now = _larger(e, e.lane(best, 0), before)
    e.store(now, top)
    e.store(e.b.fsub(before, now), fall)


def _soften(e: Emitter, p: Value, top: Value, sums: Value, factor: Value) -> None:
    """Scores (base 2) of a row and block -> weights, in place. A NaN stays NaN.

    Masked scores get the weight 2^-126, negligible beside the maximum's 1; it is never multiplied with a value.
    """
    b = e.b
    now = e.splat(e.load(F32, top), K_LANES)
    total = b.fmul(e.load(VECTOR, sums), e.splat(factor, K_LANES))
    for i in range(GROUPS):
        weight = e.exp2(b.fsub(e.load(VECTOR, p, 4 * K_LANES * i), now))
        e.store(weight, p, 4 * K_LANES * i)
        total = b.fadd(total, weight)
    e.store(total, sums)


@emit("i64,i64,i64,i64,i64,f32->void", apart=True)
def soften(e, tile, n_row, d_head, b0, window, cap):
    """Turn the scores of a block into weights, and rescale the earlier sums to the new maximum.

    cap: 0: none; otherwise the scores come divided by the soft cap, and `cap` is the soft cap times log2(e).
    """
    b = e.b
    at = Tile(e, tile, d_head)
    end = const(I64, BLOCK - 1)

    def seen(r: Value) -> tuple[Value, Value, Value]:
        """First and last position that row r sees, and whether it sees any in this block."""
        first, last = at.first(r, b0, window), at.last(r, b0)
        return first, last, b.and_(b.icmp_signed(">=", last, const(I64, 0)), b.icmp_signed("<=", first, end))

    def maximum(r: Value, _: list[Value]) -> None:
        first, last, any_ = seen(r)
        with b.if_then(any_):
            with b.if_then(b.fcmp_unordered("!=", cap, const(F32, 0.0))):
                _cap(e, at.weights(r), cap)
            partly = b.or_(b.icmp_signed(">", first, const(I64, 0)), b.icmp_signed("<", last, end))
            with b.if_then(partly):
                _mask(e, at.weights(r), first, at_most(e, last, end))
            _maximum(e, at.weights(r), at.chunk_record(r), at.row(_FACTOR, r, 4))

    def factors(r: Value, _: list[Value]) -> None:
        place = at.row(_FACTOR, r, 4)
        e.store(e.exp2(e.load(VECTOR, place)), place)

    def weigh(r: Value, _: list[Value]) -> None:
        with b.if_then(seen(r)[2]):
            factor = e.load(F32, at.row(_FACTOR, r, 4))
            record = at.chunk_record(r)
            _soften(e, at.weights(r), record, at.row(_SUMS, r, 4 * K_LANES), factor)
            with b.if_then(b.fcmp_unordered("!=", factor, const(F32, 1.0))):
                out = b.add(record, const(I64, HEAD))
                _each16(e, at.d_pad, out, out, lambda x: b.fmul(x, e.splat(factor, 16)))

    e.loop(n_row, maximum)
    e.loop(n_row, factors, step=16)
    e.loop(n_row, weigh)
