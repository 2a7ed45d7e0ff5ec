"""Recurrent kernels: causal convolution with SiLU, and the selective scan of Mamba-1.

Batch control, shared by all kernels with state:

    ctl   i64 [3]         number of tokens, of segments, of outputs
    seg   i64 [n_seg][4]  first token, number of tokens, memory slot, fresh
                          (the tokens of one sequence, in order; fresh = 1: the sequence begins here, its state is zero)
    ctr   i64             counter of work items, zero before each run

Rows are f32 [tok][ld bytes]. An item is a strip of channels of one segment; within it time runs in tiles, so that a row
is touched in pieces of whole cache lines. A channel sees the same operations in the same order whatever the width of
a vector, the strip, the tile or the split of its tokens into calls.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .emit import F32, I64, LOG2E, Emitter, Value, Vec, arg, atomic_add, const, emit, ldi, stf
from .jit import device, kernel

GROUP = 16  # channels side by side in the state and in A
TILE = 16  # tokens of a tile
MIN_STRIP = 64  # channels of the smallest strip worth an item
ZERO = np.float32(0.0)

F32Array = npt.NDArray[np.float32]


# --- layouts at load time ---------------------------------------------------------------------------------------------
def n_groups(n_channel: int) -> int:
    """Groups of 16 channels, the last one padded."""
    return -(-n_channel // GROUP)


def conv_state_bytes(n_channel: int, d_conv: int) -> int:
    """One sequence's state of `conv1d_silu`: f32 [d_conv - 1][channel], oldest input first."""
    return 4 * n_channel * (d_conv - 1)


def scan_state_bytes(n_channel: int, d_state: int) -> int:
    """One sequence's state of `mamba1_scan`: f32 [group][d_state][16]."""
    return 4 * GROUP * n_groups(n_channel) * d_state


def arrange_channels(a: npt.ArrayLike) -> F32Array:
    """f32 [channel, d_state] -> [group, d_state, 16]: 16 channels side by side; missing channels are zero."""
    source = np.asarray(a, dtype=np.float32)
    n_channel, d_state = source.shape
    padded = np.zeros((n_groups(n_channel) * GROUP, d_state), np.float32)
    padded[:n_channel] = source
    return np.ascontiguousarray(padded.reshape(-1, GROUP, d_state).transpose(0, 2, 1))


def restore_channels(arranged: npt.ArrayLike, n_channel: int) -> F32Array:
    """Inverse of `arrange_channels`: [group, d_state, 16] -> [channel, d_state]."""
    source = np.asarray(arranged, dtype=np.float32)
    flat = source.transpose(0, 2, 1).reshape(-1, source.shape[1])
    return np.ascontiguousarray(flat[:n_channel])


def scan_decay(a: npt.ArrayLike) -> F32Array:
    """A of the file (negative, [channel, d_state]) -> A2 of `mamba1_scan`: A * log2(e), arranged."""
    return arrange_channels((np.asarray(a, np.float64) * LOG2E).astype(np.float32))


def pad_channels(a: npt.ArrayLike) -> F32Array:
    """f32 [channel] -> [group * 16], zeros appended (D of `mamba1_scan`)."""
    source = np.asarray(a, dtype=np.float32)
    padded = np.zeros(n_groups(source.shape[0]) * GROUP, np.float32)
    padded[: source.shape[0]] = source
    return padded


# --- items ------------------------------------------------------------------------------------------------------------
@device
def strip_of(n_channel, n_item, nth, most):
    """Channels of a strip, a multiple of 16: about four items a thread, between MIN_STRIP and `most`."""
    share = n_channel * n_item // (4 * nth)
    return (min(max(share, MIN_STRIP), most) + GROUP - 1) // GROUP * GROUP


@emit("i64,i64,i64->void")
def copy_floats(e, source, target, n):
    def body(width: int) -> Callable[[Value, list[Value]], None]:
        return lambda i, _: e.store(e.load(Vec(F32, width), source, i), target, i)

    size = e.b.shl(n, const(I64, 2))
    wide = e.b.and_(size, const(I64, -4 * GROUP))
    e.loop(wide, body(GROUP), step=4 * GROUP)
    e.loop(size, body(1), start=wide, step=4)


@device
def zero_fill(address, n):
    """n floats at `address` become zero."""
    for i in range(n):
        stf(address + 4 * i, ZERO)


# --- conv1d_silu ------------------------------------------------------------------------------------------------------
def _conv4(width: int) -> Callable[..., Any]:
    """Four taps over n tokens for `width` channels; h0..h2 are the addresses of the three rows before the first."""

    def conv4(
        e: Emitter,
        h0: Value,
        h1: Value,
        h2: Value,
        x: Value,
        ldx: Value,
        w: Value,
        ldw: Value,
        bias: Value,
        y: Value,
        ldy: Value,
        n: Value,
    ) -> None:
        b, ty = e.b, Vec(F32, width)
        weight = [e.load(ty, w, b.mul(ldw, const(I64, k))) for k in range(4)]
        start = e.load(ty, bias)

        def token(t: Value, past: list[Value]) -> list[Value]:
            new = e.load(ty, x, b.mul(t, ldx))
            acc = start
            for k, row in enumerate((*past, new)):
                acc = e.fma(weight[k], row, acc)
            e.store(e.sigmoid_times(acc), y, b.mul(t, ldy))
            return [past[1], past[2], new]

        e.loop(n, token, [e.load(ty, h) for h in (h0, h1, h2)])

    return conv4


def _conv_any(width: int) -> Callable[..., Any]:
    """`taps` taps for one token and `width` channels: rows before `x0` of the segment lie in the state."""

    def conv_any(
        e: Emitter,
        x0: Value,
        ldx: Value,
        t: Value,
        state: Value,
        w: Value,
        ldw: Value,
        bias: Value,
        y: Value,
        taps: Value,
    ) -> None:
        b, ty = e.b, Vec(F32, width)
        before = b.sub(taps, const(I64, 1))

        def tap(k: Value, acc: list[Value]) -> list[Value]:
            row = b.sub(b.add(t, k), before)
            in_state = b.add(state, b.mul(b.add(t, k), ldw))
            in_x = b.add(x0, b.mul(row, ldx))
            source = b.select(b.icmp_signed("<", row, const(I64, 0)), in_state, in_x)
            return [e.fma(e.load(ty, w, b.mul(k, ldw)), e.load(ty, source), acc[0])]

        (total,) = e.loop(taps, tap, [e.load(ty, bias)])
        e.store(e.sigmoid_times(total), y)

    return conv_any


_CONV4 = "i64,i64,i64,i64,i64,i64,i64,i64,i64,i64,i64->void"
_CONV_ANY = "i64,i64,i64,i64,i64,i64,i64,i64,i64->void"
conv4_wide, conv4_one = emit(_CONV4)(_conv4(GROUP)), emit(_CONV4)(_conv4(1))
conv_any_wide, conv_any_one = emit(_CONV_ANY)(_conv_any(GROUP)), emit(_CONV_ANY)(_conv_any(1))


@device
def conv_row(t, x, ldx, state, ldw, before):
    """Address of input t of the segment; the `before` inputs ahead of it lie in the state."""
    return x + t * ldx if t >= 0 else state + (t + before) * ldw


@kernel
def conv1d_silu(a, tid, nth):
    """Causal depthwise convolution over time, bias, SiLU.

        y[t] = silu(bias + sum_k w[k] * x[t - (d_conv - 1) + k])      k ascending, one fma each

     0 ctl, 1 seg   batch control
     2 x, 3 ldx     f32 [tok][C]
     4 w            f32 [d_conv][C], oldest tap first
     5 bias         f32 [C]
     6 state        f32 [slot][d_conv - 1][C], oldest input first; read, then the last d_conv - 1 inputs
     7 slot stride in bytes
     8 y, 9 ldy     f32 [tok][C], not x
    10 C, 11 d_conv (at least 2), 12 ctr

    Reference: tests/reference/ssm.py. Error: 7e-7 of max(1, |y|).
    """
    n_seg = ldi(arg(a, 0) + 8)
    ldx, w, bias, ldy = arg(a, 3), arg(a, 4), arg(a, 5), arg(a, 9)
    n_channel, taps, ctr = arg(a, 10), arg(a, 11), arg(a, 12)
    ldw, before = 4 * n_channel, taps - 1
    strip = strip_of(n_channel, n_seg, nth, 512)
    n_strip = (n_channel + strip - 1) // strip
    while True:
        i = atomic_add(ctr, 1)
        if i >= n_strip * n_seg:
            break
        c0 = i // n_seg * strip
        c1 = min(n_channel, c0 + strip)
        s = arg(a, 1) + 32 * (i % n_seg)
        n = ldi(s + 8)
        x, y = arg(a, 2) + ldi(s) * ldx, arg(a, 8) + ldi(s) * ldy
        state = arg(a, 6) + ldi(s + 16) * arg(a, 7)
        if ldi(s + 24) != 0:
            for k in range(before):
                zero_fill(state + k * ldw + 4 * c0, c1 - c0)
        for t in range(0, n, TILE):
            m = min(TILE, n - t)
            c = c0
            if taps == 4:
                h0 = conv_row(t - 3, x, ldx, state, ldw, before)
                h1 = conv_row(t - 2, x, ldx, state, ldw, before)
                h2 = conv_row(t - 1, x, ldx, state, ldw, before)
                xt, yt = x + t * ldx, y + t * ldy
                while c + GROUP <= c1:
                    o = 4 * c
                    conv4_wide(h0 + o, h1 + o, h2 + o, xt + o, ldx, w + o, ldw, bias + o, yt + o, ldy, m)
                    c += GROUP
                while c < c1:
                    o = 4 * c
                    conv4_one(h0 + o, h1 + o, h2 + o, xt + o, ldx, w + o, ldw, bias + o, yt + o, ldy, m)
                    c += 1
            else:
                while c + GROUP <= c1:
                    o = 4 * c
                    for u in range(t, t + m):
                        conv_any_wide(x + o, ldx, u, state + o, w + o, ldw, bias + o, y + u * ldy + o, taps)
                    c += GROUP
                while c < c1:
                    o = 4 * c
                    for u in range(t, t + m):
                        conv_any_one(x + o, ldx, u, state + o, w + o, ldw, bias + o, y + u * ldy + o, taps)
                    c += 1
        for k in range(before):  # ascending: a row is read before it is overwritten
            source = conv_row(n + k - before, x, ldx, state, ldw, before)
            target = state + k * ldw
            copy_floats(source + 4 * c0, target + 4 * c0, c1 - c0)


# --- mamba1_scan ------------------------------------------------------------------------------------------------------
def _scan(width: int) -> Callable[..., Any]:
    """n tokens of `width` channels of a group, token by token; the state stays in memory (L1)."""

    def scan(
        e: Emitter,
        x: Value,
        ldx: Value,
        dt: Value,
        lddt: Value,
        dt_bias: Value,
        a2: Value,
        d: Value,
        bmat: Value,
        ldb: Value,
        cmat: Value,
        ldc: Value,
        z: Value,
        ldz: Value,
        state: Value,
        y: Value,
        ldy: Value,
        d_state: Value,
        n: Value,
    ) -> None:
        b, ty = e.b, Vec(F32, width)
        bias, skip = e.load(ty, dt_bias), e.load(ty, d)
        even = b.and_(d_state, const(I64, -2))

        def token(t: Value, _: list[Value]) -> None:
            delta = e.softplus(b.fadd(e.load(ty, dt, b.mul(t, lddt)), bias))
            xv = e.load(ty, x, b.mul(t, ldx))
            dx = b.fmul(delta, xv)
            brow, crow = e.at(bmat, b.mul(t, ldb)), e.at(cmat, b.mul(t, ldc))

            def state_step(s: Value, acc: Value) -> Value:
                column, row = b.shl(s, const(I64, 2)), b.shl(s, const(I64, 6))
                decay = e.exp2(b.fmul(delta, e.load(ty, a2, row)))
                gain = b.fmul(dx, e.splat(e.load(F32, brow, column), width))
                new = e.fma(decay, e.load(ty, state, row), gain)
                e.store(new, state, row)
                return e.fma(new, e.splat(e.load(F32, crow, column), width), acc)

            def pair(s: Value, acc: list[Value]) -> list[Value]:
                return [state_step(s, acc[0]), state_step(b.add(s, const(I64, 1)), acc[1])]

            sums = e.loop(even, pair, [b.fmul(xv, skip), const(ty, 0.0)], step=2)
            (first,) = e.loop(d_state, lambda s, acc: [state_step(s, acc[0])], sums[:1], start=even)
            total = b.fadd(first, sums[1])
            gate = e.sigmoid_times(e.load(ty, z, b.mul(t, ldz)))
            e.store(b.fmul(total, gate), y, b.mul(t, ldy))

        e.loop(n, token)

    return scan


def _scan_tile(width: int) -> Callable[..., Any]:
    """The same for up to TILE tokens, the same bits: state by state, with time as the inner loop.

    The exponentials of a state are a loop of their own, two tokens side by side: they take three quarters of the
    operations, and a chain of 14 dependent ones leaves the units idle unless many chains are in flight.
    """

    def scan_tile(
        e: Emitter,
        x: Value,
        ldx: Value,
        dt: Value,
        lddt: Value,
        dt_bias: Value,
        a2: Value,
        d: Value,
        bmat: Value,
        ldb: Value,
        cmat: Value,
        ldc: Value,
        z: Value,
        ldz: Value,
        state: Value,
        y: Value,
        ldy: Value,
        d_state: Value,
        n: Value,
    ) -> None:
        b, ty = e.b, Vec(F32, width)
        bias, skip = e.load(ty, dt_bias), e.load(ty, d)
        size = 4 * width
        deltas, inputs, decays = (e.stack(ty, TILE) for _ in range(3))
        sums = e.stack(ty, 2 * TILE)  # sums: even, odd states

        def before(t: Value, _: list[Value]) -> None:
            delta = e.softplus(b.fadd(e.load(ty, dt, b.mul(t, lddt)), bias))
            xv = e.load(ty, x, b.mul(t, ldx))
            at = b.mul(t, const(I64, size))
            e.store(delta, deltas, at)
            e.store(b.fmul(delta, xv), inputs, at)
            e.store(b.fmul(xv, skip), sums, at)
            e.store(const(ty, 0.0), e.at(sums, at), size * TILE)

        def state_row(s: Value, _: list[Value]) -> None:
            row, column = b.shl(s, const(I64, 6)), b.shl(s, const(I64, 2))
            rate = e.load(ty, a2, row)
            bs, cs = b.add(bmat, column), b.add(cmat, column)
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
                gain = b.fmul(e.load(ty, inputs, at), e.splat(e.load(F32, bs, b.mul(t, ldb)), width))
                new = e.fma(e.load(ty, decays, at), h[0], gain)
                out = e.splat(e.load(F32, cs, b.mul(t, ldc)), width)
                e.store(e.fma(new, out, e.load(ty, total, at)), total, at)
                return [new]

            e.loop(pairs, decays_of(2), step=2)
            e.loop(n, decays_of(1), start=pairs)
            (last,) = e.loop(n, token, [e.load(ty, state, row)])
            e.store(last, state, row)

        def after(t: Value, _: list[Value]) -> None:
            at = b.mul(t, const(I64, size))
            total = b.fadd(e.load(ty, sums, at), e.load(ty, e.at(sums, at), size * TILE))
            gate = e.sigmoid_times(e.load(ty, z, b.mul(t, ldz)))
            e.store(b.fmul(total, gate), y, b.mul(t, ldy))

        pairs = b.and_(n, const(I64, -2))
        e.loop(n, before)
        e.loop(d_state, state_row)
        e.loop(n, after)

    return scan_tile


_SCAN = ",".join(["i64"] * 18) + "->void"
scan_tile, scan_wide, scan_one = emit(_SCAN)(_scan_tile(GROUP)), emit(_SCAN)(_scan(GROUP)), emit(_SCAN)(_scan(1))


@kernel
def mamba1_scan(a, tid, nth):
    """Selective scan of Mamba-1 with everything around it. Gu & Dao 2023, arXiv:2312.00752.

        delta = softplus(dt + dt_bias)
        h[n]  = exp(delta * A[n]) * h[n] + (delta * x) * B[n]        n = 0 .. d_state - 1
        y     = (D * x + sum_n C[n] * h[n]) * silu(z)

     0 ctl, 1 seg      batch control
     2 x, 3 ldx        f32 [tok][C] after convolution
     4 dt, 5 lddt      f32 [tok][C] before bias and softplus
     6 dt_bias         f32 [C]
     7 A2              f32 [group][d_state][16]: A * log2(e), see `scan_decay`
     8 D               f32 [C padded to 16]
     9 B, 10 ldb       f32 [tok][d_state]
    11 C, 12 ldc       f32 [tok][d_state]
    13 z, 14 ldz       f32 [tok][C]
    15 state           f32 [slot][group][d_state][16], read and written
    16 slot stride in bytes
    17 y, 18 ldy       f32 [tok][C]; may be x or z
    19 C, 20 d_state, 21 ctr

    Even states are added to D * x, odd ones to 0, both by fma in ascending order; then the two sums.
    Reference: tests/reference/ssm.py. Error: 1.3e-6 of max(1, |y|)
    with 16 states, 3.4e-6 with 65.
    """
    n_seg = ldi(arg(a, 0) + 8)
    ldx, lddt, ldb, ldc, ldz, ldy = arg(a, 3), arg(a, 5), arg(a, 10), arg(a, 12), arg(a, 14), arg(a, 18)
    bias, decay, skip = arg(a, 6), arg(a, 7), arg(a, 8)
    n_channel, d_state, ctr = arg(a, 19), arg(a, 20), arg(a, 21)
    strip = strip_of(n_channel, n_seg, nth, 128)
    n_strip = (n_channel + strip - 1) // strip
    while True:
        i = atomic_add(ctr, 1)
        if i >= n_strip * n_seg:
            break
        c0 = i // n_seg * strip
        c1 = min(n_channel, c0 + strip)
        s = arg(a, 1) + 32 * (i % n_seg)
        first, n = ldi(s), ldi(s + 8)
        state = arg(a, 15) + ldi(s + 16) * arg(a, 16)
        if ldi(s + 24) != 0:
            zero_fill(state + 4 * c0 * d_state, (c1 - c0 + GROUP - 1) // GROUP * GROUP * d_state)
        for t in range(0, n, TILE):
            m = min(TILE, n - t)
            u = first + t
            x, dt, z, y = arg(a, 2) + u * ldx, arg(a, 4) + u * lddt, arg(a, 13) + u * ldz, arg(a, 17) + u * ldy
            bm, cm = arg(a, 9) + u * ldb, arg(a, 11) + u * ldc
            c = c0
            while c < c1:
                o = 4 * c
                r = c // GROUP * (4 * GROUP * d_state) + 4 * (c % GROUP)
                if c + GROUP > c1:
                    scan_one(
                        x + o, ldx, dt + o, lddt, bias + o, decay + r, skip + o, bm, ldb, cm, ldc,
                        z + o, ldz, state + r, y + o, ldy, d_state, m,
                    )  # fmt: skip
                    c += 1
                elif m < 3:
                    scan_wide(
                        x + o, ldx, dt + o, lddt, bias + o, decay + r, skip + o, bm, ldb, cm, ldc,
                        z + o, ldz, state + r, y + o, ldy, d_state, m,
                    )  # fmt: skip
                    c += GROUP
                else:
                    scan_tile(
                        x + o, ldx, dt + o, lddt, bias + o, decay + r, skip + o, bm, ldb, cm, ldc,
                        z + o, ldz, state + r, y + o, ldy, d_state, m,
                    )  # fmt: skip
                    c += GROUP
