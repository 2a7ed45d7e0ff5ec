"""Mixture of experts: which expert computes which token, and the weighted sum of what they return.

A (token, chosen expert) pair gets a slot. The slots of an expert are consecutive and begin at a multiple of the tile
width, so that products run expert by expert over whole tiles; slots in between belong to nobody.
"""

import numpy as np

from ..build.jit import device, kernel
from ..emit.emitter import F32, I64, Vec, arg, atomic_add, const, emit, ldf, ldi, stf, sti

V16F = Vec(F32, 16)
ZERO, ONE, LOWEST = np.float32(0.0), np.float32(1.0), np.float32(-np.inf)


@emit("f32->f32")
def _exp(e, x):
    """exp(x) for x <= 0."""
    return e.lane(e.exp_nonpositive(e.splat(x, 4)), 0)


@device
def _keep_groups(score, total, size, n_group, n_used):
    """Scores of all but the best n_used groups of `size` experts become -inf; total: scratch, f32 [2 * n_group]."""
    kept = total + 4 * n_group
    for g in range(n_group):
        first, second = ldf(score + 4 * g * size), LOWEST
        for x in range(g * size + 1, (g + 1) * size):
            v = ldf(score + 4 * x)
            if v > first:
                first, second = v, first
            elif v > second:
                second = v
        stf(total + 4 * g, first + second)
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


@kernel
def moe_route(a, tid, nth):
    """Softmax over all experts, or the sigmoid of each; the best `n_used` by that plus a bias (ties: the lower index),
    their slots. The weights are without the bias. One thread.

    With groups (arXiv:2412.19437) experts are of n_group groups of neighbours, and those of the n_group_used groups
    whose two best add up to most, with the bias (ties: the lower index), are the only ones to choose from.

    0 count of tokens, 1 router logits f32, 2 ld, 3 n_expert, 4 n_used, 5 tile width,
    6 groups out (see gemv.py), 7 source row of each slot i64, 8 slots in all (i64, gaps included),
    9 slot of (token, j) i64, 10 weight of (token, j) f32, j in order of expert index, 11 f32 scratch [3 * n_expert],
    12 i64 scratch [2 * n_expert], 13 renormalize the weights to sum 1, 14 sigmoid, 15 bias f32 [n_expert] or 0,
    16 what the weights are multiplied by at last, 17 n_group, 18 n_group_used (1, 1: no groups; otherwise two experts
    or more in a group)
    """
    if tid != 0:
        return
    n_tok, logits, ld, n_expert, n_used, width = ldi(arg(a, 0)), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    groups, rows, n_slots, slots, weights = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10)
    p, counts, renormalize = arg(a, 11), arg(a, 12), arg(a, 13)
    by_sigmoid, bias, scale = arg(a, 14), arg(a, 15), ldf(a + 128)
    starts, score = counts + 8 * n_expert, p + 4 * n_expert
    n_group, n_group_used = arg(a, 17), arg(a, 18)
    for x in range(n_expert):
        sti(counts + 8 * x, 0)
    for t in range(n_tok):
        row = logits + t * ld
        top = ldf(row)
        for x in range(1, n_expert):
            top = max(top, ldf(row + 4 * x))
        total = ldf(row) - ldf(row)  # 0, or NaN when there is one
        if by_sigmoid:
            total += ONE
        for x in range(n_expert):
            if by_sigmoid:
                v = _exp(-abs(ldf(row + 4 * x)))
                v = (ONE if ldf(row + 4 * x) >= 0 else v) / (ONE + v)
            else:
                v = _exp(ldf(row + 4 * x) - top)
                total += v
            stf(p + 4 * x, v)
            stf(score + 4 * x, v + ldf(bias + 4 * x) if bias else v)
        if n_group > n_group_used:
            _keep_groups(score, p + 8 * n_expert, n_expert // n_group, n_group, n_group_used)
        chosen = slots + 8 * t * n_used
        for j in range(n_used):
            best = -1
            for x in range(n_expert):
                taken = False
                for i in range(j):
                    taken = taken or ldi(chosen + 8 * i) == x
                if not taken and (best < 0 or ldf(score + 4 * x) > ldf(score + 4 * best)):
                    best = x
            sti(chosen + 8 * j, best)
        # in order of expert index, the order in which the parts are summed
        for i in range(1, n_used):
            v = ldi(chosen + 8 * i)
            j = i
            while j > 0 and ldi(chosen + 8 * (j - 1)) > v:
                sti(chosen + 8 * j, ldi(chosen + 8 * (j - 1)))
                j -= 1
            sti(chosen + 8 * j, v)
        kept = ldf(p) - ldf(p)
        for j in range(n_used):
            x = ldi(chosen + 8 * j)
            kept += ldf(p + 4 * x)
            sti(counts + 8 * x, ldi(counts + 8 * x) + 1)
        for j in range(n_used):
            weight = ldf(p + 4 * ldi(chosen + 8 * j)) / (kept if renormalize else total)
            stf(weights + 4 * (t * n_used + j), weight * scale)
    first = 0
    active = 0
    for x in range(n_expert):
        n = ldi(counts + 8 * x)
        sti(starts + 8 * x, first)
        if n > 0:
            group = groups + 8 + 24 * active
            sti(group, x)
            sti(group + 8, first)
            sti(group + 16, n)
            active += 1
            first += (n + width - 1) // width * width
    sti(groups, active)
    sti(n_slots, first)
    for t in range(n_tok):
        for j in range(n_used):
            place = slots + 8 * (t * n_used + j)
            x = ldi(place)
            slot = ldi(starts + 8 * x)
            sti(starts + 8 * x, slot + 1)
            sti(place, slot)
            sti(rows + 8 * slot, t)


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
def moe_combine(a, tid, nth):
    """out[t] = sum over j of weight[t, j] * y[slot[t, j]].

    0 count of tokens, 1 y, 2 ldy, 3 slots, 4 weights, 5 n_used, 6 out, 7 ldo, 8 length, 9 counter
    """
    y, ldy, slots, weights, n_used = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    out, ldo, n = arg(a, 6), arg(a, 7), arg(a, 8)
    n_tok = ldi(arg(a, 0))
    while True:
        t = atomic_add(arg(a, 9), 1)
        if t >= n_tok:
            break
        for j in range(n_used):
            i = t * n_used + j
            _accumulate(out + t * ldo, y + ldi(slots + 8 * i) * ldy, ldf(weights + 4 * i), n, 1 if j == 0 else 0)
