"""State space duality, the layer of Mamba-2. Dao & Gu 2024, arXiv:2405.21060. Batch control and states: states.py.

Tokens are processed in sequence, two in each pass over a head's state. The paper's chunked form would need two
multiply-adds per state and token instead of three, but its sums depend on where a chunk begins.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Float, Int
from .head_scan import head_scan
from .states import GROUP, F32Array, load_lanes, store_lanes

STRIP = 32  # lanes of a head processed together: 4 registers of 8 lanes for the state, 8 for the sums of two tokens


def decay_rate(a: npt.ArrayLike) -> F32Array:
    """A of the file (negative, [head]) -> `rate` of `mamba2_steps`: A * log2(e)."""
    return (np.asarray(a, np.float64) * LOG2E).astype(np.float32)


# --- step sizes and decays --------------------------------------------------------------------------------------------
@emit("i64,i64,i64,i64->void")
def _steps(e, a, t, h, n):
    """Steps and decays of heads h .. h + n - 1 of token t, n <= 16."""
    b, f, ty = e.b, Fields(e, a, mamba2_steps), Vec(F32, GROUP)
    column = b.shl(h, const(I64, 2))
    zero = const(I64, 0)
    raw, bias, rate = (
        load_lanes(e, pointer, n, 1)[0]
        for pointer in (f.rows("dt", t, h).at(zero), e.at(f.dt_bias, column), e.at(f.rate, column))
    )
    step = e.softplus(b.fadd(raw, bias))
    low, high = e.splat(f.low, GROUP), e.splat(f.high, GROUP)
    # written so that NaN stays NaN
    step = b.select(b.fcmp_ordered("<", step, low), low, step)
    step = b.select(b.fcmp_ordered(">", step, high), high, step)
    assert step.type == ty
    store_lanes(e, [step], f.rows("delta", t, h).at(zero), n)
    store_lanes(e, [e.exp2(b.fmul(step, rate))], f.rows("decay", t, h).at(zero), n)


@kernel
def mamba2_steps(
    a, tid, nth, *, count: Address, dt: Address, lddt: Int, dt_bias: Address, rate: Address, delta: Address,
    lddelta: Int, decay: Address, lddecay: Int, n_head: Int, low: Float, high: Float,
):  # fmt: skip
    """delta = clamp(softplus(dt + dt_bias), low, high), decay = exp(delta * A).

    count         of tokens
    dt            f32 [tok][head]
    dt_bias, rate f32 [head]; rate = A * log2(e), see `decay_rate`
    delta, decay  written: f32 [tok][head]
    low, high     0 and infinity: no limits

    Reference: tests/reference/recurrent.py. Error: 1e-6 of max(1, |value|).
    """
    per_token = (n_head + GROUP - 1) // GROUP
    for i in range(tid, ldi(count) * per_token, nth):
        h = i % per_token * GROUP
        _steps(a, i // per_token, h, min(GROUP, n_head - h))


# --- the scan ---------------------------------------------------------------------------------------------------------
def _strip(groups: int) -> Any:
    """Piece: scans n tokens from row `first` on for up to 16 * groups lanes of a head."""

    def strip(e: Emitter, a: Value, first: Value, n: Value, head: Value, lane: Value, state: Value) -> None:
        b, f = e.b, Fields(e, a, mamba2_scan)
        column, left = b.add(b.mul(head, f.d_head), lane), b.sub(f.d_head, lane)
        group = b.sdiv(b.mul(head, f.n_group), f.n_head)
        b_or_c = b.mul(group, f.d_state)
        x, z, y = f.rows("x", first, column, "ld"), f.rows("z", first, column), f.rows("y", first, column)
        B, C = f.rows("b", first, b_or_c, "ld"), f.rows("c", first, b_or_c, "ld")
        deltas, decays = f.rows("delta", first, head), f.rows("decay", first, head)
        skip = e.splat(e.load(F32, f.skip, b.shl(head, const(I64, 2))), GROUP)
        depth = b.shl(f.d_state, const(I64, 6))  # bytes of 16 lanes
        ungated = b.icmp_signed("==", f.z, const(I64, 0))
        every = range(groups)

        def together(count: int) -> Callable[[Value, list[Value]], None]:
            """`count` tokens in one pass over the state."""

            def tokens(t: Value, _: list[Value]) -> None:
                at = [b.add(t, const(I64, j)) for j in range(count)]
                inputs, sums = [], []
                for u in at:
                    lanes = load_lanes(e, x.at(u), left, groups)
                    delta = e.splat(deltas.load(F32, u), GROUP)
                    inputs.append([b.fmul(delta, v) for v in lanes])
                    sums += [b.fmul(skip, v) for v in lanes]
                decay = [e.splat(decays.load(F32, u), GROUP) for u in at]
                brow, crow = [B.at(u) for u in at], [C.at(u) for u in at]

                def state_row(s: Value, acc: list[Value]) -> list[Value]:
                    acc = list(acc)
                    row, col = b.shl(s, const(I64, 6)), b.shl(s, const(I64, 2))
                    bs = [e.splat(e.load(F32, r, col), GROUP) for r in brow]
                    cs = [e.splat(e.load(F32, r, col), GROUP) for r in crow]
                    places = [b.add(row, b.mul(depth, const(I64, g))) for g in every]
                    # all loads before the first store: lanes 16 apart may lie a multiple of 4 KB apart
                    states = [e.load(Vec(F32, GROUP), state, place) for place in places]
                    for j in range(count):
                        for g in every:
                            states[g] = e.fma(decay[j], states[g], b.fmul(bs[j], inputs[j][g]))
                            acc[j * groups + g] = e.fma(states[g], cs[j], acc[j * groups + g])
                    for h, place in zip(states, places, strict=True):
                        e.store(h, state, place)
                    return acc

                sums = e.loop(f.d_state, state_row, sums)
                for j, u in enumerate(at):
                    total = sums[j * groups : (j + 1) * groups]
                    # without a gate, x is read instead and not used
                    gates = load_lanes(e, b.select(ungated, x.at(u), z.at(u)), left, groups)
                    gated = [
                        b.select(ungated, v, b.fmul(v, e.sigmoid_times(w))) for v, w in zip(total, gates, strict=True)
                    ]
                    store_lanes(e, gated, y.at(u), left)

            return tokens

        n_paired = b.and_(n, const(I64, -2))
        e.loop(n_paired, together(2), step=2)
        e.loop(n, together(1), start=n_paired)

    return emit("i64,i64,i64,i64,i64,i64->void")(strip)


strip_two, strip_one = _strip(2), _strip(1)


@emit("i64,i64,i64,i64,i64,i64->void")
def _strips(e, a, first, n, head, lane, state):
    args = (a, first, n, head, lane, state)
    left = e.b.sub(Fields(e, a, mamba2_scan).d_head, lane)
    with e.b.if_else(e.b.icmp_signed(">", left, const(I64, GROUP))) as (more, few):
        with more:
            strip_two.body(e, *args)
        with few:
            strip_one.body(e, *args)


@head_scan(_strips, width="d_head", depth="d_state", strip=STRIP)
def mamba2_scan(
    *, ctl: Address, seg: Address, x: Address, b: Address, c: Address, ld: Int, delta: Address, lddelta: Int,
    decay: Address, lddecay: Int, skip: Address, z: Address = 0, ldz: Int, state: Address, stride: Int, y: Address,
    ldy: Int, n_head: Int, d_head: Int, d_state: Int, n_group: Int, counter: Counter,
):  # fmt: skip
    """Scan of Mamba-2; steps and decays come from `mamba2_steps`.

        h[p][n] = decay * h[p][n] + (delta * x[p]) * B[n]
        y[p]    = (D * x[p] + sum_n C[n] * h[p][n]) * silu(z[p])

    ctl, seg, counter  batch control
    x, b, c            f32 rows after convolution: x [tok][head][d_head], B and C [tok][group][d_state]
    delta, decay       f32 [tok][head]
    skip               D: f32 [head]
    z                  f32 [tok][head][d_head]; 0: no gate
    state, stride      f32 [row][head][d_head / 16][d_state][16], read and written; bytes from row to row
    y                  f32 [tok][head][d_head]; may be z
    n_group            head h reads group h * n_group // n_head

    The sum begins with D * x, then one fma per n, ascending.
    Reference: tests/reference/recurrent.py. Error of the state: 2.4e-7 of max(1, |h|); of y: 7e-7 of sqrt(d_state) |h|
    with 256 states.
    """
