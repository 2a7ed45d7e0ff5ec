"""Negative log-likelihood of target tokens under logits."""

import math

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldf, ldi
from ..emit.fields import Address, Int

V16F = Vec(F32, 16)


@emit("i64,i64->f32")
def _row_max(e, x, n):
    b = e.b
    full = b.and_(n, const(I64, -16))
    (lanes,) = e.loop(
        b.shl(full, const(I64, 2)),
        lambda o, m: [e.intr("maxnum", m[0], e.load(V16F, x, o))],
        [const(V16F, float("-inf"))],
        step=64,
    )
    (top,) = e.loop(
        b.shl(n, const(I64, 2)),
        lambda o, m: [e.intr("maxnum", m[0], e.load(F32, x, o))],
        [e.halving_max(lanes)],
        start=b.shl(full, const(I64, 2)),
        step=4,
    )
    return top


@emit("i64,i64,f32->f32")
def _sum_exp(e, x, n, top):
    """Sum of exp(x - top) over n values."""
    b = e.b
    full = b.and_(n, const(I64, -16))
    wide = e.splat(top, 16)
    (lanes,) = e.loop(
        b.shl(full, const(I64, 2)),
        lambda o, s: [b.fadd(s[0], e.exp_nonpositive(b.fsub(e.load(V16F, x, o), wide)))],
        [const(V16F, 0.0)],
        step=64,
    )

    def one(o, s):
        v = e.splat(b.fsub(e.load(F32, x, o), top), 4)
        return [b.fadd(s[0], e.lane(e.exp_nonpositive(v), 0))]

    (total,) = e.loop(b.shl(n, const(I64, 2)), one, [e.halving_sum(lanes)], start=b.shl(full, const(I64, 2)), step=4)
    return total


@emit("i64,f64->void")
def _store64(e, address, value):
    e.store(value, address)


@kernel
def negative_log_likelihood(
    a, tid, nth, *, count: Address, logits: Address, ldlogits: Int, n_vocab: Int, targets: Address, out: Address
):
    """out[i] = -log softmax(logits[i])[targets[i]]: logits f32 [count][n_vocab], targets i64 [count], out f64 [count].

    exp in f32, sums of 4096 values in f32, the rest in f64.
    """
    for t in range(tid, ldi(count), nth):
        row = logits + t * ldlogits
        top = _row_max(row, n_vocab)
        total = 0.0
        for o in range(0, n_vocab, 4096):
            total += _sum_exp(row + 4 * o, min(4096, n_vocab - o), top)
        _store64(out + 8 * t, math.log(total) - (float(ldf(row + 4 * ldi(targets + 8 * t))) - float(top)))
