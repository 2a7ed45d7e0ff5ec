"""Manifold-constrained hyper-connections (mHC, arXiv:2512.24880): the residual stream of a token is n_stream rows side
by side. A sublayer reads one mix of the rows; its result is added to all rows, after they are mixed with each other.

    hyper_weights    the weights of both mixes, from a product with the streams, with Sinkhorn's iterations
    mix_streams      the row that a sublayer reads
    write_streams    the streams after a sublayer; one kernel for each number of streams
"""

from functools import cache

import numpy as np

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, Vec, const, emit, ldf, ldi, stf
from ..emit.fields import Address, Float, Int
from .elementwise import CHUNK, over_values, sigmoid_at
from .softmax import softmax

V16F = Vec(F32, 16)
ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
MOST_STREAMS = 8  # maximum of `write_streams`


# --- weights of the mixes ---
@emit("i64,i64,f32->f32")
def _inverse_rms(e, x, n, eps):
    """1 / sqrt(mean(x^2) + eps): squares summed in 16 lanes, halved at the end, as in `rms_norm`."""
    b = e.b
    full = b.shl(b.and_(n, const(n.type, -16)), const(n.type, 2))

    def square(ty):
        def one(o, acc):
            v = e.load(ty, x, o)
            return [e.fma(v, v, acc[0])]

        return one

    (lanes,) = e.loop(full, square(V16F), [const(V16F, 0.0)], step=64)
    (total,) = e.loop(b.shl(n, const(n.type, 2)), square(F32), [e.halving_sum(lanes)], start=full, step=4)
    return b.fdiv(const(F32, 1.0), e.intr("sqrt", b.fadd(b.fdiv(total, b.sitofp(n, F32)), eps)))


@device
def _sum_to_one(c, n, across, along, floor):
    """Divide each of n lines of a matrix by its sum + floor; lines are `across` bytes apart, their n values `along`."""
    for i in range(n):
        line = c + i * across
        total = ldf(line)
        for j in range(1, n):
            total += ldf(line + j * along)
        inverse = ONE / (total + floor)
        for j in range(n):
            stf(line + j * along, ldf(line + j * along) * inverse)


@kernel
def hyper_weights(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, product: Address, ldproduct: Int, base: Address,
    scale: Address, out: Address, ldout: Int, n: Int, n_stream: Int, n_iter: Int, eps: Float, floor: Float,
):  # fmt: skip
    """The weights of a hyper-connection for every token, in f32, sums in ascending order:

        m = product / sqrt(mean(x^2) + eps)                        the norm of x, applied after the product
        pre = sigmoid(m scale[0] + base) + floor                   n_stream values
        post = 2 sigmoid(m scale[1] + base)                        n_stream values
        C = softmax(m scale[2] + base) over rows, + floor          n_stream x n_stream; then every column, and
                                                                   n_iter - 1 times every row, then every column,
                                                                   is divided by its sum + floor

    x        f32 [tok][n]: all streams side by side
    product  f32 [tok][pre | post | C], a matrix times x; base f32 [pre | post | C]; out f32 [tok][pre | post | C]
    scale    f32 [3]
    n_iter   of Sinkhorn and Knopp (1967); 0: product, base, scale and out have `pre` only
    """
    h = n_stream
    size = (2 + h) * h if n_iter else h
    for t in range(tid, ldi(count), nth):
        w, m = out + t * ldout, product + t * ldproduct
        norm = _inverse_rms(x + t * ldx, n, eps)
        for k in range(size):
            part = 4 * min(k // h, 2)
            stf(w + 4 * k, ldf(m + 4 * k) * norm * ldf(scale + part) + ldf(base + 4 * k))
        for k in range(h):
            stf(w + 4 * k, sigmoid_at(w + 4 * k) + floor)
        if n_iter:
            for k in range(h, 2 * h):
                stf(w + 4 * k, TWO * sigmoid_at(w + 4 * k))
            c, step = w + 8 * h, 4 * h
            for i in range(h):
                softmax(c + i * step, h)
            for k in range(h * h):
                stf(c + 4 * k, ldf(c + 4 * k) + floor)
            _sum_to_one(c, h, 4, step, floor)
            for _ in range(n_iter - 1):
                _sum_to_one(c, h, step, 4, floor)
                _sum_to_one(c, h, 4, step, floor)


# --- streams in, streams out ---
@emit("i64,i64,i64,i64,i64,i64->void")
def _mixed(e, x, step, weights, n_stream, out, n):
    """out = sum of n_stream rows of n values, `step` bytes apart, each times its weight; ascending."""
    b = e.b

    def some(ty):
        def one(o):
            def stream(i, acc):
                w = e.load(F32, weights, b.shl(i, const(i.type, 2)))
                w = w if ty is F32 else e.splat(w, 16)
                return [e.fma(w, e.load(ty, x, b.add(o, b.mul(i, step))), acc[0])]

            (total,) = e.loop(n_stream, stream, [const(ty, 0.0)])
            e.store(total, out, o)

        return one

    over_values(e, n, some(V16F), some(F32))


@kernel
def mix_streams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, weights: Address, ldweights: Int, out: Address, ldout: Int,
    n: Int, n_stream: Int,
):  # fmt: skip
    """out = sum over streams, ascending, of weights * x: x f32 [tok][n_stream][n], weights f32 [tok][n_stream]
    (ldweights 0: the same for all tokens), out f32 [tok][n]."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        _mixed(
            x + t * ldx + 4 * o, 4 * n, weights + t * ldweights, n_stream, out + t * ldout + 4 * o, min(CHUNK, n - o)
        )


def _make_written(n_stream: int):
    """Piece of `write_streams`; all streams of 16 channels are in registers, since it overwrites its inputs."""

    def written(e, x, step, y, post, comb, n):
        b = e.b

        def some(ty):
            def weight(address, k):
                w = e.load(F32, address, 4 * k)
                return w if ty is F32 else e.splat(w, 16)

            def one(o):
                places = [b.add(o, b.mul(const(o.type, i), step)) for i in range(n_stream)]
                old, added = [e.load(ty, x, place) for place in places], e.load(ty, y, o)
                for j, place in enumerate(places):
                    total = b.fmul(weight(post, j), added)
                    for i in range(n_stream):
                        total = e.fma(weight(comb, i * n_stream + j), old[i], total)
                    e.store(total, x, place)

            return one

        over_values(e, n, some(V16F), some(F32))

    return emit("i64,i64,i64,i64,i64,i64->void")(written)


def written_piece(x, step, y, post, comb, n):  # replaced in every variant
    raise NotImplementedError


@kernel
def write_streams_of(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, y: Address, ldy: Int, post: Address, ldpost: Int,
    comb: Address, ldcomb: Int, n: Int,
):  # fmt: skip
    """x[j] = post[j] y + sum over i of comb[i][j] x[i], in this order, by fma from the second term on:
    x f32 [tok][stream][n], y f32 [tok][n], post f32 [tok][stream], comb f32 [tok][stream][stream]."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        written_piece(
            x + t * ldx + 4 * o, 4 * n, y + t * ldy + 4 * o, post + t * ldpost, comb + t * ldcomb, min(CHUNK, n - o)
        )


@cache
def write_streams(n_stream: int) -> Kernel:
    """`write_streams_of` for n_stream <= MOST_STREAMS streams."""
    return variant(write_streams_of, f"write_streams_{n_stream}", written_piece=_make_written(n_stream))
