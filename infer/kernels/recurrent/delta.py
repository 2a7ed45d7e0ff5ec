"""The gated delta rule. Yang et al. 2024, arXiv:2412.06464 (one gate per head); Kimi Linear, arXiv:2510.26692 (one per
channel of the keys). Batch control, items and states: see states.py.

    S = diag(gate) S;  S = S + k (beta (v - S^T k))^T;  y = S^T q

Tokens are processed in sequence. A token's addition is known only after a whole pass over the state, so it is added in
the next token's pass, and y = (diag(gate) S)^T q + (k . q) beta (v - S^T k) needs no extra pass: per token the state is
read once and written once, with four operations per element.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Float, Int
from .head_scan import head_scan
from .states import GROUP, F32Array, each_group, load_lanes, sigmoid, store_lanes

CHUNK = 512  # gates that a thread computes at a time


def decay_rates(a: npt.ArrayLike, n_channel: int = 1) -> F32Array:
    """A of the file (negative, [head]) -> `rate` of `delta_prepare`: A * log2(e), once for each of a head's gates."""
    return np.repeat((np.asarray(a, np.float64) * LOG2E).astype(np.float32), n_channel)


# --- before the scan --------------------------------------------------------------------------------------------------
@emit("i64,i64,i64->void")
def _normalize(e, a, t, h):
    """Normalize q and k of k head h of token t. Squares are summed in 16 lanes, halved at the end."""
    b, f, ty, zero = e.b, Fields(e, a, delta_prepare), Vec(F32, GROUP), const(I64, 0)
    for name in ("q", "k"):
        row = f.rows(name, t, b.mul(h, f.d_k), "ld").at(zero)

        def square(o: Value, left: Value, sums: list[Value], row: Value = row) -> list[Value]:
            (v,) = load_lanes(e, e.at(row, o), left, 1)
            return [e.fma(v, v, sums[0])]

        (sums,) = each_group(e, f.d_k, square, [const(ty, 0.0)])
        factor = b.fdiv(const(F32, 1.0), e.intr("sqrt", b.fadd(e.halving_sum(sums), f.eps)))
        wide = e.splat(b.fmul(factor, f.scale) if name == "q" else factor, GROUP)

        def scale(o: Value, left: Value, _: list[Value], row: Value = row, wide: Value = wide) -> None:
            (v,) = load_lanes(e, e.at(row, o), left, 1)
            store_lanes(e, [b.fmul(v, wide)], e.at(row, o), left)

        each_group(e, f.d_k, scale)


@emit("i64,i64,i64,i64->void")
def _gates(e, a, t, c, n):
    """Compute n gates from c on of token t."""
    b, f, column = e.b, Fields(e, a, delta_prepare), e.b.shl(c, const(I64, 2))
    row, bias, rate = f.rows("gate", t, c).at(const(I64, 0)), e.at(f.gate_bias, column), e.at(f.rate, column)
    floor = e.splat(f.floor, GROUP)

    def gates(exponent: Callable[[Value, Value], Value]) -> None:
        """gate = 2^exponent(gate + gate_bias, rate)"""

        def some(o: Value, left: Value, _: list[Value]) -> None:
            (v,), (w,), (r,) = (load_lanes(e, e.at(pointer, o), left, 1) for pointer in (row, bias, rate))
            store_lanes(e, [e.exp2(exponent(b.fadd(v, w), r))], e.at(row, o), left)

        each_group(e, n, some)

    with b.if_else(b.fcmp_ordered("==", f.floor, const(F32, 0.0))) as (free, bounded):
        with free:
            gates(lambda x, r: b.fmul(e.softplus(x), r))
        with bounded:
            gates(lambda x, r: sigmoid(e, b.fmul(x, r), floor))


@emit("i64,i64->void")
def _betas(e, a, t):
    f = Fields(e, a, delta_prepare)
    row = f.rows("beta", t, const(I64, 0)).at(const(I64, 0))

    def some(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(row, o), left, 1)
        store_lanes(e, [sigmoid(e, v)], e.at(row, o), left)

    each_group(e, f.n_head, some)


@kernel
def delta_prepare(
    a, tid, nth, *, count: Address, q: Address, k: Address, ld: Int, gate: Address, ldgate: Int, beta: Address,
    ldbeta: Int, gate_bias: Address, rate: Address, n_k_head: Int, d_k: Int, n_gate: Int, n_head: Int, eps: Float,
    scale: Float, floor: Float = 0.0,
):  # fmt: skip
    """In place: q *= scale / sqrt(sum(q^2) + eps) and k /= sqrt(sum(k^2) + eps) for every head,
    gate = exp(A * softplus(gate + gate_bias)), or exp(lowest * sigmoid(A * (gate + gate_bias))), beta = sigmoid(beta).

    count            of tokens
    q, k             f32 rows after convolution: [tok][k head][d_k] both
    gate             f32 [tok][n_gate]: heads, or heads x d_k
    beta             f32 [tok][head]
    gate_bias, rate  f32 [n_gate]; rate = A * log2(e), see `decay_rates`; with a floor: A itself, positive
    floor            lowest * log2(e), negative: no gate is below exp(lowest); 0: no limit

    Reference: tests/reference/recurrent.py. Error: 1e-6 of max(1, |value|).
    """
    n_chunk = (n_gate + CHUNK - 1) // CHUNK
    per_token = n_k_head + n_chunk + 1
    for i in range(tid, ldi(count) * per_token, nth):
        t, part = i // per_token, i % per_token
        if part < n_k_head:
            _normalize(a, t, part)
        elif part < n_k_head + n_chunk:
            c = (part - n_k_head) * CHUNK
            _gates(a, t, c, min(CHUNK, n_gate - c))
        else:
            _betas(a, t)


# --- the scan ---------------------------------------------------------------------------------------------------------
@emit("i64,i64,i64,i64,i64,i64->void")
def _lanes(e, a, first, n, head, lane, state):
    """Scan n tokens from row `first` on for up to 16 lanes of a head. With 32, 16 registers would not hold the sums."""
    b, f, ty = e.b, Fields(e, a, delta_scan), Vec(F32, GROUP)
    column, left = b.add(b.mul(head, f.d_v), lane), b.sub(f.d_v, lane)
    key_column = b.mul(b.srem(b.sdiv(head, f.repeat), f.n_k_head), f.d_k)
    q, k = (f.rows(name, first, key_column, "ld") for name in ("q", "k"))
    v, y = f.rows("v", first, column, "ld"), f.rows("y", first, column)
    gates, betas = f.rows("gate", first, b.mul(head, f.n_channel)), f.rows("beta", first, head)
    gate_step = b.select(b.icmp_signed("==", f.n_channel, const(I64, 1)), const(I64, 0), const(I64, 4))
    even = b.and_(f.d_k, const(I64, -2))

    def place(i: Value) -> Value:
        return e.at(state, b.shl(i, const(I64, 6)))

    def broadcast(row: Value, i: Value) -> Value:
        return e.splat(e.load(F32, row, b.shl(i, const(I64, 2))), GROUP)

    def token(t: Value, added: Sequence[Value]) -> list[Value]:
        """Compute y of token t; returns its addition to the state, without the factor k. `added`: the same of the
        previous token, still pending, or ()."""
        krow, qrow, grow = k.at(t), q.at(t), gates.at(t)
        before = k.at(b.sub(t, const(I64, 1)))

        def product(o: Value, some: Value, sums: list[Value]) -> list[Value]:
            (kv,), (qv,) = (load_lanes(e, e.at(row, o), some, 1) for row in (krow, qrow))
            return [e.fma(kv, qv, sums[0])]

        def step(i: Value, known: Value, seen: Value) -> tuple[Value, Value]:
            s = e.load(ty, place(i))
            if added:
                s = e.fma(broadcast(before, i), added[0], s)
            s = b.fmul(e.splat(e.load(F32, grow, b.mul(i, gate_step)), GROUP), s)
            e.store(s, place(i))
            return e.fma(broadcast(krow, i), s, known), e.fma(broadcast(qrow, i), s, seen)

        def pair(i: Value, sums: list[Value]) -> list[Value]:
            return [*step(i, *sums[:2]), *step(b.add(i, const(I64, 1)), *sums[2:])]

        sums = e.loop(even, pair, [const(ty, 0.0)] * 4, step=2)
        known, seen = e.loop(f.d_k, lambda i, c: step(i, *c), sums[:2], start=even)
        known, seen = b.fadd(known, sums[2]), b.fadd(seen, sums[3])
        (products,) = each_group(e, f.d_k, product, [const(ty, 0.0)])
        kq = e.splat(e.halving_sum(products), GROUP)
        (value,) = load_lanes(e, v.at(t), left, 1)
        new = b.fmul(e.splat(betas.load(F32, t), GROUP), b.fsub(value, known))
        store_lanes(e, [e.fma(kq, new, seen)], y.at(t), left)
        return [new]

    (added,) = e.loop(n, token, token(const(I64, 0), ()), start=1)
    last = k.at(b.sub(n, const(I64, 1)))
    e.loop(f.d_k, lambda i, _: e.store(e.fma(broadcast(last, i), added, e.load(ty, place(i))), place(i)))


@head_scan(_lanes, width="d_v", depth="d_k")
def delta_scan(
    *, ctl: Address, seg: Address, q: Address, k: Address, v: Address, ld: Int, gate: Address, ldgate: Int,
    beta: Address, ldbeta: Int, state: Address, stride: Int, y: Address, ldy: Int, n_head: Int, n_k_head: Int,
    repeat: Int, d_k: Int, d_v: Int, n_channel: Int, counter: Counter,
):  # fmt: skip
    """Scan of the gated delta rule (see above) on the results of `delta_prepare`.

    ctl, seg, counter  batch control
    q, k, v            f32 rows: q and k [tok][k head][d_k], v [tok][head][d_v]
    gate               f32 [tok][head][n_channel]: factors of the state
    beta               f32 [tok][head]
    state, stride      f32 [row][head][d_v / 16][d_k][16], read and written; bytes from row to row
    y                  f32 [tok][head][d_v], not v
    repeat             head h reads k head (h // repeat) % n_k_head
    n_channel          1 or d_k

    Sums over d_k: even and odd channels apart, by fma in ascending order from 0, then the two sums; k . q in 16 lanes,
    halved at the end.
    Reference: tests/reference/recurrent.py. Error: 2e-7 of max(1, |y|), 1.3e-7 of max(1, |S|).
    """
