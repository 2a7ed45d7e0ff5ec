"""Kernels before and after RWKV's scans (wkv.py): token shift, gates, norm of the heads. Peng et al. 2024,
arXiv:2404.05892 (RWKV-6); Peng et al. 2025, arXiv:2503.14456 (RWKV-7). Batch control, items and states: see states.py.

Sums over a head's channels are made in 16 lanes, halved at the end. References: tests/reference/rwkv.py. Errors: 1e-6
of max(1, |value|).
"""

import math
from collections.abc import Callable
from typing import Any

from ..build.jit import Kernel, kernel, variant
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Float, Int, Layout
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

TILE = 16  # tokens of a tile
CHUNK = 512  # values of a row that a thread processes at a time
ROW = Vec(F32, GROUP)
SLOWEST = -math.exp(-0.5) * LOG2E  # log2 of the smallest decay of RWKV-7
NORM_LOWEST = 1e-12  # RWKV-7 replaces smaller norms with this before it divides


# --- token shift ------------------------------------------------------------------------------------------------------
def _shift(layout: Layout, width: int, with_difference: bool) -> Any:
    """Piece: shifts m tokens from row u, `width` channels from c on; `past`: address of the row before them."""

    def shift(e: Emitter, a: Value, u: Value, past: Value, c: Value, m: Value) -> None:
        b, f, ty, column = e.b, Fields(e, a, layout), Vec(F32, width), e.b.shl(c, const(I64, 2))
        x, y = f.rows("x", u, c), f.rows("y", u, c)
        difference = f.rows("difference", u, c) if with_difference else None
        mu, step, n_mix, part = e.at(f.mu, column), b.shl(f.n_channel, const(I64, 2)), f.n_mix, f.part

        def token(t: Value, before: list[Value]) -> list[Value]:
            now = x.load(ty, t)
            d, out = b.fsub(before[0], now), y.at(t)

            def one(j: Value, _: list[Value]) -> None:
                e.store(e.fma(d, e.load(ty, mu, b.mul(j, step)), now), out, b.mul(j, part))

            e.loop(n_mix, one)
            if difference:
                difference.store(d, t)
            return [now]

        e.loop(m, token, [e.load(ty, past)])

    return emit("i64,i64,i64,i64,i64->void")(shift)


def shift_wide(a, u, past, c, m):  # replaced in every variant
    raise NotImplementedError


shift_one = shift_wide


def _token_shift(
    a, tid, nth, *, ctl: Address, seg: Address, x: Address, ldx: Int, mu: Address, n_mix: Int, state: Address,
    stride: Int, y: Address, ldy: Int, part: Int, n_channel: Int, counter: Counter, difference: Address,
    lddifference: Int,
):  # fmt: skip
    """y[j] = x + (previous x - x) * mu[j] for each of n_mix rows of weights; x before the first token is 0.

    ctl, seg, counter  batch control
    x                  f32 [tok][n_channel]
    mu                 f32 [n_mix][n_channel]
    state, stride      f32 [row][n_channel], the last x; read and written; bytes from row to row
    y, part            f32 [tok][n_mix][n_channel], not x; `part` bytes from one mix of a token to the next
    difference         f32 [tok][n_channel], previous x - x; only in `token_shift_difference`
    """
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_channel, n_seg, nth, CHUNK)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n, row = ldi(s), ldi(s + 8), state + ldi(s + 16) * stride
        enter_state(s, state, stride, 4 * c0, c1 - c0)
        for t in range(0, n, TILE):
            u, m, c = first + t, min(TILE, n - t), c0
            past = row if t == 0 else x + (u - 1) * ldx
            while c + GROUP <= c1:
                shift_wide(a, u, past + 4 * c, c, m)
                c += GROUP
            while c < c1:
                shift_one(a, u, past + 4 * c, c, m)
                c += 1
        if n > 0:
            copy_floats(x + (first + n - 1) * ldx + 4 * c0, row + 4 * c0, c1 - c0)


def _make_shift(name: str, with_difference: bool) -> Kernel:
    without = () if with_difference else ("difference", "lddifference")
    layout = Layout.of(_token_shift).named(name, without)
    wide, one = (_shift(layout, width, with_difference) for width in (GROUP, 1))
    return variant(_token_shift, name, without=without, shift_wide=wide, shift_one=one)


token_shift = _make_shift("token_shift", False)
token_shift_difference = _make_shift("token_shift_difference", True)


# --- functions of rows ------------------------------------------------------------------------------------------------
@emit("i64,i64->void")
def _tanh_part(e, x, n):
    def some(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        store_lanes(e, [e.tanh(v)], e.at(x, o), left)

    each_group(e, n, some)


@emit("i64,i64->void")
def _sigmoid_part(e, x, n):
    def some(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        store_lanes(e, [sigmoid(e, v)], e.at(x, o), left)

    each_group(e, n, some)


@emit("i64,i64,i64->void")
def _decay_part(e, x, bias, n):
    """exp(-exp(x + bias)); the inner exponential is at most 2^126."""
    b = e.b

    def some(o: Value, left: Value, _: list[Value]) -> None:
        (v,), (w,) = load_lanes(e, e.at(x, o), left, 1), load_lanes(e, e.at(bias, o), left, 1)
        rate = e.exp2(e.at_most(b.fmul(b.fadd(v, w), const(ROW, LOG2E)), 126.0))
        store_lanes(e, [e.exp2(b.fmul(rate, const(ROW, -LOG2E)))], e.at(x, o), left)

    each_group(e, n, some)


@kernel
def tanh_rows(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int):
    """x = tanh(x)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _tanh_part(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o))


sigmoid_rows = variant(tanh_rows, "sigmoid_rows", _tanh_part=_sigmoid_part)  # x = sigmoid(x)


@kernel
def decay_rows(a, tid, nth, *, count: Address, x: Address, ldx: Int, bias: Address, n: Int):
    """x = exp(-exp(x + bias)), bias f32 [n]: the decays of RWKV-6."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _decay_part(x + i // per_row * ldx + 4 * o, bias + 4 * o, min(CHUNK, n - o))


@emit("i64,i64,i64,i64,i64->void")
def _mix_row(e, x, difference, mu, y, n):
    def some(o: Value, left: Value, _: list[Value]) -> None:
        v, d, m, w = (load_lanes(e, e.at(row, o), left, 1)[0] for row in (x, difference, mu, y))
        store_lanes(e, [e.fma(d, e.b.fadd(m, w), v)], e.at(y, o), left)

    each_group(e, n, some)


@kernel
def mix_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, difference: Address, lddifference: Int, mu: Address,
    y: Address, ldy: Int, n: Int,
):  # fmt: skip
    """y = x + difference * (mu + y), mu f32 [n]: the token shift of RWKV-6, with weights that depend on the token."""
    for t in range(tid, ldi(count), nth):
        _mix_row(x + t * ldx, difference + t * lddifference, mu, y + t * ldy, n)


@emit("i64,i64,i64,i64->void")
def _keys_of_head(e, k, w, out, n):
    def some(o: Value, left: Value, _: list[Value]) -> None:
        v, decay = (load_lanes(e, e.at(row, o), left, 1)[0] for row in (k, w))
        store_lanes(e, [e.fma(e.b.fneg(decay), v, v)], e.at(out, o), left)

    each_group(e, n, some)


@kernel
def gla_keys(
    a, tid, nth, *, count: Address, k: Address, ldk: Int, w: Address, ldw: Int, out: Address, ldout: Int, n_head: Int,
    repeat: Int, d: Int,
):  # fmt: skip
    """out = k (1 - w). `repeat` neighbouring heads share keys: k f32 [tok][head / repeat][d], w and out
    f32 [tok][head][d]."""
    for i in range(tid, ldi(count) * n_head, nth):
        t, h = i // n_head, i % n_head
        row = 4 * h * d
        _keys_of_head(k + t * ldk + 4 * (h // repeat) * d, w + t * ldw + row, out + t * ldout + row, d)


# --- before the scan of RWKV-7 ----------------------------------------------------------------------------------------
def _prepare_head(is_first: bool) -> Any:
    """Piece: `wkv7_prepare` of one head of a token; in the first layer v stays unchanged."""

    def prepare(e: Emitter, a: Value, t: Value, h: Value) -> None:
        b, zero, one = e.b, const(ROW, 0.0), const(ROW, 1.0)
        f = Fields(e, a, wkv7_prepare_first if is_first else wkv7_prepare)
        column = b.mul(h, f.d)
        names = ("r", "k", "v", "w", "rate", "kk", *(() if is_first else ("mix", "first")))
        row = {name: f.rows(name, t, column, "ld").at(const(I64, 0)) for name in names}
        per = {
            name: e.at(getattr(f, name), b.shl(column, const(I64, 2)))
            for name in ("w0", "a0", "k_k", "k_a", "r_k", *(() if is_first else ("v0",)))
        }

        def lanes(pointer: Value, o: Value, left: Value) -> Value:
            return load_lanes(e, e.at(pointer, o), left, 1)[0]

        def square(o: Value, left: Value, sums: list[Value]) -> list[Value]:
            v = b.fmul(lanes(row["k"], o, left), lanes(per["k_k"], o, left))
            return [e.fma(v, v, sums[0])]

        (squares,) = each_group(e, f.d, square, [zero])
        norm = e.intr("sqrt", e.halving_sum(squares))
        low = const(F32, NORM_LOWEST)
        norm = b.select(b.fcmp_ordered("<", norm, low), low, norm)
        factor = e.splat(b.fdiv(const(F32, 1.0), norm), GROUP)

        def some(o: Value, left: Value, sums: list[Value]) -> list[Value]:
            r, k, w, gate = (lanes(row[name], o, left) for name in ("r", "k", "w", "rate"))
            w0, a0, k_k, k_a, r_k = (lanes(per[name], o, left) for name in ("w0", "a0", "k_k", "k_a", "r_k"))
            decay = e.exp2(b.fmul(sigmoid(e, b.fadd(w, w0)), const(ROW, SLOWEST)))
            gate = sigmoid(e, b.fadd(gate, a0))
            removed = b.fmul(b.fmul(k, k_k), factor)
            back = b.fmul(removed, gate)
            key = e.fma(b.fmul(k, k_a), b.fsub(gate, one), k)
            new = {"w": decay, "k": key, "kk": removed, "rate": back, "r": b.fmul(r, decay)}
            if not is_first:
                v, first = lanes(row["v"], o, left), lanes(row["first"], o, left)
                share = sigmoid(e, b.fadd(lanes(row["mix"], o, left), lanes(per["v0"], o, left)))
                new["v"] = e.fma(b.fsub(first, v), share, v)
            for name, value in new.items():
                store_lanes(e, [value], e.at(row[name], o), left)
            rk = b.fmul(r, key)
            return [b.fadd(sums[0], rk), e.fma(r, back, sums[1]), e.fma(rk, r_k, sums[2])]

        dots = f.rows("dots", t, b.mul(h, const(I64, 3))).at(const(I64, 0))
        for j, total in enumerate(each_group(e, f.d, some, [zero] * 3)):
            e.store(e.halving_sum(total), dots, 4 * j)

    return emit("i64,i64,i64->void")(prepare)


_prepare_mixed = _prepare_head(False)


@kernel
def wkv7_prepare(
    a, tid, nth, *, count: Address, r: Address, k: Address, v: Address, w: Address, rate: Address, kk: Address,
    mix: Address, first: Address, ld: Int, dots: Address, lddots: Int, w0: Address, a0: Address, v0: Address,
    k_k: Address, k_a: Address, r_k: Address, n_head: Int, d: Int,
):  # fmt: skip
    """Inputs of the scan and the norm of RWKV-7, in place. Per channel, with norms and sums over a head's channels:

        kk = k k_k / max(|k k_k|, 1e-12),  gate = sigmoid(rate + a0),  rate = kk gate,  k = k (1 + (gate - 1) k_a)
        w = exp(-exp(-1/2) sigmoid(w + w0)),  v = v + (first - v) sigmoid(mix + v0),  r = r w
        dots = (sum r k, sum r rate, sum r k r_k), with the old r and the new k and rate

    count                          of tokens
    r, k, v, w, rate, mix, first   f32 [tok][head][d]; rate is the paper's a
    kk                             f32 [tok][head][d], only written
    dots                           written: f32 [tok][head][3]
    w0, a0, v0, k_k, k_a, r_k      f32 [head][d]

    `wkv7_prepare_first`, for the first layer, has no mix, first and v0, and leaves v unchanged.
    """
    for i in range(tid, ldi(count) * n_head, nth):
        _prepare_mixed(a, i // n_head, i % n_head)


wkv7_prepare_first = variant(
    wkv7_prepare, "wkv7_prepare_first", without=("mix", "first", "v0"), _prepare_mixed=_prepare_head(True)
)


# --- after the scan ---------------------------------------------------------------------------------------------------
Activation = Callable[[Emitter, Value], Value]


def _finish_head(layout: Layout, act: Activation | None, *, with_bonus: bool, normed: bool) -> Any:
    """Piece: `_output` of one head of a token; `act` None: no gate."""

    def finish(e: Emitter, a: Value, t: Value, h: Value) -> None:
        b, f, zero = e.b, Fields(e, a, layout), const(I64, 0)
        column = b.mul(h, f.d)
        y = f.rows("y", t, column).at(zero)
        if act:
            gate = f.rows("gate", t, column).at(zero)
        if normed:
            weight, bias = (e.at(pointer, b.shl(column, const(I64, 2))) for pointer in (f.weight, f.bias))
            factor = centre(e, y, y, f.d, f.eps)
        if with_bonus:
            v = f.rows("v", t, column).at(zero)
            dots = f.rows("dots", t, b.mul(h, const(I64, 3))).at(zero)
            bonus = e.splat(e.load(F32, dots, 8), GROUP)

        def some(o: Value, left: Value, _: list[Value]) -> None:
            def lanes(pointer: Value) -> Value:
                return load_lanes(e, e.at(pointer, o), left, 1)[0]

            x = lanes(y)
            if normed:
                x = e.fma(b.fmul(x, factor), lanes(weight), lanes(bias))
            if with_bonus:
                x = e.fma(bonus, lanes(v), x)
            if act:
                x = b.fmul(x, act(e, lanes(gate)))
            store_lanes(e, [x], e.at(y, o), left)

        each_group(e, f.d, some)

    return emit("i64,i64,i64->void")(finish)


def finish_piece(a, t, h):  # replaced in every variant
    raise NotImplementedError


def _output(
    a, tid, nth, *, count: Address, y: Address, ldy: Int, gate: Address, ldgate: Int, weight: Address, bias: Address,
    eps: Float, v: Address, ldv: Int, dots: Address, lddots: Int, n_head: Int, d: Int,
):  # fmt: skip
    """Layer norm of every head, bonus and gate, in place; a template.

        wkv6_output                             y = (norm(y) * weight + bias) * silu(gate)
        WKV7_OUTPUT[has a gate, is normed]      y = (norm(y) * weight + bias + dots[2] * v) * gate

    count         of tokens
    y, gate, v    f32 [tok][head][d]
    weight, bias  f32 [head][d]
    dots          f32 [tok][head][3], from `wkv7_prepare`

    A kernel lacks the fields that its formula does not use.
    """
    for i in range(tid, ldi(count) * n_head, nth):
        finish_piece(a, i // n_head, i % n_head)


def _make_output(name: str, act: Activation | None, *, with_bonus: bool, normed: bool = True) -> Kernel:
    without = (
        *(("gate", "ldgate") if act is None else ()),
        *(("weight", "bias", "eps") if not normed else ()),
        *(("v", "ldv", "dots", "lddots") if not with_bonus else ()),
    )
    layout = Layout.of(_output).named(name, without)
    finish = _finish_head(layout, act, with_bonus=with_bonus, normed=normed)
    return variant(_output, name, without=without, finish_piece=finish)


wkv6_output = _make_output("wkv6_output", lambda e, g: e.sigmoid_times(g), with_bonus=False)
WKV7_OUTPUT: dict[tuple[bool, bool], Kernel] = {
    (gated, normed): _make_output(
        "wkv7_output" + "_no_gate" * (not gated) + "_no_norm" * (not normed),
        (lambda e, g: g) if gated else None,
        with_bonus=True,
        normed=normed,
    )
    for gated in (True, False)
    for normed in (True, False)
}
