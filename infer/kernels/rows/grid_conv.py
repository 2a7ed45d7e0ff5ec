"""A depthwise convolution over the grid of a picture's patches, with a gate before and after it."""

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import over_values


@emit("i64,i64,i64,i64,i64,i64,i64->void")
def _one(e, rows, ld, near, weight, out, n_tap, n):
    b = e.b
    size = b.shl(n, const(I64, 2))

    def some(ty):
        def one(o):
            def tap(j, total):
                index = e.load(I64, near, b.shl(j, const(I64, 3)))
                row = b.add(b.add(rows, b.mul(index, ld)), o)
                product = b.fmul(e.load(ty, row), e.load(ty, row, b.shl(size, const(I64, 1))))
                w = e.load(ty, weight, b.add(o, b.mul(j, size)))
                return [e.fma(product, w, total[0])]

            (total,) = e.loop(n_tap, tap, [const(ty, 0.0)])
            e.store(total, out, o)

        return one

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@emit("i64,i64,i64->void")
def _gate(e, out, gate, n):
    def some(ty):
        return lambda o: e.store(e.b.fmul(e.load(ty, out, o), e.load(ty, gate, o)), out, o)

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@emit("i64,i64->void")
def _clear(e, x, n):
    over_values(
        e,
        n,
        lambda o: e.store(const(Vec(F32, 16), 0.0), x, o),
        lambda o: e.store(const(F32, 0.0), x, o),
    )


@kernel
def zero_row(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int):
    """x[count] = 0: the row after the last."""
    if tid == 0:
        _clear(x + ldi(count) * ldx, n)


@kernel
def grid_conv(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, near: Address, weight: Address, out: Address, ldout: Int,
    n: Int, n_tap: Int,
):  # fmt: skip
    """out[t] = c[t] * (w[0] * u[near[t][0]] + w[1] * u[near[t][1]] + ...) with u = b * v, added in this order.

    x       f32 [count + 1][3 n]: b, c and v side by side; the row after the last is of zeros
    near    i64 [count][n_tap]: the patch under each tap; `count`: outside of the picture
    weight  f32 [n_tap][n]
    """
    for t in range(tid, ldi(count), nth):
        _one(x, ldx, near + t * n_tap * 8, weight, out + t * ldout, n_tap, n)
        _gate(out + t * ldout, x + t * ldx + 4 * n, n)
