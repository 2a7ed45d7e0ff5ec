"""Rows in the basis of rotated weights: signs, then a normalized Walsh-Hadamard transform of each block of values.

H has entries (-1)^popcount(i & j) / sqrt(block), in natural order: it is symmetric, and its own inverse. A weight w is
stored as w2 = H (s * w) with the signs s of a row, so w x = w2 (H (s * x)): the input of its product is rotated. Sums
are in the order of the butterflies, distance 1 first, whatever the threads.
"""

import math

import numpy as np

from ..build.jit import kernel
from ..emit.emitter import F32, I32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from ..weights.base import lanes_of

LANES = 16
V16F = Vec(F32, LANES)


def _butterflies(e: Emitter, v: Value) -> Value:
    """The transform of 16 values, not normalized."""
    for distance in (1, 2, 4, 8):
        partner = e.shuffle(v, [i ^ distance for i in range(LANES)])
        signs = [-1.0 if i & distance else 1.0 for i in range(LANES)]
        v = e.b.fadd(partner, e.b.fmul(v, const(V16F, signs)))
    return v


def _wider(e: Emitter, out: Value, block: Value) -> None:
    """The other butterflies of a block in place: out f32 [block], whose runs of 16 are transformed."""
    b = e.b
    pairs = b.lshr(block, const(I64, 5))  # of vectors
    stages = b.sub(e.intr("ctpop", b.sub(block, const(I64, 1))), const(I64, 4))

    def stage(k: Value, _: object) -> None:
        distance = b.shl(const(I64, 1), k)  # in vectors
        below = b.sub(distance, const(I64, 1))

        def pair(i: Value, _: object) -> None:
            low = b.and_(i, below)
            first = b.shl(b.or_(b.shl(b.sub(i, low), const(I64, 1)), low), const(I64, 6))
            second = b.add(first, b.shl(distance, const(I64, 6)))
            x, y = e.load(V16F, out, first), e.load(V16F, out, second)
            e.store(b.fadd(x, y), out, first)
            e.store(b.fsub(x, y), out, second)

        e.loop(pairs, pair)

    e.loop(stages, stage)


@emit("i64,i64,i64,i64,f32->void")
def _rotate_block(e, x, signs, out, block, scale):
    """out = H (signs * x). scale: 1 / sqrt(block)."""
    wide = e.splat(scale, LANES)

    def some(o, _):
        v = e.b.fmul(e.b.fmul(e.load(V16F, x, o), e.load(V16F, signs, o)), wide)
        e.store(_butterflies(e, v), out, o)

    e.loop(e.b.shl(block, const(I64, 2)), some, step=4 * LANES)
    _wider(e, out, block)


@emit("i64,i64,i64,i64,i64,f32->void")
def _rotate_moved(e, x, places, signs, out, block, scale):
    """As _rotate_block, of the values x[places]: i32 [block]."""
    b, wide = e.b, e.splat(scale, LANES)

    def some(o, _):
        at = [b.zext(e.load(I32, places, b.add(o, const(I64, 4 * i))), I64) for i in range(LANES)]
        v = lanes_of(e, [e.load(F32, x, b.shl(place, const(I64, 2))) for place in at])
        e.store(_butterflies(e, b.fmul(b.fmul(v, e.load(V16F, signs, o)), wide)), out, o)

    e.loop(b.shl(block, const(I64, 2)), some, step=4 * LANES)
    _wider(e, out, block)


@emit("i64,i64,i64,f32->void")
def _restore_block(e, x, signs, block, scale):
    """x = signs * (H x), in place."""
    wide = e.splat(scale, LANES)
    nbytes = e.b.shl(block, const(I64, 2))

    def some(o, _):
        e.store(_butterflies(e, e.b.fmul(e.load(V16F, x, o), wide)), x, o)

    e.loop(nbytes, some, step=4 * LANES)
    _wider(e, x, block)
    e.loop(
        nbytes,
        lambda o, _: e.store(e.b.fmul(e.load(V16F, x, o), e.load(V16F, signs, o)), x, o),
        step=4 * LANES,
    )


def transform(e: Emitter, x: Value, n: Value, block: Value) -> None:
    """x f32 [n] = H x, block by block, in place; `block`: a power of two from 16 that divides n."""
    b = e.b
    scale = e.splat(b.fdiv(const(F32, 1.0), e.intr("sqrt", b.sitofp(block, F32))), LANES)
    nbytes = b.shl(block, const(I64, 2))

    def one(i, _):
        here = b.add(x, b.mul(i, nbytes))

        def some(o, _):
            e.store(_butterflies(e, b.fmul(e.load(V16F, here, o), scale)), here, o)

        e.loop(nbytes, some, step=4 * LANES)
        _wider(e, here, block)

    e.loop(b.udiv(n, block), one)


@emit("i64,i64,i64->void")
def transform_row(e, x, n, block):
    """`transform` for kernels."""
    e.function("transform", transform, x, n, block)


@kernel
def rotate(
    a, tid, nth, *, groups: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int, block: Int, scale: Float,
    signs: Address, places: Address = 0,
):  # fmt: skip
    """out = H (signs * x[places]) for the columns of all groups (see kernels/products/gemv.py).

    signs   f32 [n]
    places  i32 [n]: which value of x comes where; 0: all stay
    block   values that are transformed together: a power of two from 16, and a divisor of n
    scale   1 / sqrt(block)
    """
    n_block = n // block
    for g in range(ldi(groups)):
        first, n_columns = ldi(groups + 24 * g + 16), ldi(groups + 24 * g + 24)
        for i in range(first * n_block + tid, (first + n_columns) * n_block, nth):
            c, o = i // n_block, i % n_block * block * 4
            if places:
                _rotate_moved(x + c * ldx, places + o, signs + o, out + c * ldout + o, block, scale)
            else:
                _rotate_block(x + c * ldx + o, signs + o, out + c * ldout + o, block, scale)


@kernel
def restore(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, block: Int, scale: Float, signs: Address):
    """x = signs * (H x), in place, for `count` rows: out of the basis of rotated weights. Fields: see `rotate`."""
    n_block = n // block
    for i in range(tid, ldi(count) * n_block, nth):
        o = i % n_block * block * 4
        _restore_block(x + i // n_block * ldx + o, signs + o, block, scale)


def normalization(block: int) -> float:
    """1 / sqrt(block), in f32."""
    return float(np.float32(1 / math.sqrt(block)))
