"""Attention over residual streams: the weight of each of a token's rows in their mix."""

import numpy as np

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldf, ldi, stf
from ..emit.fields import Address, Float, Int
from .softmax import softmax

V16F = Vec(F32, 16)
ZERO = np.float32(0.0)


@emit("i64,i64,i64,f32->f32")
def _score(e, x, query, n, eps):
    """sum(x query) / sqrt(mean(x^2) + eps): both sums in 16 lanes, halved at the end."""
    b = e.b
    full, end = b.shl(b.and_(n, const(I64, -16)), const(I64, 2)), b.shl(n, const(I64, 2))

    def both(ty):
        def one(o, sums):
            v = e.load(ty, x, o)
            return [e.fma(v, v, sums[0]), e.fma(v, e.load(ty, query, o), sums[1])]

        return one

    lanes = e.loop(full, both(V16F), [const(V16F, 0.0)] * 2, step=64)
    squares, product = e.loop(end, both(F32), [e.halving_sum(v) for v in lanes], start=full, step=4)
    return b.fdiv(product, e.intr("sqrt", b.fadd(b.fdiv(squares, b.sitofp(n, F32)), eps)))


@emit("i64,i64,f32->f32")
def _inverse(e, x, n, eps):
    """1 / sqrt(mean(x^2) + eps), with the sum of `_score`."""
    b = e.b
    full, end = b.shl(b.and_(n, const(I64, -16)), const(I64, 2)), b.shl(n, const(I64, 2))

    def square(ty):
        def one(o, sums):
            v = e.load(ty, x, o)
            return [e.fma(v, v, sums[0])]

        return one

    (lanes,) = e.loop(full, square(V16F), [const(V16F, 0.0)], step=64)
    (squares,) = e.loop(end, square(F32), [e.halving_sum(lanes)], start=full, step=4)
    return b.fdiv(const(F32, 1.0), e.intr("sqrt", b.fadd(b.fdiv(squares, b.sitofp(n, F32)), eps)))


@kernel
def stream_scores(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, query: Address, out: Address, ldout: Int, n: Int,
    n_stream: Int, eps: Float, normed: Int = 0,
):  # fmt: skip
    """out = softmax over streams of query . norm(x), norm(v) = v / sqrt(mean(v^2) + eps): the weights of `mix_streams`.

    x       f32 [tok][n_stream][n]
    query   f32 [n]
    out     f32 [tok][n_stream]
    normed  not 0: of a mix of the normed streams: the weights are divided by the roots

    Reference: tests/reference/kimi.py.
    """
    for t in range(tid, ldi(count), nth):
        row = out + t * ldout
        for s in range(n_stream):
            stf(row + 4 * s, _score(x + t * ldx + 4 * s * n, query, n, eps))
        softmax(row, n_stream)
        for s in range(n_stream if normed else 0):
            stf(row + 4 * s, ldf(row + 4 * s) * _inverse(x + t * ldx + 4 * s * n, n, eps))
