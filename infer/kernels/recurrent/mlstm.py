"""What surrounds the scan of the mLSTM, a matrix memory with exponential gates. Beck et al. 2024, arXiv:2405.04517;
Beck et al. 2025, arXiv:2503.13427. Batch control, items and states: see recurrent.py.

    C = exp(log f + m' - m) C + exp(i - m) k v^T;  n likewise with k;  m = max(log f + m', i), m' the m before
    h = C^T q / (max(|n . q|, exp(-m)) + eps)

n is C for a value that is always 1, so `mamba2_scan` does all of it: heads of [v, 1], B = k, C = q.
"""

from typing import Any

import numpy as np

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Value, Vec, arg, const, emit, ldi, stf
from ..rows.layer_norm import centre
from .states import (
    GROUP,
    Fields,
    copy_floats,
    each_group,
    enter_state,
    load_lanes,
    next_part,
    sigmoid,
    store_lanes,
    strip_of,
)

ONE = np.float32(1.0)
GATES = "ctl seg i ldi i_bias f ldf f_bias cap state stride gain ldgain decay lddecay low ldlow n_head ctr"
OUTPUT = "count y ldy low ldlow gate ldgate weight out ldout n_head d eps norm_eps"
V16F = Vec(F32, GROUP)


@emit("i64,i64,i64,i64,i64,i64->void")
def _gates(e, a, u, c, state, n, m):
    """m tokens from row u for up to 16 heads from c, of which n exist."""
    b, f, column, zero = e.b, Fields(e, a, GATES), e.b.shl(c, const(I64, 2)), const(I64, 0)
    cap = e.splat(f.f32("cap"), GROUP)

    def capped(name: str) -> Any:
        rows, (bias,) = f.rows(name, u, c), load_lanes(e, e.at(getattr(f, name + "_bias"), column), n, 1)

        def at(t: Value) -> Value:
            (v,) = load_lanes(e, rows.at(t), n, 1)
            return b.fmul(cap, e.tanh(b.fdiv(b.fadd(v, bias), cap)))

        return at

    i_at, f_at = capped("i"), capped("f")
    gain, decay, low = (f.rows(name, u, c) for name in ("gain", "decay", "low"))

    def token(t: Value, kept: list[Value]) -> list[Value]:
        i, forget = i_at(t), f_at(t)
        carried = b.fsub(kept[0], e.softplus(b.fneg(forget)))
        new = b.select(b.fcmp_ordered("<", carried, i), i, carried)
        store_lanes(e, [e.exp_nonpositive(b.fsub(i, new))], gain.at(t), n)
        store_lanes(e, [e.exp_nonpositive(b.fsub(carried, new))], decay.at(t), n)
        store_lanes(e, [e.exp2(e.at_most(b.fmul(new, const(V16F, -LOG2E)), 126.0))], low.at(t), n)
        return [new]

    (last,) = e.loop(m, token, load_lanes(e, e.at(state, zero), n, 1))
    store_lanes(e, [last], e.at(state, zero), n)


@kernel
def mlstm_gates(a, tid, nth):
    """Factors of the scan from the gates, which are capped first: g = cap * tanh((g + bias) / cap).

        log f = -softplus(-f);  m = max(log f + m', i)
        gain = exp(i - m);  decay = exp(log f + m' - m);  low = exp(-m)

     0 ctl, 1 seg             batch control
     2 i, 3 ldi, 4 i_bias     f32 [tok][head], bias f32 [head]
     5 f, 6 ldf, 7 f_bias     the same
     8 cap                    above 0
     9 state, 10 stride       m: f32 [row][head], read and written; stride of rows in bytes; 0 where a sequence begins
    11 gain, 12 ldgain, 13 decay, 14 lddecay, 15 low, 16 ldlow      f32 [tok][head]
    17 n_head, 18 ctr

    Reference: tests/reference/xlstm.py. Error: 3e-6 of max(1, |value|) where gates are capped at 15.
    """
    n_seg, n_head, ctr = ldi(arg(a, 0) + 8), arg(a, 17), arg(a, 18)
    strip = strip_of(n_head, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(ctr, n_head, strip, arg(a, 1), n_seg, c0, c1, s)
        if c0 == n_head:
            break
        state = arg(a, 9) + ldi(s + 16) * arg(a, 10)
        enter_state(s, arg(a, 9), arg(a, 10), 4 * c0, c1 - c0)
        for c in range(c0, c1, GROUP):
            _gates(a, ldi(s), c, state + 4 * c, min(GROUP, c1 - c), ldi(s + 8))


@kernel
def mlstm_inputs(a, tid, nth):
    """out[t] = [v, 1] of every head, then k, then q: rows as `mamba2_scan` takes them.

    0 count, 1 v, 2 ldv, 3 k, 4 ldk, 5 q, 6 ldq, 7 out, 8 ldo, 9 n_head, 10 d_k, 11 d_v
    """
    n_head, d_k, d_v = arg(a, 9), arg(a, 10), arg(a, 11)
    for t in range(tid, ldi(arg(a, 0)), nth):
        v, out = arg(a, 1) + t * arg(a, 2), arg(a, 7) + t * arg(a, 8)
        for h in range(n_head):
            copy_floats(v + 4 * h * d_v, out + 4 * h * (d_v + 1), d_v)
            stf(out + 4 * (h * (d_v + 1) + d_v), ONE)
        out += 4 * n_head * (d_v + 1)
        copy_floats(arg(a, 3) + t * arg(a, 4), out, n_head * d_k)
        copy_floats(arg(a, 5) + t * arg(a, 6), out + 4 * n_head * d_k, n_head * d_k)


@emit("i64,i64,i64->void")
def _finish(e, a, t, h):
    b, f, zero = e.b, Fields(e, a, OUTPUT), const(I64, 0)
    column = b.mul(h, f.d)
    y = f.rows("y", t, b.add(column, h)).at(zero)
    gate, out = (f.rows(name, t, column).at(zero) for name in ("gate", "out"))
    weight = e.at(f.weight, b.shl(column, const(I64, 2)))
    n = e.intr("fabs", e.load(F32, y, b.shl(f.d, const(I64, 2))))
    low = f.rows("low", t, h).load(F32, zero)
    divisor = e.splat(b.fadd(b.select(b.fcmp_ordered("<", n, low), low, n), f.f32("eps")), GROUP)

    def divide(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(y, o), left, 1)
        store_lanes(e, [b.fdiv(v, divisor)], e.at(out, o), left)

    def scale(o: Value, left: Value, _: list[Value]) -> None:
        v, w, g = (load_lanes(e, e.at(pointer, o), left, 1)[0] for pointer in (out, weight, gate))
        store_lanes(e, [sigmoid(e, g, b.fmul(b.fmul(v, factor), w))], e.at(out, o), left)

    each_group(e, f.d, divide)
    factor = centre(e, out, out, f.d, f.f32("norm_eps"))
    each_group(e, f.d, scale)


@kernel
def mlstm_output(a, tid, nth):
    """h = y[:d] / (max(|y[d]|, low) + eps) of every head, its layer norm without a bias, and the output gate:
    out = (h - mean(h)) / sqrt(var(h) + norm_eps) * weight * sigmoid(gate).

     0 count                  of tokens
     1 y, 2 ldy               f32 [tok][head][d + 1], of the scan
     3 low, 4 ldlow           f32 [tok][head], of `mlstm_gates`
     5 gate, 6 ldgate         f32 [tok][head][d]
     7 weight                 f32 [head][d]
     8 out, 9 ldout           f32 [tok][head][d], not y
    10 n_head, 11 d, 12 eps, 13 norm_eps

    Reference: tests/reference/xlstm.py. Error: 1e-6 of max(1, |out|).
    """
    n_head = arg(a, 10)
    for i in range(tid, ldi(arg(a, 0)) * n_head, nth):
        _finish(a, i // n_head, i % n_head)
