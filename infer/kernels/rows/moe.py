"""Mixture of experts: the choice of experts for each token, and the weighted sum of their results.

Each (token, chosen expert) pair gets a slot. The slots of an expert are consecutive and begin at a multiple of the tile
width, so that products run expert by expert over whole tiles; the slots in between are unused.
"""

from enum import IntEnum

import numpy as np

from ..build.jit import device, kernel
from ..emit.emitter import F32, I64, Vec, atomic_add, const, emit, ldf, ldi, ldi32, stf, sti
from ..emit.fields import Address, Counter, Float, Int
from ..recurrent.states import zero_fill
from .elementwise import scale_row
from .softmax import exp_nonpositive

V16F = Vec(F32, 16)
ZERO, ONE, LOWEST = np.float32(0.0), np.float32(1.0), np.float32(-np.inf)


class Scoring(IntEnum):
    """How the router's outputs, the logits, become scores, the basis of experts' weights."""

    SOFTMAX = 0  # over all experts
    SIGMOID = 1
    ROOT_SOFTPLUS = 2  # the square root of log(1 + exp(logit))


class ChosenBy(IntEnum):
    """The criterion for the experts of a token."""

    SCORE = 0  # largest score plus bias
    LOGIT = 1  # largest logit plus bias
    TOKEN = 2  # a table with the experts of each vocabulary token
    SPARSE_MIXER = 3  # largest logits, with weights of their own: see `_mix_sparsely`; only with SOFTMAX


@emit("f32->f32")
def _sqrt_softplus(e, x):
    """sqrt(log(1 + exp(x)))."""
    return e.intr("sqrt", e.lane(e.softplus(e.splat(x, 4)), 0))


@device
def _keep_groups(score, total, size, n_group, n_used, n_best):
    """Set the scores of all but the best n_used groups of `size` experts to -inf. n_best: `n_group_best`; total:
    scratch, f32 [2 * n_group]."""
    kept = total + 4 * n_group
    for g in range(n_group):
        first, second = ldf(score + 4 * g * size), LOWEST
        for x in range(g * size + 1, (g + 1) * size):
            v = ldf(score + 4 * x)
            if v > first:
                first, second = v, first
            elif v > second:
                second = v
        stf(total + 4 * g, first + second if n_best > 1 else first)
        stf(kept + 4 * g, ZERO)
    for _ in range(n_used):
        best = -1
        for g in range(n_group):
            if ldf(kept + 4 * g) == ZERO and (best < 0 or ldf(total + 4 * g) > ldf(total + 4 * best)):
                best = g
        stf(kept + 4 * best, ONE)
    for g in range(n_group):
        if ldf(kept + 4 * g) == ZERO:
            for x in range(g * size, (g + 1) * size):
                stf(score + 4 * x, LOWEST)


@device
def _is_among(chosen, n, x):
    taken = False
    for i in range(n):
        taken = taken or ldi(chosen + 8 * i) == x
    return taken


@device
def _choose(score, n_expert, n_used, chosen):
    """Write the indices of the n_used highest scores to `chosen`, highest first (ties: the lower index)."""
    for j in range(n_used):
        best = -1
        for x in range(n_expert):
            if not _is_among(chosen, j, x) and (best < 0 or ldf(score + 4 * x) > ldf(score + 4 * best)):
                best = x
        sti(chosen + 8 * j, best)


@device
def _mix_sparsely(row, p, n_expert, n_used, jitter, chosen):
    """Write the n_used experts with the highest logits to `chosen`, highest first (ties: the lower index). p of each
    becomes its softmax among the experts not chosen before it with logits v near its own logit l:
    l - v <= 2 jitter max(|v|, l). arXiv:2409.12136"""
    near = np.float32(2) * jitter
    _choose(row, n_expert, n_used, chosen)
    for j in range(n_used):
        best = ldi(chosen + 8 * j)
        top, total = ldf(row + 4 * best), ZERO
        for x in range(n_expert):
            v = ldf(row + 4 * x)
            if not _is_among(chosen, j, x) and not (top - v > near * max(abs(v), top)):
                total += exp_nonpositive(v - top)
        stf(p + 4 * best, ONE / total)


@device
def _score(row, n_expert, bias, scoring, chosen_by, p, score):
    """Write p, the basis of weights, and `score`, the criterion of the choice, for each expert. Returns the divisor of
    p: 1, or the sum of the softmax; NaN if the first logit is, for the softmax if any is."""
    top = ldf(row)
    for x in range(1, n_expert):
        top = max(top, ldf(row + 4 * x))
    total = ldf(row) - ldf(row)  # 0, or NaN
    if scoring != Scoring.SOFTMAX:
        total += ONE
    for x in range(n_expert):
        if scoring == Scoring.SIGMOID:
            v = exp_nonpositive(-abs(ldf(row + 4 * x)))
            v = (ONE if ldf(row + 4 * x) >= 0 else v) / (ONE + v)
        elif scoring == Scoring.ROOT_SOFTPLUS:
            v = _sqrt_softplus(ldf(row + 4 * x))
        else:
            v = exp_nonpositive(ldf(row + 4 * x) - top)
            total += v
        stf(p + 4 * x, v)
        if chosen_by == ChosenBy.LOGIT:
            v = ldf(row + 4 * x)
        stf(score + 4 * x, v + ldf(bias + 4 * x) if bias else v)
    if bias and scoring == Scoring.SOFTMAX and chosen_by != ChosenBy.LOGIT:  # the bias is added to the softmax, p / sum
        for x in range(n_expert):
            stf(score + 4 * x, ldf(p + 4 * x) / total + ldf(bias + 4 * x))
    return total


@device
def _sort(chosen, n):
    """Sort by expert index, the order in which the experts' results are summed."""
    for i in range(1, n):
        v = ldi(chosen + 8 * i)
        j = i
        while j > 0 and ldi(chosen + 8 * (j - 1)) > v:
            sti(chosen + 8 * j, ldi(chosen + 8 * (j - 1)))
            j -= 1
        sti(chosen + 8 * j, v)


@device
def _weigh(p, chosen, n_used, renormalize, total, scale, factors, weights):
    """weights f32 [n_used] = p of each chosen expert / (their sum if renormalize, else `total`) * scale, times its
    factor. If renormalized, all are NaN if p[0] is."""
    kept = ldf(p) - ldf(p)
    for j in range(n_used):
        kept += ldf(p + 4 * ldi(chosen + 8 * j))
    for j in range(n_used):
        x = ldi(chosen + 8 * j)
        weight = ldf(p + 4 * x) / (kept if renormalize else total) * scale
        stf(weights + 4 * j, weight * ldf(factors + 4 * x) if factors else weight)


@device
def _place(n_tok, n_expert, n_computing, n_used, width, groups, rows, slots, counts):
    """Replace the experts in `slots` with slots, and write `groups` and `rows`, as `moe_route` documents. Returns the
    number of slots. Experts from n_computing on get none."""
    starts = counts + 8 * n_expert
    first = 0
    active = 0
    for x in range(n_expert):
        n = ldi(counts + 8 * x)
        sti(starts + 8 * x, first)
        if n > 0 and x < n_computing:
            group = groups + 8 + 24 * active
            sti(group, x)
            sti(group + 8, first)
            sti(group + 16, n)
            active += 1
            first += (n + width - 1) // width * width
    sti(groups, active)
    for t in range(n_tok):
        for j in range(n_used):
            place = slots + 8 * (t * n_used + j)
            x = ldi(place)
            if x >= n_computing:
                sti(place, -1)
                continue
            slot = ldi(starts + 8 * x)
            sti(starts + 8 * x, slot + 1)
            sti(place, slot)
            sti(rows + 8 * slot, t)
    return first


@kernel
def moe_route(
    a, tid, nth, *, count: Address, logits: Address, ldlogits: Int, n_expert: Int, n_used: Int, width: Int,
    groups: Address, rows: Address, n_slots: Address, slots: Address, weights: Address, scores: Address,
    counts: Address, scoring: Int = 0, chosen_by: Int = 0, renormalize: Int = 0, bias: Address = 0,
    scale: Float = 1.0, n_group: Int = 1, n_group_used: Int = 1, n_group_best: Int = 2, n_idle: Int = 0,
    factors: Address = 0, jitter: Float = 0.0, table: Address = 0, tokens: Address = 0,
):  # fmt: skip
    """Choose the best `n_used` experts of each token (ties: the lower index), their weights and slots. The weights do
    not include the bias. One thread.

    With groups (arXiv:2412.19437) the experts are n_group groups of neighbours, and a token may choose only from the
    n_group_used groups with the largest sum of their two best scores, bias included (ties: the lower index).

    count           of tokens
    logits          of the router, f32 [tok][n_expert]
    width           of a tile, in slots
    groups          written: see gemv.py
    rows            written: i64 [slot], the token of each
    n_slots         written: i64, number of slots, gaps included
    slots, weights  written: i64 and f32 [tok][n_used], in order of expert index
    scores, counts  scratch, f32 [3 * n_expert] and i64 [2 * n_expert]
    scoring         a `Scoring`
    chosen_by       a `ChosenBy`
    renormalize     weights sum to 1, before they are multiplied with `scale`
    bias            f32 [n_expert], added to the criterion of the choice; 0: none
    n_group_used    if equal to n_group: no groups; otherwise a group has at least two experts
    n_group_best    2, or 1: groups are compared by their best expert alone (arXiv:2405.04434)
    n_idle          the last n_idle of n_expert compute nothing and have no slots: a token that chooses one gets slot -1
    factors         f32 [n_expert]: each expert's weight is finally multiplied with its factor; 0: none
    jitter          of SPARSE_MIXER
    table, tokens   of TOKEN: i32 [vocabulary token][n_used], its experts; i64 [tok], the vocabulary token
    """
    if tid != 0:
        return
    p, score = scores, scores + 4 * n_expert
    for x in range(n_expert):
        sti(counts + 8 * x, 0)
    for t in range(ldi(count)):
        row, chosen = logits + t * ldlogits, slots + 8 * t * n_used
        total = _score(row, n_expert, bias, scoring, chosen_by, p, score)
        if n_group > n_group_used:
            _keep_groups(score, p + 8 * n_expert, n_expert // n_group, n_group, n_group_used, n_group_best)
        if chosen_by == ChosenBy.SPARSE_MIXER:
            _mix_sparsely(row, p, n_expert, n_used, jitter, chosen)
            total = ONE + (total - total)
        elif chosen_by == ChosenBy.TOKEN:
            for j in range(n_used):
                sti(chosen + 8 * j, ldi32(table + 4 * (ldi(tokens + 8 * t) * n_used + j)))
        else:
            _choose(score, n_expert, n_used, chosen)
        _sort(chosen, n_used)
        _weigh(p, chosen, n_used, renormalize, total, scale, factors, weights + 4 * t * n_used)
        for j in range(n_used):
            x = ldi(chosen + 8 * j)
            sti(counts + 8 * x, ldi(counts + 8 * x) + 1)
    sti(n_slots, _place(ldi(count), n_expert, n_expert - n_idle, n_used, width, groups, rows, slots, counts))


@kernel
def weigh_slots(
    a, tid, nth, *, count: Address, gate: Address, ldgate: Int, up: Address, ldup: Int, slots: Address,
    weights: Address, n_used: Int, n: Int,
):  # fmt: skip
    """Weigh what experts read instead of their results (Llama 4): gate and up, f32 [slot][n], are multiplied with the
    slot's weight, which becomes 1 for `moe_combine`. slots, weights: from `moe_route`."""
    for t in range(tid, ldi(count), nth):
        for j in range(n_used):
            i = t * n_used + j
            slot, weight = ldi(slots + 8 * i), ldf(weights + 4 * i)
            if slot >= 0:
                scale_row(gate + slot * ldgate, n, weight)
                scale_row(up + slot * ldup, n, weight)
                stf(weights + 4 * i, ONE)


@emit("i64,i64,f32,i64,i64->void")
def _accumulate(e, out, y, weight, n, first):
    """out = weight * y (first != 0) or out + weight * y."""
    b = e.b
    full = b.and_(n, const(I64, -16))
    fresh = b.icmp_signed("!=", first, const(I64, 0))
    wide = e.splat(weight, 16)

    def whole(o, _):
        old = b.select(fresh, const(V16F, 0.0), e.load(V16F, out, o))
        e.store(e.fma(wide, e.load(V16F, y, o), old), out, o)

    def single(o, _):
        old = b.select(fresh, const(F32, 0.0), e.load(F32, out, o))
        e.store(e.fma(weight, e.load(F32, y, o), old), out, o)

    e.loop(b.shl(full, const(I64, 2)), whole, step=64)
    e.loop(b.shl(n, const(I64, 2)), single, start=b.shl(full, const(I64, 2)), step=4)


@kernel
def moe_combine(
    a, tid, nth, *, count: Address, y: Address, ldy: Int, slots: Address, weights: Address, n_used: Int, out: Address,
    ldout: Int, n: Int, counter: Counter,
):  # fmt: skip
    """out[t] = sum over j of weights[t, j] * y[slots[t, j]], ascending: y f32 [slot][n], out f32 [tok][n], the others
    from `moe_route`. A slot of -1 adds nothing."""
    n_tok = ldi(count)
    while True:
        t = atomic_add(counter, 1)
        if t >= n_tok:
            break
        fresh = 1
        for j in range(n_used):
            i = t * n_used + j
            if ldi(slots + 8 * i) >= 0:
                _accumulate(out + t * ldout, y + ldi(slots + 8 * i) * ldy, ldf(weights + 4 * i), n, fresh)
                fresh = 0
        if fresh:
            zero_fill(out + t * ldout, n)


@kernel
def add_idle(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, slots: Address, weights: Address, n_used: Int, out: Address,
    ldout: Int, n: Int,
):  # fmt: skip
    """out[t] += w x[t], w: the sum of the weights of idle choices (slot -1), which return their input. x, out
    f32 [tok][n]; slots, weights: from `moe_route`."""
    for t in range(tid, ldi(count), nth):
        weight = ZERO
        for j in range(n_used):
            i = t * n_used + j
            if ldi(slots + 8 * i) < 0:
                weight += ldf(weights + 4 * i)
        _accumulate(out + t * ldout, x + t * ldx, weight, n, 0)
