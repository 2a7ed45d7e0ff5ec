"""Limits the length of groups of a row's values, the heads of queries and keys (Inkling 2)."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import GROUP, each_group, load_lanes, store_lanes

SMALL = 1e-6  # added to a length before it divides


@emit("i64,i64,i64,f32->void")
def _clip_group(e, x, weight, n, limit):
    """Squares are summed in 16 lanes, halved at the end."""
    b, ty = e.b, Vec(F32, GROUP)

    def square(o, left, sums):
        (v,), (w,) = load_lanes(e, e.at(x, o), left, 1), load_lanes(e, e.at(weight, o), left, 1)
        v = b.fmul(v, w)
        store_lanes(e, [v], e.at(x, o), left)
        return [e.fma(v, v, sums[0])]

    def scale(o, left, _):
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        store_lanes(e, [b.fmul(v, factor)], e.at(x, o), left)

    (sums,) = each_group(e, n, square, [const(ty, 0.0)])
    share = b.fdiv(limit, b.fadd(e.intr("sqrt", e.halving_sum(sums)), const(F32, SMALL)))
    one = const(F32, 1.0)
    factor = e.splat(b.select(b.fcmp_ordered(">", share, one), one, share), GROUP)  # a NaN stays
    each_group(e, n, scale)


@kernel
def length_clip(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, weight: Address, stride: Int, n_group: Int, n: Int,
    limit: Float,
):  # fmt: skip
    """x = y * min(1, limit / (|y| + SMALL)) with y = x * weight, for every group of n values; |y| is its length.

    x               f32 [tok][group][n], changed in place
    weight, stride  f32 [n] per group, `stride` bytes apart (0: the same for all)

    Reference: tests/reference/inkling.py. Error: 4e-7 of max(1, |x|).
    """
    for i in range(tid, ldi(count) * n_group, nth):
        t, g = i // n_group, i % n_group
        _clip_group(x + t * ldx + 4 * g * n, weight + g * stride, n, limit)
