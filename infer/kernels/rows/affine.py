"""Rows shifted and scaled, with a bias and weight for each value, and the sum of two such rows."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import CHUNK, over_values


@emit("i64,i64,i64,i64->void")
def _affine(e, x, weight, bias, n):
    """x = (x + bias) * weight"""

    def some(ty):
        return lambda o: e.store(e.b.fmul(e.b.fadd(e.load(ty, x, o), e.load(ty, bias, o)), e.load(ty, weight, o)), x, o)

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@emit("i64,i64,i64,i64,i64,i64,i64->void")
def _affine_sum(e, x, weight, bias, more, more_weight, more_bias, n):
    """x = fma(x + bias, weight, (more + more_bias) * more_weight)"""
    b = e.b

    def some(ty):
        def one(o):
            added = b.fmul(b.fadd(e.load(ty, more, o), e.load(ty, more_bias, o)), e.load(ty, more_weight, o))
            e.store(e.fma(b.fadd(e.load(ty, x, o), e.load(ty, bias, o)), e.load(ty, weight, o), added), x, o)

        return one

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@emit("i64,i64,i64,i64->void")
def _add_scaled(e, x, more, weight, n):
    """x += more * weight, rounded once"""

    def some(ty):
        return lambda o: e.store(e.fma(e.load(ty, more, o), e.load(ty, weight, o), e.load(ty, x, o)), x, o)

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@kernel
def affine_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, weight: Address, bias: Address, n: Int,
    more: Address = 0, ldmore: Int, more_weight: Address = 0, more_bias: Address = 0,
):  # fmt: skip
    """x = (x + bias) * weight, plus (more + more_bias) * more_weight if `more` is given.

    x, more                    f32 [row][n]
    weight, bias, more_*       f32 [n]
    """
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        size, o = min(CHUNK, n - o), 4 * o
        if more:
            _affine_sum(
                x + t * ldx + o, weight + o, bias + o, more + t * ldmore + o, more_weight + o, more_bias + o, size
            )
        else:
            _affine(x + t * ldx + o, weight + o, bias + o, size)


@kernel
def add_scaled_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, more: Address, ldmore: Int, weight: Address, n: Int
):
    """x += more * weight: x, more f32 [row][n], weight f32 [n]."""
    for t in range(tid, ldi(count), nth):
        _add_scaled(x + t * ldx, more + t * ldmore, weight, n)
