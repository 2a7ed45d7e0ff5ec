"""The gate of Kimi K3: SwiGLU whose two factors are limited smoothly, by tanh."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import sigmoid
from .elementwise import CHUNK, over_values


@emit("i64,i64,i64,i64,f32,f32->void")
def _situ_row(e, gate, up, out, n, beta, linear):
    b = e.b

    def gated(ty, g, u, bends_up):
        lanes = ty.count
        limit, top = e.splat(beta, lanes), e.splat(linear, lanes)
        value = sigmoid(e, g, b.fmul(limit, e.tanh(b.fdiv(g, limit))))
        return b.fmul(value, b.fmul(top, e.tanh(b.fdiv(u, top))) if bends_up else u)

    def rows(bends_up):
        def whole(o):
            ty = Vec(F32, 16)
            e.store(gated(ty, e.load(ty, gate, o), e.load(ty, up, o), bends_up), out, o)

        def single(o):
            g, u = (e.splat(e.load(F32, x, o), 4) for x in (gate, up))
            e.store(e.lane(gated(Vec(F32, 4), g, u, bends_up), 0), out, o)

        over_values(e, n, whole, single)

    with b.if_else(b.fcmp_ordered(">", linear, const(F32, 0.0))) as (bent, straight):
        with bent:
            rows(True)
        with straight:
            rows(False)


@kernel
def situ(
    a, tid, nth, *, count: Address, gate: Address, ldgate: Int, up: Address, ldup: Int, out: Address, ldout: Int,
    n: Int, beta: Float, linear_beta: Float,
):  # fmt: skip
    """out = beta tanh(gate / beta) sigmoid(gate) u with u = linear_beta tanh(up / linear_beta), or u = up if
    linear_beta is 0; out may be gate or up. All f32 [row][n]. Error: 8e-7 of max(1, |out|)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t = i // per_row
        o = i % per_row * CHUNK
        _situ_row(
            gate + t * ldgate + 4 * o, up + t * ldup + 4 * o, out + t * ldout + 4 * o, min(CHUNK, n - o), beta,
            linear_beta,
        )  # fmt: skip
