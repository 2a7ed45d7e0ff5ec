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

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .emit import F32, I32, I64, LOG2E, Emitter, Value, Vec, arg, atomic_add, const, emit, ldf, ldi, stf, sti
from .isa import host
from .jit import device, kernel

LANES = host().lanes
K_LANES = 16  # positions side by side in K
BLOCK = 64  # positions of one step of the online softmax
TILE_ROWS = 64  # queries (token x head) of a tile, at most
MICRO = 4 if LANES == 8 else 8  # queries in registers at once
LOWEST = -3.0e38  # a maximum before the first score
ROTATE_ITEM = 4096  # values rotated by one item

NORM, NEOX = 0, 1  # styles of `rope`

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_LOWEST = np.float32(LOWEST)
_LOG2E = np.float32(LOG2E)


# --- sizes and tables -------------------------------------------------------------------------------------------------
def padded_context(n_ctx: int) -> int:
    """Positions a cache must hold for `n_ctx`: a multiple of 16."""
    return -(-n_ctx // K_LANES) * K_LANES


def kv_bytes(n_ctx: int, n_kv: int, d_head: int) -> int:
    """Bytes of K, and again of V, of one slot of one layer."""
    return 4 * padded_context(n_ctx) * n_kv * d_head


def attention_scratch_bytes(d_head: int) -> int:
    """Scratch of `attention` for one thread: Q and O of a tile, its scores, sums, maxima, factors and positions."""
    per_row = 4 * d_head + 4 * d_head + 4 * BLOCK + 4 * K_LANES + 4 + 4 + 8
    return -(-TILE_ROWS * per_row // 64) * 64


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


# --- attention: pieces ------------------------------------------------------------------------------------------------
def _scores(rows: int) -> Callable[..., Any]:
    """Scores of `rows` queries with 16 positions: q f32 [d_head][rows], k f32 [d_head][16], p row stride BLOCK."""

    def scores(e: Emitter, q: Value, k: Value, p: Value, d_head: Value) -> None:
        b, ty = e.b, Vec(F32, K_LANES)

        def dim(d: Value, acc: list[Value]) -> list[Value]:
            keys = e.load(ty, k, b.shl(d, const(I64, 6)))
            at = e.at(q, b.mul(d, const(I64, 4 * rows)))
            return [e.fma(e.splat(e.load(F32, at, 4 * r), K_LANES), keys, acc[r]) for r in range(rows)]

        for r, total in enumerate(e.loop(d_head, dim, [const(ty, 0.0)] * rows)):
            e.store(total, p, 4 * BLOCK * r)

    return scores


def _scores_block(e: Emitter, q: Value, k: Value, p: Value, d_head: Value, last: Value) -> None:
    """Scores of one query with a whole block; groups of 16 after the `last` one repeat it and are masked later."""
    b, ty = e.b, Vec(F32, K_LANES)
    keys = []
    for i in range(BLOCK // K_LANES):
        group = b.select(b.icmp_signed("<", const(I64, i), last), const(I64, i), last)
        keys.append(b.add(k, b.shl(b.mul(group, d_head), const(I64, 6))))

    def dim(d: Value, acc: list[Value]) -> list[Value]:
        query = e.splat(e.load(F32, q, b.shl(d, const(I64, 2))), K_LANES)
        return [e.fma(query, e.load(ty, ki, b.shl(d, const(I64, 6))), s) for ki, s in zip(keys, acc, strict=True)]

    for i, total in enumerate(e.loop(d_head, dim, [const(ty, 0.0)] * len(keys))):
        e.store(total, p, 4 * K_LANES * i)


scores_micro = emit("i64,i64,i64,i64->void")(_scores(MICRO))
scores_block = emit("i64,i64,i64,i64,i64->void")(_scores_block)


@emit("i64,i64,i64,i64,i64->f32")
def soften(e, p, top, sums, low, high):
    """Scores (base 2) of a row and block -> weights, in place; positions outside low..high get weight zero.

    top f32: the row's maximum so far; sums f32 [16]: its weights' sum so far, by lanes. Returns the factor for what was
    summed under the old maximum. A NaN among the scores stays NaN.
    """
    b, ty, lanes = e.b, Vec(F32, K_LANES), Vec(I32, K_LANES)
    low, high = (e.splat(b.trunc(v, I32), K_LANES) for v in (low, high))
    rows, inside = [], []
    for i in range(BLOCK // K_LANES):
        place = const(lanes, list(range(i * K_LANES, (i + 1) * K_LANES)))
        inside.append(b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<=", place, high)))
        rows.append(e.load(ty, p, 4 * K_LANES * i))
    best = const(ty, LOWEST)
    for row, valid in zip(rows, inside, strict=True):
        best = e.intr("maxnum", b.select(valid, row, const(ty, LOWEST)), best)
    before = e.load(F32, top)
    now = e.intr("maxnum", before, e.halving_max(best))
    e.store(now, top)
    factor = e.exp2(e.splat(b.fsub(before, now), K_LANES))
    total = b.fmul(e.load(ty, sums), factor)
    now = e.splat(now, K_LANES)
    for i, (row, valid) in enumerate(zip(rows, inside, strict=True)):
        t = b.fsub(row, now)
        weight = b.select(b.fcmp_unordered("uno", t, t), t, e.exp2(t))
        weight = b.select(valid, weight, const(ty, 0.0))
        e.store(weight, p, 4 * K_LANES * i)
        total = b.fadd(total, weight)
    e.store(total, sums)
    return e.lane(factor, 0)


def _values(rows: int, vectors: int, width: int = 16) -> Callable[..., Any]:
    """out [rows][vectors * width] += weights [rows][j] * V [j][...] for j in first .. stop - 1, ascending."""

    def values(e: Emitter, p: Value, v: Value, ldv: Value, out: Value, ldo: Value, first: Value, stop: Value) -> None:
        b, ty = e.b, Vec(F32, width)
        cells = [(r, i) for r in range(rows) for i in range(vectors)]
        starts = [b.add(out, b.mul(ldo, const(I64, r))) for r in range(rows)]

        def position(j: Value, acc: list[Value]) -> list[Value]:
            line, column = e.at(v, b.mul(j, ldv)), e.at(p, b.shl(j, const(I64, 2)))
            loaded = [e.load(ty, line, 4 * width * i) for i in range(vectors)]
            weights = [e.splat(e.load(F32, column, 4 * BLOCK * r), width) for r in range(rows)]
            return [e.fma(weights[r], loaded[i], s) for (r, i), s in zip(cells, acc, strict=True)]

        sums = e.loop(stop, position, [e.load(ty, starts[r], 4 * width * i) for r, i in cells], start=first)
        for (r, i), total in zip(cells, sums, strict=True):
            e.store(total, starts[r], 4 * width * i)

    return values


_VALUES = "i64,i64,i64,i64,i64,i64,i64->void"
values_micro = emit(_VALUES)(_values(MICRO, 1))
values_four, values_wide, values_one = (emit(_VALUES)(_values(1, *n)) for n in ((4,), (1,), (1, 1)))


def _scaled(width: int, divide: bool) -> Callable[..., Any]:
    def scaled(e: Emitter, source: Value, target: Value, factor: Value) -> None:
        ty = Vec(F32, width)
        operate = e.b.fdiv if divide else e.b.fmul
        e.store(operate(e.load(ty, source), e.splat(factor, width)), target)

    return scaled


_SCALED = "i64,i64,f32->void"
times_wide, times_one = emit(_SCALED)(_scaled(16, False)), emit(_SCALED)(_scaled(1, False))
over_wide, over_one = emit(_SCALED)(_scaled(16, True)), emit(_SCALED)(_scaled(1, True))


@emit("i64->f32")
def lane_sum(e, address):
    """Sum of 16 floats, upper half onto lower half until one is left."""
    return e.halving_sum(e.load(Vec(F32, K_LANES), address))


# --- attention: rows and tiles ----------------------------------------------------------------------------------------
@device
def row_times(x, d_head, factor):
    d = 0
    while d + 16 <= d_head:
        times_wide(x + 4 * d, x + 4 * d, factor)
        d += 16
    while d < d_head:
        times_one(x + 4 * d, x + 4 * d, factor)
        d += 1


@device
def row_over(source, target, d_head, divisor):
    d = 0
    while d + 16 <= d_head:
        over_wide(source + 4 * d, target + 4 * d, divisor)
        d += 16
    while d < d_head:
        over_one(source + 4 * d, target + 4 * d, divisor)
        d += 1


@device
def row_values(p, v, d_head, out, first, stop):
    """One query, positions first .. stop - 1 of the block."""
    if first >= stop:
        return
    ldv = 4 * d_head
    d = 0
    while d + 64 <= d_head:
        values_four(p, v + 4 * d, ldv, out + 4 * d, 0, first, stop)
        d += 64
    while d + 16 <= d_head:
        values_wide(p, v + 4 * d, ldv, out + 4 * d, 0, first, stop)
        d += 16
    while d < d_head:
        values_one(p, v + 4 * d, ldv, out + 4 * d, 0, first, stop)
        d += 1


@device
def micro_values(p, v, d_head, out, first, stop):
    """MICRO queries, positions that all of them see."""
    ldv = 4 * d_head
    d = 0
    while d + 16 <= d_head:
        values_micro(p, v + 4 * d, ldv, out + 4 * d, ldv, first, stop)
        d += 16
    while d < d_head:
        for r in range(MICRO):
            values_one(p + 4 * BLOCK * r, v + 4 * d, ldv, out + r * ldv + 4 * d, 0, first, stop)
        d += 1


@device
def attend(a, base, t0, t1, h0, h1, kbase, vbase):
    """Tokens t0 .. t1 - 1 of one sequence, query heads h0 .. h1 - 1 of one KV head; a row is a (token, head)."""
    pos, d_head, window = arg(a, 1), arg(a, 13), arg(a, 19)
    n_head = h1 - h0
    n_row = (t1 - t0) * n_head
    n_micro = n_row // MICRO
    line = 4 * d_head
    q = base
    out = q + TILE_ROWS * line
    p = out + TILE_ROWS * line
    sums = p + TILE_ROWS * (4 * BLOCK)
    where = sums + TILE_ROWS * (4 * K_LANES)
    top = where + TILE_ROWS * 8
    factor = ldf(a + 8 * 14) * _LOG2E
    for r in range(n_row):
        t = t0 + r // n_head
        source = arg(a, 3) + t * arg(a, 4) + (h0 + r % n_head) * line
        if r < n_micro * MICRO:  # [d_head][MICRO]
            target, step = q + r // MICRO * MICRO * line + 4 * (r % MICRO), 4 * MICRO
        else:
            target, step = q + r * line, 4
        for d in range(d_head):
            stf(target + d * step, ldf(source + 4 * d) * factor)
            stf(out + r * line + 4 * d, _ZERO)
        for d in range(K_LANES):
            stf(sums + r * (4 * K_LANES) + 4 * d, _ZERO)
        stf(top + 4 * r, _LOWEST)
        sti(where + 8 * r, ldi(pos + 8 * t))
    final = ldi(pos + 8 * (t1 - 1))
    start = max(0, ldi(pos + 8 * t0) - window + 1) if window > 0 else 0
    for b0 in range(start // BLOCK * BLOCK, final + 1, BLOCK):
        v = vbase + b0 * line
        for k0 in range(b0, min(b0 + BLOCK, final + 1), K_LANES):
            k = kbase + k0 * line
            for i in range(n_micro):
                r = i * MICRO
                if ldi(where + 8 * (r + MICRO - 1)) >= k0:
                    scores_micro(q + r * line, k, p + r * (4 * BLOCK) + 4 * (k0 - b0), d_head)
        for r in range(n_micro * MICRO, n_row):
            high = ldi(where + 8 * r) - b0
            if high >= 0:
                last = min(high, BLOCK - 1) // K_LANES
                scores_block(q + r * line, kbase + b0 * line, p + r * (4 * BLOCK), d_head, last)
        for r in range(n_row):
            high = ldi(where + 8 * r) - b0
            if high >= 0:
                low = high - window + 1 if window > 0 else 0
                factor = soften(p + r * (4 * BLOCK), top + 4 * r, sums + r * (4 * K_LANES), low, high)
                if factor != _ONE:
                    row_times(out + r * line, d_head, factor)
        for i in range(n_micro):
            r = i * MICRO
            # positions that every row of the group sees; the others are added row by row before and after
            first = max(0, ldi(where + 8 * (r + MICRO - 1)) - b0 - window + 1) if window > 0 else 0
            stop = min(BLOCK, ldi(where + 8 * r) - b0 + 1)
            if first >= stop:
                first, stop = 0, 0
            for u in range(r, r + MICRO):
                if window > 0:
                    low = max(0, ldi(where + 8 * u) - b0 - window + 1)
                    row_values(p + u * (4 * BLOCK), v, d_head, out + u * line, low, first)
            if first < stop:
                micro_values(p + r * (4 * BLOCK), v, d_head, out + r * line, first, stop)
            for u in range(r, r + MICRO):
                low = max(0, ldi(where + 8 * u) - b0 - window + 1) if window > 0 else 0
                high = min(BLOCK, ldi(where + 8 * u) - b0 + 1)
                row_values(p + u * (4 * BLOCK), v, d_head, out + u * line, max(low, stop), high)
        for r in range(n_micro * MICRO, n_row):
            low = max(0, ldi(where + 8 * r) - b0 - window + 1) if window > 0 else 0
            high = min(BLOCK, ldi(where + 8 * r) - b0 + 1)
            row_values(p + r * (4 * BLOCK), v, d_head, out + r * line, low, high)
    for r in range(n_row):
        target = arg(a, 9) + (t0 + r // n_head) * arg(a, 10) + (h0 + r % n_head) * line
        row_over(out + r * line, target, d_head, lane_sum(sums + r * (4 * K_LANES)))


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

    A score is one chain of fma over d_head. Reference: tests/reference/attention.py. Error: 1e-6 of the largest |V|.
    """
    n_tok = ldi(arg(a, 0))
    slot, n_kv, d_head, n_ctx, ctr = arg(a, 2), arg(a, 12), arg(a, 13), arg(a, 15), arg(a, 18)
    group = arg(a, 11) // n_kv
    # few tokens: share the heads of a KV head between the threads; many: a tile of tokens with all of them
    n_head = min(group, TILE_ROWS)
    parts = min(nth // max(1, n_tok * n_kv) + 1 if nth > n_tok * n_kv else 1, (group + MICRO - 1) // MICRO)
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
            k = arg(a, 5) + s * arg(a, 7) + h_kv * n_ctx * d_head * 4
            v = arg(a, 6) + s * arg(a, 8) + h_kv * n_ctx * d_head * 4
            attend(a, arg(a, 16) + tid * arg(a, 17), t, u, h0, h1, k, v)
            t = u
