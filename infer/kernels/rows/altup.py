"""Alternating updates (AltUp, Baykal et al. 2023, arXiv:2301.13310): a layer computes on one of several residual
streams; all are predicted from all, then corrected with the layer's result. Also the sparsity of Gemma 3n's gates.

The residual stream of a token is n_stream rows of n values side by side.
"""

import numpy as np

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldf, ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import copy_floats
from .elementwise import add_row, over_values, scale_row

V16F = Vec(F32, 16)
ONE = np.float32(1.0)


@emit("i64,i64,f32->f32")
def _mean(e, x, n, away):
    """The mean of x - away. Sums in 16 lanes, halved at the end."""
    b = e.b
    full, wide = b.shl(b.and_(n, const(I64, -16)), const(I64, 2)), e.splat(away, 16)
    (lanes,) = e.loop(
        full, lambda o, acc: [b.fadd(acc[0], b.fsub(e.load(V16F, x, o), wide))], [const(V16F, 0.0)], step=64
    )
    (total,) = e.loop(
        b.shl(n, const(I64, 2)),
        lambda o, acc: [b.fadd(acc[0], b.fsub(e.load(F32, x, o), away))],
        [e.halving_sum(lanes)],
        start=full,
        step=4,
    )
    return b.fdiv(total, b.sitofp(n, F32))


@emit("i64,i64,f32->f32")
def _mean_square(e, x, n, away):
    """The mean of (x - away)^2. Sums in 16 lanes, halved at the end."""
    b = e.b
    full, wide = b.shl(b.and_(n, const(I64, -16)), const(I64, 2)), e.splat(away, 16)

    def square(ty, mean):
        def one(o, acc):
            v = b.fsub(e.load(ty, x, o), mean)
            return [e.fma(v, v, acc[0])]

        return one

    (lanes,) = e.loop(full, square(V16F, wide), [const(V16F, 0.0)], step=64)
    (total,) = e.loop(b.shl(n, const(I64, 2)), square(F32, away), [e.halving_sum(lanes)], start=full, step=4)
    return b.fdiv(total, b.sitofp(n, F32))


@emit("f32->f32")
def _root(e, x):
    return e.intr("sqrt", x)


@emit("i64,i64,f32->void")
def _above(e, x, n, bound):
    """x = max(x - bound, 0); NaN stays."""
    b = e.b

    def some(ty, low):
        def one(o):
            v = b.fsub(e.load(ty, x, o), low)
            e.store(b.select(b.fcmp_ordered("<", v, const(ty, 0.0)), const(ty, 0.0), v), x, o)

        return one

    over_values(e, n, some(V16F, e.splat(bound, 16)), some(F32, bound))


@kernel
def predict_streams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, mix: Address, ldmix: Int, out: Address, ldout: Int, n: Int,
    n_stream: Int,
):  # fmt: skip
    """out_q = x_q + sum over p, ascending, of mix[q][p] x_p.

    x, out  f32 [tok][n_stream][n], not the same
    mix     f32 [tok][n_stream][n_stream]
    """
    for t in range(tid, ldi(count), nth):
        source, target = x + t * ldx, out + t * ldout
        for q in range(n_stream):
            copy_floats(source + 4 * q * n, target + 4 * q * n, n)
            for p in range(n_stream):
                add_row(target + 4 * q * n, source + 4 * p * n, n, ldf(mix + t * ldmix + 4 * (q * n_stream + p)))


@kernel
def correct_streams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, predicted: Address, ldpredicted: Int, made: Address,
    ldmade: Int, mix: Address, ldmix: Int, n: Int, n_stream: Int, active: Int,
):  # fmt: skip
    """x_q = predicted_q + (1 + mix[q]) (made - predicted_active).

    x, predicted  f32 [tok][n_stream][n]; x is written
    made          f32 [tok][n], the layer's result; overwritten with made - predicted_active
    mix           f32 [tok][n_stream]
    """
    for t in range(tid, ldi(count), nth):
        news, old = made + t * ldmade, predicted + t * ldpredicted
        add_row(news, old + 4 * active * n, n, -ONE)
        for q in range(n_stream):
            target = x + t * ldx + 4 * q * n
            copy_floats(old + 4 * q * n, target, n)
            add_row(target, news, n, ONE + ldf(mix + t * ldmix + 4 * q))


@kernel
def match_magnitude(a, tid, nth, *, count: Address, x: Address, ldx: Int, y: Address, ldy: Int, n: Int, floor: Float):
    """y *= sqrt(mean(x^2)) / sqrt(max(mean(y^2), floor)): x, y f32 [row][n]."""
    for t in range(tid, ldi(count), nth):
        target = y + t * ldy
        size = _mean_square(target, n, np.float32(0.0))
        scale_row(target, n, _root(_mean_square(x + t * ldx, n, np.float32(0.0))) / _root(max(size, floor)))


@kernel
def gaussian_top(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, deviations: Float):
    """x = max(x - m - deviations s, 0); m, s: the mean and standard deviation (divisor n, not n - 1) of the row."""
    for t in range(tid, ldi(count), nth):
        row = x + t * ldx
        mean = _mean(row, n, np.float32(0.0))
        _above(row, n, mean + deviations * _root(_mean_square(row, n, mean)))
