"""Real-gated linear recurrent unit. De et al. 2024, arXiv:2402.19427. Batch control and states: states.py."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Int
from .states import GROUP, F32Array, enter_state, next_part, optional, sigmoid, strip_of

TILE = 16  # tokens of a tile
POWER = 8.0  # c of the paper


def lru_rate(recurrent_param: npt.ArrayLike) -> F32Array:
    """Lambda of the checkpoint [channel] -> `rate` of `rg_lru`: -8 * softplus(Lambda) * log2(e)."""
    return (-POWER * LOG2E * np.logaddexp(0.0, np.asarray(recurrent_param, np.float64))).astype(np.float32)


def _one_minus_exp2(e: Emitter, t: Value) -> Value:
    """1 - 2^t for t <= 0, exact to the last bits even near t = 0, unlike 1 - exp2(t). NaN stays NaN.

    With r = rint(t) and p = 2^(t - r) - 1: (1 - 2^r) - 2^r p; coefficients as in Emitter.exp2.
    """
    b, ty = e.b, t.type
    ints = Vec(I32, ty.count)
    t = e.at_least(t, -126.0)
    r = e.intr("rint", t)
    f = b.fsub(t, r)
    p = const(ty, 1.535336188e-4)
    for k in (1.339887440e-3, 9.618437357e-3, 5.550332471e-2, 2.402264791e-1, 6.931472028e-1):
        p = e.fma(p, f, const(ty, k))
    p = b.fmul(p, f)
    whole = b.add(b.shl(b.fptosi(r, ints), const(ints, 23)), const(ints, 0x3F800000))
    power = b.bitcast(whole, ty)
    return e.fma(b.fneg(power), p, b.fsub(const(ty, 1.0), power))


def _channels(width: int) -> Any:
    """Piece for m tokens from row u, `width` channels from c on; fresh != 0: the first token begins a sequence."""

    def channels(e: Emitter, a: Value, u: Value, c: Value, state: Value, fresh: Value, m: Value) -> None:
        b, f, ty, column = e.b, Fields(e, a, rg_lru), Vec(F32, width), e.b.shl(c, const(I64, 2))
        x, r, i, y = (f.rows(name, u, c) for name in ("x", "gate_r", "gate_i", "y"))
        r_bias, i_bias = optional(e, ty, f.bias_r, column), optional(e, ty, f.bias_i, column)
        rate = e.load(ty, f.rate, column)
        begins = b.icmp_signed("!=", fresh, const(I64, 0))

        def token(t: Value, h: list[Value]) -> list[Value]:
            log_a = b.fmul(rate, sigmoid(e, b.fadd(r.load(ty, t), r_bias)))
            gain = e.intr("sqrt", _one_minus_exp2(e, b.fadd(log_a, log_a)))
            first = b.and_(begins, b.icmp_signed("==", t, const(I64, 0)))
            gain = b.select(first, const(ty, 1.0), gain)
            gated = b.fmul(x.load(ty, t), sigmoid(e, b.fadd(i.load(ty, t), i_bias)))
            new = e.fma(e.exp2(log_a), h[0], b.fmul(gain, gated))
            y.store(new, t)
            return [new]

        (last,) = e.loop(m, token, [e.load(ty, state)])
        e.store(last, state)

    return emit("i64,i64,i64,i64,i64,i64->void")(channels)


channels_wide, channels_one = _channels(GROUP), _channels(1)


@kernel
def rg_lru(
    a, tid, nth, *, ctl: Address, seg: Address, x: Address, ldx: Int, gate_r: Address, ldgate_r: Int,
    bias_r: Address = 0, gate_i: Address, ldgate_i: Int, bias_i: Address = 0, rate: Address, state: Address,
    stride: Int, y: Address, ldy: Int, n_channel: Int, counter: Counter,
):  # fmt: skip
    """Recurrence of RG-LRU with its gates, whose inputs r and i are already computed.

        a = exp(-8 softplus(Lambda) sigmoid(r + bias_r))
        h = a h + sqrt(1 - a^2) (sigmoid(i + bias_i) x);  at the first token of a sequence the root is replaced by 1
        y = h

    ctl, seg, counter  batch control
    x                  f32 [tok][n_channel] after convolution
    gate_r, gate_i     r and i: f32 [tok][n_channel]; y may be x or one of them
    bias_r, bias_i     f32 [n_channel]; 0: none
    rate               f32 [n_channel], see `lru_rate`
    state, stride      f32 [row][n_channel / 16][1][16], read and written; bytes from row to row
    y                  f32 [tok][n_channel]

    Reference: tests/reference/recurrent.py. Error: 6e-7 of max(1, |h|).
    """
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_channel, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n, fresh = ldi(s), ldi(s + 8), 1 if ldi(s + 24) < 0 else 0
        row = state + ldi(s + 16) * stride
        enter_state(s, state, stride, 4 * c0, (c1 - c0 + GROUP - 1) // GROUP * GROUP)
        for t in range(0, n, TILE):
            u, m, begins = first + t, min(TILE, n - t), fresh if t == 0 else 0
            for c in range(c0, c1 - GROUP + 1, GROUP):
                channels_wide(a, u, c, row + 4 * c, begins, m)
            for c in range(c1 // GROUP * GROUP, c1):
                channels_one(a, u, c, row + 4 * c, begins, m)
