"""Causal depthwise convolutions over time, with few taps.

    s[t] = bias + sum_k w[k] * x[t - (d_conv - 1) + k]      k ascending, one fma each

    conv1d_silu    y = silu(s)                              Mamba, Mamba-2, delta rule
    conv1d         y = s                                    RG-LRU
    conv1d_gated   x *= before, then y = after * s          short convolution of LFM2; x is overwritten
    conv1d_dynamic y = silu(s), taps of each token: w[t][k] JetBlock

    ctl, seg, counter  batch control, see states.py
    x                  f32 [tok][n_channel]
    w                  f32 [d_conv][n_channel], conv1d_dynamic [tok][d_conv][n_channel]; oldest tap first; d_conv at
                       least 2
    bias               f32 [n_channel]; 0: none
    state, stride      f32 [row][d_conv - 1][n_channel], the last d_conv - 1 inputs, oldest first; read and written;
                       bytes from row to row
    y                  f32 [tok][n_channel], not x
    before, after      f32 [tok][n_channel], conv1d_gated only, whose state keeps before * x

Tokens are processed in tiles, so that a row is accessed in whole cache lines.
Reference: tests/reference/recurrent.py. Error: 7e-7 of max(1, |y|).
"""

from collections.abc import Callable
from typing import Any

from ..build.jit import Kernel, variant
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Int, Layout
from .states import GROUP, copy_floats, enter_state, next_part, optional, strip_of

TILE = 16  # tokens of a tile
PIECE, ROWS = "i64,i64,i64,i64,i64,i64->void", "i64,i64,i64,i64,i64->void"

# turns a convolution's sum into y: (emitter, fields, vector type, first token, channel) -> (sum, token) -> value
Finish = Callable[[Emitter, Fields, Any, Value, Value], Callable[[Value, Value], Value]]


def _silu(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    return lambda total, t: e.sigmoid_times(total)


def _plain(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    return lambda total, t: total


def _gated(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    gate = f.rows("after", u, c)
    return lambda total, t: e.b.fmul(gate.load(ty, t), total)


def _row(e: Emitter, f: Fields, first: Value, state: Value, c: Value) -> Callable[[Value], Value]:
    """Function: t -> address of input t of the segment that begins at row `first`; inputs t < 0 are in the state."""
    b = e.b
    x, ldw = f.rows("x", first, c), b.shl(f.n_channel, const(I64, 2))
    kept = e.at(state, b.add(b.shl(c, const(I64, 2)), b.mul(b.sub(f.d_conv, const(I64, 1)), ldw)))
    return lambda t: b.select(b.icmp_signed("<", t, const(I64, 0)), e.at(kept, b.mul(t, ldw)), x.at(t))


def _few_taps(layout: Layout, width: int, taps: int, finish: Finish) -> Any:
    """Piece for m tokens from t on of the segment that begins at row `first`, `width` channels; taps in registers."""

    def few_taps(e: Emitter, a: Value, first: Value, state: Value, t: Value, c: Value, m: Value) -> None:
        b, ty, f = e.b, Vec(F32, width), Fields(e, a, layout)
        u, column = b.add(first, t), b.shl(c, const(I64, 2))
        ldw, row = b.shl(f.n_channel, const(I64, 2)), _row(e, f, first, state, c)
        weight = [e.load(ty, e.at(f.w, column), b.mul(ldw, const(I64, k))) for k in range(taps)]
        start = optional(e, ty, f.bias, column)
        x, y, finished = f.rows("x", u, c), f.rows("y", u, c), finish(e, f, ty, u, c)

        def token(s: Value, past: list[Value]) -> list[Value]:
            rows, total = [*past, x.load(ty, s)], start
            for k, value in enumerate(rows):
                total = e.fma(weight[k], value, total)
            y.store(finished(total, s), s)
            return rows[1:]

        e.loop(m, token, [e.load(ty, row(b.sub(t, const(I64, k)))) for k in range(taps - 1, 0, -1)])

    return emit(PIECE)(few_taps)


def _any_taps(layout: Layout, width: int, finish: Finish, *, by_token: bool = False) -> Any:
    """`_few_taps` for any number of taps, with the same bits. by_token: every token has its own taps."""

    def any_taps(e: Emitter, a: Value, first: Value, state: Value, t: Value, c: Value, m: Value) -> None:
        b, ty, f = e.b, Vec(F32, width), Fields(e, a, layout)
        u, column = b.add(first, t), b.shl(c, const(I64, 2))
        ldw, row, taps = b.shl(f.n_channel, const(I64, 2)), _row(e, f, first, state, c), f.d_conv
        start = optional(e, ty, f.bias, column)
        taps_of = f.rows("w", u, c).at if by_token else lambda s: e.at(f.w, column)
        y, finished = f.rows("y", u, c), finish(e, f, ty, u, c)

        def token(s: Value, _: list[Value]) -> None:
            w, oldest = taps_of(s), b.sub(b.add(b.add(t, s), const(I64, 1)), taps)

            def tap(k: Value, total: list[Value]) -> list[Value]:
                return [e.fma(e.load(ty, w, b.mul(k, ldw)), e.load(ty, row(b.add(oldest, k))), total[0])]

            (total,) = e.loop(taps, tap, [start])
            y.store(finished(total, s), s)

        e.loop(m, token)

    return emit(PIECE)(any_taps)


@emit(ROWS)
def _gate_inputs(e, a, u, c0, c1, m):
    """x *= before, for m tokens from row u and channels c0 .. c1 - 1."""
    b, f = e.b, Fields(e, a, conv1d_gated)
    x, gate = f.rows("x", u, c0), f.rows("before", u, c0)
    size = b.shl(b.sub(c1, c0), const(I64, 2))
    wide = b.and_(size, const(I64, -4 * GROUP))

    def token(t: Value, _: list[Value]) -> None:
        def some(width: int) -> Callable[[Value, list[Value]], None]:
            ty = Vec(F32, width)
            return lambda o, _: e.store(b.fmul(e.load(ty, gate.at(t), o), e.load(ty, x.at(t), o)), x.at(t), o)

        e.loop(wide, some(GROUP), step=4 * GROUP)
        e.loop(size, some(1), start=wide, step=4)

    e.loop(m, token)


@emit(ROWS)
def _no_gate(e, a, u, c0, c1, m):
    pass


def _make_keep_inputs(layout: Layout) -> Any:
    """Piece: copies the last d_conv - 1 inputs into the state, for `width` channels from c0 on."""

    def keep_inputs(e: Emitter, a: Value, first: Value, state: Value, n: Value, c0: Value, width: Value) -> None:
        b, f = e.b, Fields(e, a, layout)
        row, before = _row(e, f, first, state, c0), b.sub(f.d_conv, const(I64, 1))
        target, ldw = e.at(state, b.shl(c0, const(I64, 2))), b.shl(f.n_channel, const(I64, 2))

        def one(k: Value, _: list[Value]) -> None:  # ascending: a row is read before it is overwritten
            source = row(b.sub(b.add(n, k), before))
            copy_floats.body(e, source, e.at(target, b.mul(k, ldw)), width)

        e.loop(before, one)

    return emit(PIECE)(keep_inputs)


def gate_inputs(*_):  # these are replaced in every variant
    raise NotImplementedError


few_wide = few_one = any_wide = any_one = keep_inputs = gate_inputs
FEW = 4


def _conv(
    a, tid, nth, *, ctl: Address, seg: Address, x: Address, ldx: Int, w: Address, ldw: Int, bias: Address = 0,
    state: Address, stride: Int, y: Address, ldy: Int, n_channel: Int, d_conv: Int, counter: Counter, before: Address,
    ldbefore: Int, after: Address, ldafter: Int,
):  # fmt: skip
    """The template of the kernels below: work items, state and tiles."""
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_channel, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n = ldi(s), ldi(s + 8)
        row = state + ldi(s + 16) * stride
        for k in range(d_conv - 1):
            enter_state(s, state, stride, 4 * (k * n_channel + c0), c1 - c0)
        for t in range(0, n, TILE):
            m = min(TILE, n - t)
            gate_inputs(a, first + t, c0, c1, m)
            c = c0
            if d_conv == FEW:
                while c + GROUP <= c1:
                    few_wide(a, first, row, t, c, m)
                    c += GROUP
                while c < c1:
                    few_one(a, first, row, t, c, m)
                    c += 1
            else:
                while c + GROUP <= c1:
                    any_wide(a, first, row, t, c, m)
                    c += GROUP
                while c < c1:
                    any_one(a, first, row, t, c, m)
                    c += 1
        keep_inputs(a, first, row, n, c0, c1 - c0)


def _make(name: str, taps: int, finish: Finish, gate: Any, without: tuple[str, ...] = ()) -> Kernel:
    """Make a convolution with a fast path for `taps` taps; 0: every token has its own taps, without a fast path."""
    layout = Layout.of(_conv).named(name, without)
    any_wide, any_one = (_any_taps(layout, width, finish, by_token=not taps) for width in (GROUP, 1))
    return variant(
        _conv,
        name,
        without=without,
        few_wide=_few_taps(layout, GROUP, taps, finish) if taps else any_wide,
        few_one=_few_taps(layout, 1, taps, finish) if taps else any_one,
        any_wide=any_wide,
        any_one=any_one,
        keep_inputs=_make_keep_inputs(layout),
        gate_inputs=gate,
        FEW=taps,
    )


_GATES = ("before", "ldbefore", "after", "ldafter")
conv1d_silu = _make("conv1d_silu", 4, _silu, _no_gate, (*_GATES, "ldw"))
conv1d = _make("conv1d", 4, _plain, _no_gate, (*_GATES, "ldw"))
conv1d_gated = _make("conv1d_gated", 3, _gated, _gate_inputs, ("ldw",))
conv1d_dynamic = _make("conv1d_dynamic", 0, _silu, _no_gate, _GATES)
