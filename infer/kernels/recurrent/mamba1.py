"""The selective scan of Mamba-1. Batch control, items and states: see states.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel, variant
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Int
from .states import GROUP, F32Array, arrange_heads, enter_state, next_part, strip_of

TILE = 16  # tokens of a tile


def scan_decay(a: npt.ArrayLike) -> F32Array:
    """A of the file (negative, [channel, d_state]) -> `decay` of `mamba1_scan`: A * log2(e), arranged as the state."""
    arranged: F32Array = arrange_heads((np.asarray(a, np.float64) * LOG2E).astype(np.float32)[None])[0]
    return arranged


class _Channels:
    """The operands of both forms of the scan: `width` channels from c of a group, for tokens from row u on.
    gated: y is multiplied with silu(z); otherwise there is no field z."""

    def __init__(self, e: Emitter, a: Value, u: Value, c: Value, width: int, gated: bool) -> None:
        b, f, ty = e.b, Fields(e, a, mamba1_scan if gated else mamba1_scan_ungated), Vec(F32, width)
        zero, column = const(I64, 0), b.shl(c, const(I64, 2))
        self.x, self.dt, self.y = (f.rows(name, u, c) for name in ("x", "dt", "y"))
        self.z = f.rows("z", u, c) if gated else None
        self.B, self.C = f.rows("b", u, zero), f.rows("c", u, zero)
        self.bias, self.skip = e.load(ty, f.dt_bias, column), e.load(ty, f.skip, column)
        self.d_state = f.d_state
        # c's group, then its lane: 4 * (c / 16 * d_state * 16 + c % 16)
        group, lane = b.lshr(c, const(I64, 4)), b.and_(c, const(I64, GROUP - 1))
        offset = b.add(b.mul(group, b.shl(f.d_state, const(I64, 6))), b.shl(lane, const(I64, 2)))
        self.decay = e.at(f.decay, offset)
        self._e, self._ty = e, ty

    def step(self, t: Value) -> tuple[Value, Value]:
        """(delta, x) of token t."""
        e, ty = self._e, self._ty
        return e.softplus(e.b.fadd(self.dt.load(ty, t), self.bias)), self.x.load(ty, t)

    def finish(self, t: Value, even: Value, odd: Value) -> None:
        e, ty = self._e, self._ty
        total = e.b.fadd(even, odd)
        self.y.store(e.b.fmul(total, e.sigmoid_times(self.z.load(ty, t))) if self.z else total, t)


def _scan(width: int, gated: bool) -> Callable[..., Any]:
    """Piece: scans m tokens of `width` channels of a group, token by token; the state stays in memory (L1)."""

    def scan(e: Emitter, a: Value, u: Value, c: Value, state: Value, m: Value) -> None:
        b, ty, ch = e.b, Vec(F32, width), _Channels(e, a, u, c, width, gated)
        even = b.and_(ch.d_state, const(I64, -2))

        def token(t: Value, _: list[Value]) -> None:
            delta, xv = ch.step(t)
            dx = b.fmul(delta, xv)
            brow, crow = ch.B.at(t), ch.C.at(t)

            def state_step(s: Value, acc: Value) -> Value:
                column, row = b.shl(s, const(I64, 2)), b.shl(s, const(I64, 6))
                decay = e.exp2(b.fmul(delta, e.load(ty, ch.decay, row)))
                gain = b.fmul(dx, e.splat(e.load(F32, brow, column), width))
                new = e.fma(decay, e.load(ty, state, row), gain)
                e.store(new, state, row)
                return e.fma(new, e.splat(e.load(F32, crow, column), width), acc)

            def pair(s: Value, acc: list[Value]) -> list[Value]:
                return [state_step(s, acc[0]), state_step(b.add(s, const(I64, 1)), acc[1])]

            sums = e.loop(even, pair, [b.fmul(xv, ch.skip), const(ty, 0.0)], step=2)
            (first,) = e.loop(ch.d_state, lambda s, acc: [state_step(s, acc[0])], sums[:1], start=even)
            ch.finish(t, first, sums[1])

        e.loop(m, token)

    return scan


def _scan_tile(width: int, gated: bool) -> Callable[..., Any]:
    """`_scan` for up to TILE tokens, with the same bits: state by state, with time as the inner loop.

    The exponentials of a state have their own loop, two tokens side by side: they are three quarters of the operations,
    each a chain of 14 dependent ones, which leaves the units idle unless many chains are in flight.
    """

    def scan_tile(e: Emitter, a: Value, u: Value, c: Value, state: Value, m: Value) -> None:
        b, ty, ch = e.b, Vec(F32, width), _Channels(e, a, u, c, width, gated)
        size = 4 * width
        deltas, inputs, decays = (e.stack(ty, TILE) for _ in range(3))
        sums = e.stack(ty, 2 * TILE)  # even, odd states
        n_paired = b.and_(m, const(I64, -2))

        def before(t: Value, _: list[Value]) -> None:
            delta, xv = ch.step(t)
            at = b.mul(t, const(I64, size))
            e.store(delta, deltas, at)
            e.store(b.fmul(delta, xv), inputs, at)
            e.store(b.fmul(xv, ch.skip), sums, at)
            e.store(const(ty, 0.0), e.at(sums, at), size * TILE)

        def state_row(s: Value, _: list[Value]) -> None:
            row, column = b.shl(s, const(I64, 6)), b.shl(s, const(I64, 2))
            rate = e.load(ty, ch.decay, row)
            total = e.at(sums, b.mul(b.and_(s, const(I64, 1)), const(I64, size * TILE)))

            def decays_of(tokens: int) -> Callable[[Value, list[Value]], None]:
                wide = Vec(F32, tokens * width)
                rates = e.shuffle(rate, list(range(width)) * tokens)

                def body(t: Value, _: list[Value]) -> None:
                    at = b.mul(t, const(I64, size))
                    e.store(e.exp2(b.fmul(e.load(wide, deltas, at), rates)), decays, at)

                return body

            def token(t: Value, h: list[Value]) -> list[Value]:
                at = b.mul(t, const(I64, size))
                gain = b.fmul(e.load(ty, inputs, at), e.splat(e.load(F32, ch.B.at(t), column), width))
                new = e.fma(e.load(ty, decays, at), h[0], gain)
                out = e.splat(e.load(F32, ch.C.at(t), column), width)
                e.store(e.fma(new, out, e.load(ty, total, at)), total, at)
                return [new]

            e.loop(n_paired, decays_of(2), step=2)
            e.loop(m, decays_of(1), start=n_paired)
            (last,) = e.loop(m, token, [e.load(ty, state, row)])
            e.store(last, state, row)

        def after(t: Value, _: list[Value]) -> None:
            at = b.mul(t, const(I64, size))
            ch.finish(t, e.load(ty, sums, at), e.load(ty, e.at(sums, at), size * TILE))

        e.loop(m, before)
        e.loop(ch.d_state, state_row)
        e.loop(m, after)

    return scan_tile


def _pieces(gated: bool) -> tuple[Any, Any, Any]:
    """The pieces for tiles of whole groups, for single tokens of whole groups, and for single channels."""
    scan = emit("i64,i64,i64,i64,i64->void")
    return scan(_scan_tile(GROUP, gated)), scan(_scan(GROUP, gated)), scan(_scan(1, gated))


scan_tile, scan_wide, scan_one = _pieces(True)


@kernel
def mamba1_scan(
    a, tid, nth, *, ctl: Address, seg: Address, x: Address, ldx: Int, dt: Address, lddt: Int, dt_bias: Address,
    decay: Address, skip: Address, b: Address, ldb: Int, c: Address, ldc: Int, z: Address, ldz: Int, state: Address,
    stride: Int, y: Address, ldy: Int, n_channel: Int, d_state: Int, counter: Counter,
):  # fmt: skip
    """Selective scan of Mamba-1, with its steps, skip and gate. Gu & Dao 2023, arXiv:2312.00752.

        delta = softplus(dt + dt_bias)
        h[n]  = exp(delta * A[n]) * h[n] + (delta * x) * B[n]        n = 0 .. d_state - 1
        y     = (D * x + sum_n C[n] * h[n]) * silu(z)

    ctl, seg, counter  batch control
    x                  f32 [tok][n_channel] after convolution
    dt                 f32 [tok][n_channel] before bias and softplus
    dt_bias            f32 [n_channel]
    decay              f32 [group][d_state][16]: A * log2(e), see `scan_decay`
    skip               D: f32 [n_channel padded to 16]
    b, c               B and C: f32 [tok][d_state]
    z                  f32 [tok][n_channel]
    state, stride      f32 [row][group][d_state][16], read and written; bytes from row to row
    y                  f32 [tok][n_channel]; may be x or z

    Even states are added to D * x, odd ones to 0, both by fma in ascending order; then the two sums.
    Reference: tests/reference/recurrent.py. Error: 1.3e-6 of max(1, |y|) with 16 states, 3.4e-6 with 65.
    """
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_channel, n_seg, nth, 2048)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n = ldi(s), ldi(s + 8)
        row = state + ldi(s + 16) * stride
        size = (c1 - c0 + GROUP - 1) // GROUP * GROUP * d_state
        enter_state(s, state, stride, 4 * c0 * d_state, size)
        for t in range(0, n, TILE):
            u, m = first + t, min(TILE, n - t)
            for i in range(c0, c1 - GROUP + 1, GROUP):
                at = row + 4 * i * d_state
                if m < 3:
                    scan_wide(a, u, i, at, m)
                else:
                    scan_tile(a, u, i, at, m)
            for i in range(c1 // GROUP * GROUP, c1):
                scan_one(a, u, i, row + 4 * (i // GROUP * GROUP * d_state + i % GROUP), m)


_TILE, _WIDE, _ONE = _pieces(False)
# the same without z: y = D * x + sum_n C[n] * h[n]
mamba1_scan_ungated = variant(
    mamba1_scan, "mamba1_scan_ungated", without=("z", "ldz"), scan_tile=_TILE, scan_wide=_WIDE, scan_one=_ONE
)
