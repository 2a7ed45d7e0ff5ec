"""Kernels before and after the scan of the mLSTM, a matrix memory with exponential gates. Beck et al. 2024,
arXiv:2405.04517; Beck et al. 2025, arXiv:2503.13427. Batch control, items and states: see states.py.

    C = exp(log f + m' - m) C + exp(i - m) k v^T;  n likewise with k;  m = max(log f + m', i), m' the previous m
    h = C^T q / (max(|n . q|, exp(-m)) + eps)

n is C for a value that is always 1, so `mamba2_scan` computes both: heads of [v, 1], B = k, C = q.
"""

from typing import Any

import numpy as np

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Value, Vec, const, emit, ldi, stf
from ..emit.fields import Address, Counter, Fields, Float, Int
from ..rows.layer_norm import centre
from .states import (
    GROUP,
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
V16F = Vec(F32, GROUP)


@emit("i64,i64,i64,i64,i64,i64->void")
def _gates(e, a, u, c, state, n, m):
    """`mlstm_gates` of m tokens from row u for heads c .. c + n - 1, n <= 16."""
    b, f, column, zero = e.b, Fields(e, a, mlstm_gates), e.b.shl(c, const(I64, 2)), const(I64, 0)
    cap = e.splat(f.cap, GROUP)

    def capped(name: str) -> Any:
        bias_at = e.at(getattr(f, "bias_" + name), column)
        rows, (bias,) = f.rows("gate_" + name, u, c), load_lanes(e, bias_at, n, 1)

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
def mlstm_gates(
    a, tid, nth, *, ctl: Address, seg: Address, gate_i: Address, ldgate_i: Int, bias_i: Address, gate_f: Address,
    ldgate_f: Int, bias_f: Address, cap: Float, state: Address, stride: Int, gain: Address, ldgain: Int,
    decay: Address, lddecay: Int, low: Address, ldlow: Int, n_head: Int, counter: Counter,
):  # fmt: skip
    """Factors of the scan from the gates, which are first capped: g = cap * tanh((g + bias) / cap).

        log f = -softplus(-f);  m = max(log f + m', i)
        gain = exp(i - m);  decay = exp(log f + m' - m);  low = exp(-m)

    ctl, seg, counter  batch control
    gate_i, gate_f     i and f: f32 [tok][head]
    bias_i, bias_f     f32 [head]
    cap                above 0
    state, stride      m: f32 [row][head], read and written; bytes from row to row; 0 where a sequence begins
    gain, decay, low   written: f32 [tok][head]

    Reference: tests/reference/xlstm.py. Error: 3e-6 of max(1, |value|) where gates are capped at 15.
    """
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_head, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_head, strip, seg, n_seg, c0, c1, s)
        if c0 == n_head:
            break
        row = state + ldi(s + 16) * stride
        enter_state(s, state, stride, 4 * c0, c1 - c0)
        for c in range(c0, c1, GROUP):
            _gates(a, ldi(s), c, row + 4 * c, min(GROUP, c1 - c), ldi(s + 8))


@kernel
def mlstm_inputs(
    a, tid, nth, *, count: Address, v: Address, ldv: Int, k: Address, ldk: Int, q: Address, ldq: Int, out: Address,
    ldout: Int, n_head: Int, d_k: Int, d_v: Int,
):  # fmt: skip
    """out[t] = [v, 1] of every head, then k, then q: rows for `mamba2_scan`. v f32 [tok][head][d_v], k and q
    f32 [tok][head][d_k]."""
    for t in range(tid, ldi(count), nth):
        values, row = v + t * ldv, out + t * ldout
        for h in range(n_head):
            copy_floats(values + 4 * h * d_v, row + 4 * h * (d_v + 1), d_v)
            stf(row + 4 * (h * (d_v + 1) + d_v), ONE)
        row += 4 * n_head * (d_v + 1)
        copy_floats(k + t * ldk, row, n_head * d_k)
        copy_floats(q + t * ldq, row + 4 * n_head * d_k, n_head * d_k)


@emit("i64,i64,i64->void")
def _finish(e, a, t, h):
    b, f, zero = e.b, Fields(e, a, mlstm_output), const(I64, 0)
    column = b.mul(h, f.d)
    y = f.rows("y", t, b.add(column, h)).at(zero)
    gate, out = (f.rows(name, t, column).at(zero) for name in ("gate", "out"))
    weight = e.at(f.weight, b.shl(column, const(I64, 2)))
    n = e.intr("fabs", e.load(F32, y, b.shl(f.d, const(I64, 2))))
    low = f.rows("low", t, h).load(F32, zero)
    divisor = e.splat(b.fadd(b.select(b.fcmp_ordered("<", n, low), low, n), f.eps), GROUP)

    def divide(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(y, o), left, 1)
        store_lanes(e, [b.fdiv(v, divisor)], e.at(out, o), left)

    def scale(o: Value, left: Value, _: list[Value]) -> None:
        v, w, g = (load_lanes(e, e.at(pointer, o), left, 1)[0] for pointer in (out, weight, gate))
        store_lanes(e, [sigmoid(e, g, b.fmul(b.fmul(v, factor), w))], e.at(out, o), left)

    each_group(e, f.d, divide)
    factor = centre(e, out, out, f.d, f.norm_eps)
    each_group(e, f.d, scale)


@kernel
def mlstm_output(
    a, tid, nth, *, count: Address, y: Address, ldy: Int, low: Address, ldlow: Int, gate: Address, ldgate: Int,
    weight: Address, out: Address, ldout: Int, n_head: Int, d: Int, eps: Float, norm_eps: Float,
):  # fmt: skip
    """h = y[:d] / (max(|y[d]|, low) + eps) for every head, then layer norm without a bias, and the output gate:
    out = (h - mean(h)) / sqrt(var(h) + norm_eps) * weight * sigmoid(gate).

    count   of tokens
    y       f32 [tok][head][d + 1], from the scan
    low     f32 [tok][head], from `mlstm_gates`
    gate    f32 [tok][head][d]
    weight  f32 [head][d]
    out     f32 [tok][head][d], not y

    Reference: tests/reference/xlstm.py. Error: 1e-6 of max(1, |out|).
    """
    for i in range(tid, ldi(count) * n_head, nth):
        _finish(a, i // n_head, i % n_head)
