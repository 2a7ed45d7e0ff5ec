"""xIELU (Huang 2024, arXiv:2411.13010): a parabola for positive values, based on an exponential for the others."""

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I32, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from .elementwise import CHUNK, over_values

# exp(y) = 1 + y + y^2 p(y) for |y| <= log(2) / 2: Taylor coefficients of p, highest power first; error 5e-9
_SERIES = (1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2)
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4  # log(2) in two parts; the first times an integer below 2^14 is exact


def expm1_nonpositive(e: Emitter, x: Value) -> Value:
    """exp(x) - 1 for x <= 0, within 2 ulp, even near 0; NaN stays NaN.

    exp(x) - 1 = 2^r (exp(y) - 1) + (2^r - 1) with y = x - r log(2).
    """
    b, ty = e.b, x.type
    n = ty.count
    x = e.at_least(x, -87.0)
    r = e.intr("rint", b.fmul(x, const(ty, LOG2E)))
    y = e.fma(r, const(ty, -LOG2_LOW), e.fma(r, const(ty, -LOG2_HIGH), x))
    p = const(ty, _SERIES[0])
    for k in _SERIES[1:]:
        p = e.fma(p, y, const(ty, k))
    small = e.fma(b.fmul(y, y), p, y)
    exponent = b.add(b.fptosi(r, Vec(I32, n)), const(Vec(I32, n), 127))
    power = b.bitcast(b.shl(exponent, const(Vec(I32, n), 23)), ty)
    return e.fma(power, small, b.fsub(power, const(ty, 1.0)))


@emit("i64,i64,f32,f32,f32,f32->void")
def _xielu_row(e, x, n, positive, negative, linear, least):
    def bent(v: Value) -> Value:
        b, lanes = e.b, v.type.count
        p, m, beta, eps = (e.splat(c, lanes) for c in (positive, negative, linear, least))
        straight = b.fmul(beta, v)
        above = e.fma(b.fmul(p, v), v, straight)
        low = b.select(b.fcmp_ordered(">", v, eps), eps, v)
        below = e.fma(b.fsub(expm1_nonpositive(e, low), v), m, straight)
        return b.select(b.fcmp_ordered(">", v, const(v.type, 0.0)), above, below)

    over_values(
        e,
        n,
        lambda o: e.store(bent(e.load(Vec(F32, 16), x, o)), x, o),
        lambda o: e.store(e.lane(bent(e.splat(e.load(F32, x, o), 4)), 0), x, o),
    )


@kernel
def xielu(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, positive: Float, negative: Float, linear: Float,
    least: Float,
):  # fmt: skip
    """x = positive x^2 + linear x where x > 0, else negative (exp(min(x, least)) - 1 - x) + linear x; least <= 0.

    Error: 4e-7 of max(1, |x|), with factors of about 1.
    """
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _xielu_row(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o), positive, negative, linear, least)
