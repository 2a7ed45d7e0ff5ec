"""Values clamped to -limit .. limit."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from .elementwise import CHUNK, over_values


@emit("i64,i64,f32->void")
def _clamp_row(e, x, n, limit):
    """x = min(max(x, -limit), limit); NaN stays NaN."""
    b = e.b

    def some(ty, top):
        low = b.fsub(const(ty, 0.0), top)

        def one(o):
            v = e.load(ty, x, o)
            v = b.select(b.fcmp_ordered("<", v, low), low, v)
            e.store(b.select(b.fcmp_ordered(">", v, top), top, v), x, o)

        return one

    over_values(e, n, some(Vec(F32, 16), e.splat(limit, 16)), some(F32, limit))


@kernel
def clamp(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, limit: Float):
    """x = min(max(x, -limit), limit)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _clamp_row(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o), limit)


@emit("i64,i64,i64,f32,f32->void")
def _clamp_between_row(e, x, out, n, low, high):
    """out = min(max(x, low), high); NaN stays NaN."""
    b = e.b

    def some(ty, least, most):
        def one(o):
            v = e.load(ty, x, o)
            v = b.select(b.fcmp_ordered("<", v, least), least, v)
            e.store(b.select(b.fcmp_ordered(">", v, most), most, v), out, o)

        return one

    over_values(e, n, some(Vec(F32, 16), e.splat(low, 16), e.splat(high, 16)), some(F32, low, high))


@kernel
def clamp_between(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int, low: Float, high: Float
):
    """out = min(max(x, low), high). out may be x."""
    for t in range(tid, ldi(count), nth):
        _clamp_between_row(x + t * ldx, out + t * ldout, n, low, high)
