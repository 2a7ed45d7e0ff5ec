"""SwiGLU with clamped inputs; gpt-oss's experts (arXiv:2508.10925) use another slope, and add 1 to the gated values."""

from ..build.jit import kernel
from ..emit.emitter import F32, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import sigmoid
from .elementwise import CHUNK, over_values


def _at_most(e: Emitter, x: Value, top: Value) -> Value:
    """min(x, top); NaN stays NaN."""
    return e.b.select(e.b.fcmp_ordered(">", x, top), top, x)


@emit("i64,i64,i64,i64,f32,f32,f32->void")
def _clamped_swiglu_row(e, gate, up, out, n, alpha, limit, offset):
    b = e.b

    def gated(ty, g, u):
        lanes = ty.count
        slope, top, more = (e.splat(x, lanes) for x in (alpha, limit, offset))
        low = b.fsub(const(ty, 0.0), top)
        g, u = _at_most(e, g, top), _at_most(e, u, top)
        u = b.select(b.fcmp_ordered("<", u, low), low, u)
        return b.fmul(sigmoid(e, b.fmul(g, slope), g), b.fadd(u, more))

    def whole(o):
        ty = Vec(F32, 16)
        e.store(gated(ty, e.load(ty, gate, o), e.load(ty, up, o)), out, o)

    def single(o):
        g, u = (e.splat(e.load(F32, x, o), 4) for x in (gate, up))
        e.store(e.lane(gated(Vec(F32, 4), g, u), 0), out, o)

    over_values(e, n, whole, single)


@kernel
def clamped_swiglu(
    a, tid, nth, *, count: Address, gate: Address, ldgate: Int, up: Address, ldup: Int, out: Address, ldout: Int,
    n: Int, alpha: Float, limit: Float, offset: Float,
):  # fmt: skip
    """out = g sigmoid(alpha g) (u + offset), g = min(gate, limit), u = up clamped to -limit .. limit; out may be gate
    or up."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t = i // per_row
        o = i % per_row * CHUNK
        _clamped_swiglu_row(
            gate + t * ldgate + 4 * o, up + t * ldup + 4 * o, out + t * ldout + 4 * o, min(CHUNK, n - o), alpha, limit,
            offset,
        )  # fmt: skip
