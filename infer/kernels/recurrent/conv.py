"""Causal depthwise convolutions over time, of a few taps.

    s[t] = bias + sum_k w[k] * x[t - (d_conv - 1) + k]      k ascending, one fma each

    conv1d_silu    y = silu(s)                              Mamba, Mamba-2, delta rule
    conv1d         y = s                                    RG-LRU
    conv1d_gated   x *= before, then y = after * s          short convolution of LFM2; x is overwritten

     0 ctl, 1 seg     batch control, see recurrent.py
     2 x, 3 ldx       f32 [tok][C]
     4 w              f32 [d_conv][C], oldest tap first
     5 bias           f32 [C], or 0: none
     6 state          f32 [row][d_conv - 1][C], oldest input first; read, then the last d_conv - 1 inputs
     7 stride         of the rows, in bytes
     8 y, 9 ldy       f32 [tok][C], not x
    10 C, 11 d_conv   d_conv at least 2
    12 ctr
    13 before, 14 ldbefore, 15 after, 16 ldafter      f32 [tok][C], conv1d_gated only; what it keeps is before * x

Time runs in tiles, so that a row is touched in pieces of whole cache lines.
Reference: tests/reference/recurrent.py. Error: 7e-7 of max(1, |y|).
"""

from collections.abc import Callable
from typing import Any

from ..build.jit import Kernel, variant
from ..emit.emitter import F32, I64, Emitter, Value, Vec, arg, const, emit, ldi
from .states import GROUP, Fields, copy_floats, enter_state, next_part, optional, strip_of

TILE = 16  # tokens of a tile
FIELDS = "ctl seg x ldx w bias state stride y ldy n_channel d_conv ctr before ldbefore after ldafter"
PIECE, ROWS = "i64,i64,i64,i64,i64,i64->void", "i64,i64,i64,i64,i64->void"

# what a convolution's sum becomes: (emitter, fields, sum, vector type, first token, channel) -> token -> value
Finish = Callable[[Emitter, Fields, Any, Value, Value], Callable[[Value, Value], Value]]


def _silu(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    return lambda total, t: e.sigmoid_times(total)


def _plain(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    return lambda total, t: total


def _gated(e: Emitter, f: Fields, ty: Any, u: Value, c: Value) -> Callable[[Value, Value], Value]:
    gate = f.rows("after", u, c)
    return lambda total, t: e.b.fmul(gate.load(ty, t), total)


def _row(e: Emitter, f: Fields, first: Value, state: Value, c: Value) -> Callable[[Value], Value]:
    """Address of input t of the segment that begins at row `first`; inputs before it lie in the state."""
    b = e.b
    x, ldw = f.rows("x", first, c), b.shl(f.n_channel, const(I64, 2))
    kept = e.at(state, b.add(b.shl(c, const(I64, 2)), b.mul(b.sub(f.d_conv, const(I64, 1)), ldw)))
    return lambda t: b.select(b.icmp_signed("<", t, const(I64, 0)), e.at(kept, b.mul(t, ldw)), x.at(t))


def _few_taps(width: int, taps: int, finish: Finish) -> Any:
    """m tokens from t of the segment that begins at row `first`, for `width` channels; the taps stay in registers."""

    def few_taps(e: Emitter, a: Value, first: Value, state: Value, t: Value, c: Value, m: Value) -> None:
        b, ty, f = e.b, Vec(F32, width), Fields(e, a, FIELDS)
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


def _any_taps(width: int, finish: Finish) -> Any:
    """The same for any number of taps, the same bits."""

    def any_taps(e: Emitter, a: Value, first: Value, state: Value, t: Value, c: Value, m: Value) -> None:
        b, ty, f = e.b, Vec(F32, width), Fields(e, a, FIELDS)
        u, column = b.add(first, t), b.shl(c, const(I64, 2))
        ldw, row, taps = b.shl(f.n_channel, const(I64, 2)), _row(e, f, first, state, c), f.d_conv
        w, start = e.at(f.w, column), optional(e, ty, f.bias, column)
        y, finished = f.rows("y", u, c), finish(e, f, ty, u, c)

        def token(s: Value, _: list[Value]) -> None:
            oldest = b.sub(b.add(b.add(t, s), const(I64, 1)), taps)

            def tap(k: Value, total: list[Value]) -> list[Value]:
                return [e.fma(e.load(ty, w, b.mul(k, ldw)), e.load(ty, row(b.add(oldest, k))), total[0])]

            (total,) = e.loop(taps, tap, [start])
            y.store(finished(total, s), s)

        e.loop(m, token)

    return emit(PIECE)(any_taps)


@emit(ROWS)
def _gate_inputs(e, a, u, c0, c1, m):
    """x *= before, for m tokens from row u and channels c0..c1."""
    b, f = e.b, Fields(e, a, FIELDS)
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


@emit(PIECE)
def _keep_inputs(e, a, first, state, n, c0, width):
    """The last d_conv - 1 inputs become the state, for `width` channels from c0."""
    b, f = e.b, Fields(e, a, FIELDS)
    row, before = _row(e, f, first, state, c0), b.sub(f.d_conv, const(I64, 1))
    target, ldw = e.at(state, b.shl(c0, const(I64, 2))), b.shl(f.n_channel, const(I64, 2))

    def one(k: Value, _: list[Value]) -> None:  # ascending: a row is read before it is overwritten
        source = row(b.sub(b.add(n, k), before))
        copy_floats.body(e, source, e.at(target, b.mul(k, ldw)), width)

    e.loop(before, one)


def gate_inputs(a, u, c0, c1, m):  # these are replaced in every variant
    raise NotImplementedError


few_wide = few_one = any_wide = any_one = gate_inputs
FEW = 4


def _conv(a, tid, nth):
    """Items, history and tiles; the template of the kernels below."""
    n_seg, n_channel, taps, ctr = ldi(arg(a, 0) + 8), arg(a, 10), arg(a, 11), arg(a, 12)
    strip = strip_of(n_channel, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(ctr, n_channel, strip, arg(a, 1), n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n = ldi(s), ldi(s + 8)
        state = arg(a, 6) + ldi(s + 16) * arg(a, 7)
        for k in range(taps - 1):
            enter_state(s, arg(a, 6), arg(a, 7), 4 * (k * n_channel + c0), c1 - c0)
        for t in range(0, n, TILE):
            m = min(TILE, n - t)
            gate_inputs(a, first + t, c0, c1, m)
            c = c0
            if taps == FEW:
                while c + GROUP <= c1:
                    few_wide(a, first, state, t, c, m)
                    c += GROUP
                while c < c1:
                    few_one(a, first, state, t, c, m)
                    c += 1
            else:
                while c + GROUP <= c1:
                    any_wide(a, first, state, t, c, m)
                    c += GROUP
                while c < c1:
                    any_one(a, first, state, t, c, m)
                    c += 1
        _keep_inputs(a, first, state, n, c0, c1 - c0)


def _make(name: str, taps: int, finish: Finish, gate: Any) -> Kernel:
    """A convolution whose fast path has `taps` taps."""
    return variant(
        _conv,
        name,
        few_wide=_few_taps(GROUP, taps, finish),
        few_one=_few_taps(1, taps, finish),
        any_wide=_any_taps(GROUP, finish),
        any_one=_any_taps(1, finish),
        gate_inputs=gate,
        FEW=taps,
    )


conv1d_silu = _make("conv1d_silu", 4, _silu, _no_gate)
conv1d = _make("conv1d", 4, _plain, _no_gate)
conv1d_gated = _make("conv1d_gated", 3, _gated, _gate_inputs)
