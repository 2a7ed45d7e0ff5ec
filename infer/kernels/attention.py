"""Attention kernels: rotary embedding, storing keys and values, causal attention in one pass over the cache.

    ctl   i64 [3]         number of tokens, of segments, of outputs
    pos   i64 [tok]       position of the token in its sequence
    slot  i64 [tok]       memory slot of its sequence; tokens of one sequence are neighbours, in order
    ctr   i64             counter of work items, zero before each run
    K     f32 [slot][head_kv][n_ctx / 16][d_head][16]     positions in the lanes: a score needs no sum over lanes
    V     f32 [slot][head_kv][n_ctx][d_head]

n_ctx is a multiple of 16. The keys are read in blocks of BLOCK positions aligned to position 0, so that the order of
all sums of a query follows from its position alone: neither the other queries of a tile, nor the split of a prompt,
nor the threads change a bit. Cache positions after the query's own may hold anything, NaN too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .emit import F32, I32, I64, LOG2E, Emitter, Value, Vec, arg, atomic_add, const, emit, ldf, ldi, stf
from .isa import host
from .jit import kernel

LANES = host().lanes
K_LANES = 16  # positions side by side in K
BLOCK = 64  # positions of one step of the online softmax
TILE_ROWS = 64  # queries (token x head) of a tile, at most
MICRO = 4 if LANES == 8 else 8  # queries in registers at once
LOWEST = -3.0e38  # a maximum before the first score
ROTATE_ITEM = 4096  # values rotated by one item

NORM, NEOX = 0, 1  # styles of `rope`

_GROUPS = BLOCK // K_LANES
_LOG2E = np.float32(LOG2E)


# --- sizes and tables -------------------------------------------------------------------------------------------------
def padded_context(n_ctx: int) -> int:
    """Positions a cache must hold for `n_ctx`: a multiple of 16."""
    return -(-n_ctx // K_LANES) * K_LANES


def kv_bytes(n_ctx: int, n_kv: int, d_head: int) -> int:
    """Bytes of K, and again of V, of one slot of one layer."""
    return 4 * padded_context(n_ctx) * n_kv * d_head


def attention_scratch_bytes(d_head: int) -> int:
    """Scratch of `attention` for one thread: a tile."""
    return _QUERY + TILE_ROWS * 8 * d_head


def rope_table(
    n_ctx: int,
    n_rot: int,
    freq_base: float,
    freq_scale: float = 1.0,
    factors: npt.ArrayLike | None = None,
    magnitude: float = 1.0,
) -> npt.NDArray[np.float32]:
    """cos and sin of `rope`: f32 [n_ctx, n_rot / 2, 2], computed in float64.

    Pair i turns by position * freq_scale * freq_base ** (-2 i / n_rot) / factors[i]; both are times `magnitude`.
    """
    turn = float(freq_base) ** (-2.0 * np.arange(n_rot // 2, dtype=np.float64) / n_rot) * freq_scale
    if factors is not None:
        turn = turn / np.asarray(factors, np.float64)
    angle = np.arange(n_ctx, dtype=np.float64)[:, None] * turn
    return np.stack([np.cos(angle) * magnitude, np.sin(angle) * magnitude], axis=-1).astype(np.float32)


# --- rope -------------------------------------------------------------------------------------------------------------
def _rotate(width: int, neox: bool) -> Callable[..., Any]:
    """`width` pairs from pair i on: (a, b) -> (a cos - b sin, a sin + b cos)."""

    def rotate(e: Emitter, x: Value, table: Value, i: Value, half: Value) -> None:
        b = e.b
        one, two = Vec(F32, width), Vec(F32, 2 * width)
        evens, odds = list(range(0, 2 * width, 2)), list(range(1, 2 * width, 2))
        pairs = b.shl(i, const(I64, 3))
        cs = e.load(two, table, pairs)
        c, s = e.shuffle(cs, evens), e.shuffle(cs, odds)
        if neox:
            low = b.shl(i, const(I64, 2))
            high = b.add(low, b.shl(half, const(I64, 2)))
            u, v = e.load(one, x, low), e.load(one, x, high)
        else:
            uv = e.load(two, x, pairs)
            u, v = e.shuffle(uv, evens), e.shuffle(uv, odds)
        first = e.fma(u, c, b.fneg(b.fmul(v, s)))
        second = e.fma(u, s, b.fmul(v, c))
        if neox:
            e.store(first, x, low)
            e.store(second, x, high)
        else:
            e.store(e.shuffle(first, [j // 2 + width * (j % 2) for j in range(2 * width)], second), x, pairs)

    return rotate


_ROTATE = "i64,i64,i64,i64->void"
rotate_norm_wide, rotate_norm_one = emit(_ROTATE)(_rotate(8, False)), emit(_ROTATE)(_rotate(1, False))
rotate_neox_wide, rotate_neox_one = emit(_ROTATE)(_rotate(8, True)), emit(_ROTATE)(_rotate(1, True))


@kernel
def rope(a, tid, nth):
    """Rotary position embedding of the first n_rot values of each head, in place.

     0 ctl, 1 pos
     2 x, 3 ldx     f32 [tok][head][d_head]
     4 n_head, 5 d_head, 6 n_rot (even)
     7 table        f32 [n_ctx][n_rot / 2][2] cos, sin: see `rope_table`
     8 style        NORM: pairs (2i, 2i + 1), NEOX: pairs (i, i + n_rot / 2)
     9 ctr

    Reference: tests/reference/attention.py. Error: 2e-7 of max(1, |x|).
    """
    n_tok = ldi(arg(a, 0))
    pos, n_head, d_head, half = arg(a, 1), arg(a, 4), arg(a, 5), arg(a, 6) // 2
    neox = arg(a, 8) != NORM
    total = n_tok * n_head
    chunk = max(1, ROTATE_ITEM // max(1, d_head))
    while True:
        first = atomic_add(arg(a, 9), 1) * chunk
        if first >= total:
            break
        for j in range(first, min(total, first + chunk)):
            t = j // n_head
            x = arg(a, 2) + t * arg(a, 3) + (j - t * n_head) * d_head * 4
            table = arg(a, 7) + ldi(pos + 8 * t) * half * 8
            i = 0
            if neox:
                while i + 8 <= half:
                    rotate_neox_wide(x, table, i, half)
                    i += 8
                while i < half:
                    rotate_neox_one(x, table, i, half)
                    i += 1
            else:
                while i + 8 <= half:
                    rotate_norm_wide(x, table, i, half)
                    i += 8
                while i < half:
                    rotate_norm_one(x, table, i, half)
                    i += 1


# --- kv_store ---------------------------------------------------------------------------------------------------------
@kernel
def kv_store(a, tid, nth):
    """Write the keys and values of the batch into the cache.

     0 ctl, 1 pos, 2 slot
     3 k, 4 ldk, 5 v, 6 ldv     f32 [tok][head_kv][d_head], keys after rope
     7 K, 8 V                   the caches
     9 K slot stride, 10 V slot stride, in bytes
    11 n_kv, 12 d_head, 13 n_ctx
    """
    n_kv, d_head, n_ctx = arg(a, 11), arg(a, 12), arg(a, 13)
    total = ldi(arg(a, 0)) * n_kv
    for j in range(total * tid // nth, total * (tid + 1) // nth):
        t = j // n_kv
        h = j - t * n_kv
        p, s = ldi(arg(a, 1) + 8 * t), ldi(arg(a, 2) + 8 * t)
        source = arg(a, 3) + t * arg(a, 4) + h * d_head * 4
        target = arg(a, 7) + s * arg(a, 9) + (h * n_ctx + p // K_LANES * K_LANES) * d_head * 4 + p % K_LANES * 4
        for d in range(d_head):
            stf(target + d * (4 * K_LANES), ldf(source + 4 * d))
        source = arg(a, 5) + t * arg(a, 6) + h * d_head * 4
        target = arg(a, 8) + s * arg(a, 10) + (h * n_ctx + p) * d_head * 4
        for d in range(d_head):
            stf(target + 4 * d, ldf(source + 4 * d))


# --- attention: pieces of a tile --------------------------------------------------------------------------------------
# A tile is up to TILE_ROWS rows, a row is one query (token, head); all use one KV head. Its scratch:
_WEIGHTS = 0  # f32 [row][BLOCK]: scores, then weights, of the current block
_SUMS = _WEIGHTS + TILE_ROWS * BLOCK * 4  # f32 [row][16]: sum of the weights so far, by position modulo 16
_WHERE = _SUMS + TILE_ROWS * K_LANES * 4  # i64 [row]: position of the query, ascending
_TOP = _WHERE + TILE_ROWS * 8  # f32 [row]: largest score so far
_FACTOR = _TOP + TILE_ROWS * 4  # f32 [row]: what sums under the previous maximum are worth
_QUERY = _FACTOR + TILE_ROWS * 4  # f32 [row][d_head]: queries times scale and log2(e)
# ... and from _QUERY + TILE_ROWS * 4 * d_head on the outputs, f32 [row][d_head], until they are divided by the sums

VECTOR = Vec(F32, K_LANES)


def _scores(
    e: Emitter,
    rows: int,
    q: Value,
    k: Value,
    p: Value,
    d_head: Value,
    groups: Sequence[Value],
    soon: Value,
    step: Value,
) -> None:
    """Scores of `rows` queries with groups of 16 positions, one fma chain each.

    q f32 [rows][d_head]; k f32 [group][d_head][16], its groups given by number; p f32 [rows][BLOCK]. Meanwhile as much
    memory is asked for, at k after the groups, and at `soon`: to be read next; `step` is 64, or 0 to ask for nothing.
    """
    b = e.b
    size = b.shl(d_head, const(I64, 6))
    line = b.shl(d_head, const(I64, 2))
    queries = [b.add(q, b.mul(line, const(I64, r))) for r in range(rows)]
    keys = [b.add(k, b.mul(size, g)) for g in groups]
    later = b.mul(size, const(I64, len(groups)))

    def dim(d: Value, acc: list[Value]) -> list[Value]:
        column, place, ahead = b.shl(d, const(I64, 2)), b.shl(d, const(I64, 6)), b.mul(d, step)
        acc, at = list(acc), 0
        loaded = [e.load(VECTOR, ki, place) for ki in keys]
        for query in queries:
            value = e.splat(e.load(F32, query, column), K_LANES)
            for key in loaded:
                acc[at] = e.fma(value, key, acc[at])
                at += 1
        for i in range(len(keys)):
            from_here = b.add(b.mul(size, const(I64, i)), ahead)
            e.prefetch(b.add(k, b.add(later, from_here)), 0)
            e.prefetch(b.add(soon, from_here), 0)
        return acc

    totals = iter(e.loop(d_head, dim, [const(VECTOR, 0.0)] * (rows * len(keys))))
    for r in range(rows):
        for i in range(len(keys)):
            e.store(next(totals), p, 4 * BLOCK * r + 4 * K_LANES * i)


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


def _values(e: Emitter, rows: int, p: Value, v: Value, d_head: Value, out: Value, first: Value, stop: Value) -> None:
    """out [rows][d_head] += weights [rows][j] * V [j][d_head] for j = first .. stop - 1, ascending, one fma each."""
    b = e.b
    line = b.shl(d_head, const(I64, 2))

    def columns(vectors: int, width: int) -> Callable[[Value, list[Value]], None]:
        ty, cells = Vec(F32, width), [(r, i) for r in range(rows) for i in range(vectors)]

        def body(d: Value, _: list[Value]) -> None:
            offset = b.shl(d, const(I64, 2))
            source = b.add(v, offset)
            targets = [b.add(b.add(out, offset), b.mul(line, const(I64, r))) for r in range(rows)]

            def position(j: Value, acc: list[Value]) -> list[Value]:
                values, column = e.at(source, b.mul(j, line)), e.at(p, b.shl(j, const(I64, 2)))
                loaded = [e.load(ty, values, 4 * width * i) for i in range(vectors)]
                weights = [e.splat(e.load(F32, column, 4 * BLOCK * r), width) for r in range(rows)]
                return [e.fma(weights[r], loaded[i], s) for (r, i), s in zip(cells, acc, strict=True)]

            starts = [e.load(ty, targets[r], 4 * width * i) for r, i in cells]
            for (r, i), total in zip(cells, e.loop(stop, position, starts, start=first), strict=True):
                e.store(total, targets[r], 4 * width * i)

        return body

    _over_columns(e, d_head, columns, max(1, 4 // rows))


def _over_columns(e: Emitter, d_head: Value, columns: Any, most: int) -> None:
    """columns(vectors, width)(d) over 0 .. d_head - 1 in steps of most * 16, 16 and 1."""
    done: Value | int = 0
    for vectors, width in ((most, K_LANES), (1, K_LANES), (1, 1)) if most > 1 else ((1, K_LANES), (1, 1)):
        step = vectors * width
        stop = e.b.and_(d_head, const(I64, -step))
        e.loop(stop, columns(vectors, width), start=done, step=step)
        done = stop


def _each(e: Emitter, d_head: Value, source: Value, target: Value, change: Callable[[Value], Value]) -> None:
    """target[d] = change(source[d])."""

    def columns(_: int, width: int) -> Callable[[Value, list[Value]], None]:
        def body(d: Value, _: list[Value]) -> None:
            offset = e.b.shl(d, const(I64, 2))
            e.store(change(e.load(Vec(F32, width), source, offset)), target, offset)

        return body

    _over_columns(e, d_head, columns, 1)


@emit("i64,i64,i64,i64,f32,i64->void")
def enter_row(e, tile, r, source, d_head, factor, position):
    """Row r of a tile: its query times `factor`; zero sums."""
    b = e.b
    line = b.shl(d_head, const(I64, 2))
    query = b.add(b.add(tile, const(I64, _QUERY)), b.mul(r, line))
    _each(e, d_head, source, query, lambda x: b.fmul(x, e.splat(factor, x.type.count)))
    out = b.add(query, b.mul(line, const(I64, TILE_ROWS)))
    _each(e, d_head, out, out, lambda x: const(x.type, 0.0))
    e.store(const(VECTOR, 0.0), b.add(tile, b.shl(r, const(I64, 6))), _SUMS)
    e.store(position, b.add(tile, b.shl(r, const(I64, 3))), _WHERE)
    e.store(const(F32, LOWEST), b.add(tile, b.shl(r, const(I64, 2))), _TOP)


@emit("i64,i64,i64,i64->void")
def leave_row(e, tile, r, target, d_head):
    """Outputs of row r divided by the sum of its weights."""
    b = e.b
    total = e.halving_sum(e.load(VECTOR, b.add(tile, b.shl(r, const(I64, 6))), _SUMS))
    line = b.shl(d_head, const(I64, 2))
    out = b.add(b.add(tile, const(I64, _QUERY)), b.mul(line, b.add(r, const(I64, TILE_ROWS))))
    _each(e, d_head, out, target, lambda x: b.fdiv(x, e.splat(total, x.type.count)))


@emit("i64,i64,i64,i64,i64,i64,i64,i64->void")
def take_block(e, tile, n_row, k, v, d_head, b0, final, window):
    """All rows of a tile with the block of positions b0 .. b0 + BLOCK - 1; k and v are its addresses.

    Full groups of MICRO rows share their loads, for V over the positions that all of them see; what only some see is
    added row by row before and after, so that an output always sums over ascending positions and nothing else.
    """
    b = e.b
    line = b.shl(d_head, const(I64, 2))
    query = b.add(tile, const(I64, _QUERY))
    outputs = b.add(query, b.mul(line, const(I64, TILE_ROWS)))
    zero, one = const(I64, 0), const(I64, 1)
    whole = b.sub(n_row, b.urem(n_row, const(I64, MICRO)))

    def high(r: Value) -> Value:  # last position that row r sees, from b0; negative if none
        return b.sub(e.load(I64, b.add(tile, b.shl(r, const(I64, 3))), _WHERE), b0)

    def low(r: Value) -> Value:
        return e.intr("smax", zero, b.add(b.sub(high(r), window), one))

    def weights(r: Value) -> Value:
        return b.add(tile, b.mul(r, const(I64, 4 * BLOCK)))

    def score_group(g: Value, _: list[Value]) -> None:
        skipped = b.mul(g, b.shl(line, const(I64, 4)))

        def micro(r: Value, _: list[Value]) -> None:
            with b.if_then(b.icmp_signed(">=", high(b.add(r, const(I64, MICRO - 1))), b.shl(g, const(I64, 4)))):
                p, q = b.add(weights(r), b.shl(g, const(I64, 6))), b.add(query, b.mul(r, line))
                step = b.select(b.icmp_signed("==", r, zero), const(I64, 64), zero)
                _scores(e, MICRO, q, b.add(k, skipped), p, d_head, [zero], b.add(v, skipped), step)

        e.loop(whole, micro, step=MICRO)

    seen = e.intr("smin", b.sub(final, b0), const(I64, BLOCK - 1))
    e.loop(b.add(b.ashr(seen, const(I64, 4)), one), score_group)

    def score_single(r: Value, _: list[Value]) -> None:
        with b.if_then(b.icmp_signed(">=", high(r), zero)):
            # groups after the last that the query sees repeat it; their scores are masked
            last = b.ashr(e.intr("smin", high(r), const(I64, BLOCK - 1)), const(I64, 4))
            groups = [e.intr("smin", const(I64, i), last) for i in range(_GROUPS)]
            _scores(e, 1, b.add(query, b.mul(r, line)), k, weights(r), d_head, groups, v, const(I64, 64))

    e.loop(n_row, score_single, start=whole)

    def of_row(part: int, r: Value, size: int) -> Value:
        return b.add(tile, b.add(b.mul(r, const(I64, size)), const(I64, part)))

    def maximum(r: Value, _: list[Value]) -> None:
        with b.if_then(b.icmp_signed(">=", high(r), zero)):
            begin, last = low(r), high(r)
            partly = b.or_(b.icmp_signed(">", begin, zero), b.icmp_signed("<", last, const(I64, BLOCK - 1)))
            with b.if_then(partly):
                limits = (e.intr("smin", v, const(I64, BLOCK)) for v in (begin, last))
                _mask(e, weights(r), *limits)
            _maximum(e, weights(r), of_row(_TOP, r, 4), of_row(_FACTOR, r, 4))

    def soften(r: Value, _: list[Value]) -> None:
        with b.if_then(b.icmp_signed(">=", high(r), zero)):
            factor = e.load(F32, of_row(_FACTOR, r, 4))
            _soften(e, weights(r), of_row(_TOP, r, 4), of_row(_SUMS, r, 4 * K_LANES), factor)
            with b.if_then(b.fcmp_unordered("!=", factor, const(F32, 1.0))):
                out = b.add(outputs, b.mul(r, line))
                _each(e, d_head, out, out, lambda x: b.fmul(x, e.splat(factor, x.type.count)))

    e.loop(n_row, maximum)
    e.loop(n_row, soften)

    def add_values(r: Value, _: list[Value]) -> None:
        end = e.intr("smin", n_row, b.add(r, const(I64, MICRO)))
        first = low(b.sub(end, one))
        stop = e.intr("smin", const(I64, BLOCK), b.add(high(r), one))
        common = b.and_(b.icmp_signed("<", first, stop), b.icmp_signed("<", r, whole))
        first, stop = b.select(common, first, zero), b.select(common, stop, zero)

        def phase(after: Value, _: list[Value]) -> None:
            is_after = b.icmp_signed("!=", after, zero)
            with b.if_then(b.and_(is_after, common)):
                _values(e, MICRO, weights(r), v, d_head, b.add(outputs, b.mul(r, line)), first, stop)

            def single(u: Value, _: list[Value]) -> None:
                begin = b.select(is_after, e.intr("smax", low(u), stop), low(u))
                seen = e.intr("smin", const(I64, BLOCK), b.add(high(u), one))
                limit = b.select(is_after, seen, first)
                with b.if_then(b.icmp_signed("<", begin, limit)):
                    _values(e, 1, weights(u), v, d_head, b.add(outputs, b.mul(u, line)), begin, limit)

            e.loop(end, single, start=r)

        e.loop(2, phase)

    e.loop(n_row, add_values, step=MICRO)


@kernel
def attention(a, tid, nth):
    """Causal attention with grouped heads: query head h uses KV head h // (n_head / n_kv).

        out = sum_j w_j V_j / sum_j w_j,  w_j = exp(scale * q . K_j - maximum),  j <= pos (and j > pos - window)

    One pass over the keys with an online softmax (Dao 2023, arXiv:2307.08691).

     0 ctl, 1 pos, 2 slot
     3 q, 4 ldq       f32 [tok][head][d_head] after rope
     5 K, 6 V         the caches, with the batch's own keys and values in them
     7 K slot stride, 8 V slot stride, in bytes
     9 out, 10 ldo    f32 [tok][head][d_head]; may be q
    11 n_head, 12 n_kv, 13 d_head
    14 scale          f32 bits in the low half
    15 n_ctx          capacity of a slot, a multiple of 16
    16 scratch, 17 scratch bytes per thread: see `attention_scratch_bytes`
    18 ctr
    19 window         0: none; otherwise a query sees the last `window` positions, itself included

    A score is one chain of fma over d_head. Reference: tests/reference/attention.py. Error: 5e-6 of max(1, |out|)
    (d_head 128, scores of deviation 3; 1e-6 at d_head 16).
    """
    n_tok = ldi(arg(a, 0))
    pos, slot, q, ldq, out, ldo = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 9), arg(a, 10)
    n_kv, d_head, n_ctx, ctr, window = arg(a, 12), arg(a, 13), arg(a, 15), arg(a, 18), arg(a, 19)
    scratch = arg(a, 16) + tid * arg(a, 17)
    line, factor = 4 * d_head, ldf(a + 8 * 14) * _LOG2E
    if window <= 0:
        window = 1 << 40
    group = arg(a, 11) // n_kv
    # a tile has all heads of a KV head and several tokens; with fewer tiles than threads the heads are shared out
    n_head = min(group, TILE_ROWS)
    tasks = max(1, n_tok * n_kv)
    parts = (nth + tasks - 1) // tasks
    if parts > 1:
        n_head = min(n_head, ((group + parts - 1) // parts + MICRO - 1) // MICRO * MICRO)
    parts = (group + n_head - 1) // n_head
    many = max(1, n_tok * n_kv * parts // (4 * nth))
    tile = min(TILE_ROWS // n_head, many)
    n_tile = (n_tok + tile - 1) // tile
    total = n_tile * n_kv * parts
    while True:
        i = atomic_add(ctr, 1)
        if i >= total:
            break
        rest = i % (n_kv * parts)
        h_kv = rest // parts
        h0 = h_kv * group + rest % parts * n_head
        h1 = min(h0 + n_head, (h_kv + 1) * group)
        t = (n_tile - 1 - i // (n_kv * parts)) * tile  # the last tokens have most to do: first
        end = min(n_tok, t + tile)
        while t < end:
            s = ldi(slot + 8 * t)
            u = t + 1
            while u < end and ldi(slot + 8 * u) == s:
                u += 1
            k = arg(a, 5) + s * arg(a, 7) + h_kv * n_ctx * line
            v = arg(a, 6) + s * arg(a, 8) + h_kv * n_ctx * line
            n_row = (u - t) * (h1 - h0)
            for r in range(n_row):
                w = t + r // (h1 - h0)
                source = q + w * ldq + (h0 + r % (h1 - h0)) * line
                enter_row(scratch, r, source, d_head, factor, ldi(pos + 8 * w))
            start, final = ldi(pos + 8 * t) - window + 1, ldi(pos + 8 * (u - 1))
            for b0 in range(max(0, start) // BLOCK * BLOCK, final + 1, BLOCK):
                take_block(scratch, n_row, k + b0 * line, v + b0 * line, d_head, b0, final, window)
            for r in range(n_row):
                leave_row(scratch, r, out + (t + r // (h1 - h0)) * ldo + (h0 + r % (h1 - h0)) * line, d_head)
            t = u
