"""Means of neighbouring rows: pools the patches of a picture."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from .elementwise import over_values


@emit("i64,i64,i64,i64,i64,f32->void")
def _mean(e, x, ldx, out, n_row, n, scale):
    b = e.b

    def some(ty, factor):
        def one(o):
            def add(r, total):
                return [b.fadd(total[0], e.load(ty, x, b.add(o, b.mul(r, ldx))))]

            (total,) = e.loop(n_row, add, [const(ty, 0.0)])
            e.store(b.fmul(total, factor), out, o)

        return one

    over_values(e, n, some(Vec(F32, 16), e.splat(scale, 16)), some(F32, scale))


@kernel
def mean_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int, n_row: Int, scale: Float
):
    """out[t] = scale * (x[t n_row] + ... + x[t n_row + n_row - 1]), added in ascending order. f32 rows of n values."""
    for t in range(tid, ldi(count), nth):
        _mean(x + t * n_row * ldx, ldx, out + t * ldout, n_row, n, scale)
