"""Row-wise operations: embedding, RMS norm, sums, gates.

Rows are f32 [row][n], `ld` bytes apart; row lengths are arbitrary. `count` is the address of an i64 with the number of
rows, so that one program serves every number of tokens.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid.quant.ggml.types import GGMLType

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldf, ldi, stf
from ..emit.fields import Address, Float, Int
from ..recurrent.states import copy_floats, sigmoid
from ..weights import FLOAT_BLOCKS, LOAD1

V16F = Vec(F32, 16)
ONE = np.float32(1.0)
CHUNK = 512  # values that a thread processes at a time, if rows are split


def over_values(e: Emitter, n: Value, whole, single) -> None:
    """Loop over n values: whole(byte offset) for every 16 values, single(byte offset) for each of the rest."""
    b = e.b
    full = b.and_(n, const(I64, -16))
    e.loop(b.shl(full, const(I64, 2)), lambda o, _: whole(o), step=64)
    e.loop(b.shl(n, const(I64, 2)), lambda o, _: single(o), start=b.shl(full, const(I64, 2)), step=4)


# --- embedding ---
def _make_embed_row(kind: GGMLType):
    block = FLOAT_BLOCKS[kind]

    def embed_row(e: Emitter, source, out, n):
        b = e.b
        shift = block.weights.bit_length() - 1
        blocks = b.lshr(n, const(I64, shift))

        def one(i, _):
            o = b.shl(i, const(I64, shift + 2))
            for k, v in enumerate(block.load(e, e.at(source, b.mul(i, const(I64, block.nbytes))))):
                e.store(v, out, b.add(o, const(I64, 64 * k)))

        e.loop(blocks, one)
        if kind in LOAD1:
            size = block.nbytes // 32

            def element(k, _):
                e.store(LOAD1[kind](e, e.at(source, b.mul(k, const(I64, size)))), out, b.shl(k, const(I64, 2)))

            e.loop(n, element, start=b.shl(blocks, const(I64, 5)))

    return emit("i64,i64,i64->void")(embed_row)


def embed_piece(source, out, n):  # replaced in every variant
    raise NotImplementedError


@kernel
def embed(
    a, tid, nth, *, count: Address, tokens: Address, table: Address, stride: Int, out: Address, ldout: Int, n: Int,
    n_part: Int = 1,
):  # fmt: skip
    """out[t] = the n_part rows tokens[t] of the table, decoded, side by side. tokens i64 [count][n_part]; the table's
    rows are `stride` bytes apart."""
    for i in range(tid, ldi(count) * n_part, nth):
        t, part = i // n_part, i % n_part
        embed_piece(table + ldi(tokens + 8 * i) * stride, out + t * ldout + 4 * part * n, n)


EMBED: dict[GGMLType, Kernel] = {
    kind: variant(embed, f"embed_{kind.name.lower()}", embed_piece=_make_embed_row(kind)) for kind in FLOAT_BLOCKS
}


# --- RMS norm ---
@emit("i64,i64,i64,f32->void")
def add_row(e, x, r, n, scale):
    """x += scale * r, rounded once; exactly x + r if scale is 1."""
    wide = e.splat(scale, 16)

    def whole(o):
        e.store(e.fma(wide, e.load(V16F, r, o), e.load(V16F, x, o)), x, o)

    def single(o):
        e.store(e.fma(scale, e.load(F32, r, o), e.load(F32, x, o)), x, o)

    over_values(e, n, whole, single)


@emit("i64,i64,i64,i64,f32->void")
def _rms_norm_row(e, x, weight, out, n, eps):
    """out = x / sqrt(mean(x^2) + eps) * weight; weight 0: none. Sums in 16 lanes, halved at the end."""
    b = e.b
    full = b.and_(n, const(I64, -16))

    def square(o, acc):
        v = e.load(V16F, x, o)
        return [e.fma(v, v, acc[0])]

    (lanes,) = e.loop(b.shl(full, const(I64, 2)), square, [const(V16F, 0.0)], step=64)

    def square_one(o, acc):
        v = e.load(F32, x, o)
        return [e.fma(v, v, acc[0])]

    (total,) = e.loop(
        b.shl(n, const(I64, 2)), square_one, [e.halving_sum(lanes)], start=b.shl(full, const(I64, 2)), step=4
    )
    mean = b.fadd(b.fdiv(total, b.sitofp(n, F32)), eps)
    scale = b.fdiv(const(F32, 1.0), e.intr("sqrt", mean))
    wide = e.splat(scale, 16)
    weighted = b.icmp_signed("!=", weight, const(I64, 0))
    with b.if_else(weighted) as (then, otherwise):
        with then:
            over_values(
                e,
                n,
                lambda o: e.store(b.fmul(b.fmul(e.load(V16F, x, o), wide), e.load(V16F, weight, o)), out, o),
                lambda o: e.store(b.fmul(b.fmul(e.load(F32, x, o), scale), e.load(F32, weight, o)), out, o),
            )
        with otherwise:
            over_values(
                e,
                n,
                lambda o: e.store(b.fmul(e.load(V16F, x, o), wide), out, o),
                lambda o: e.store(b.fmul(e.load(F32, x, o), scale), out, o),
            )


@kernel
def rms_norm(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, residual: Address = 0, ldresidual: Int, weight: Address = 0,
    out: Address, ldout: Int, n: Int, eps: Float, index: Address = 0, scale: Float = 1.0,
):  # fmt: skip
    """x += scale * residual, then out = norm(x) * weight. Zhang & Sennrich 2019, arXiv:1910.07467.

    residual, weight    f32 [row][n] and f32 [n]; 0: none
    index               i64 [count]: row i of out comes from row index[i] of x and residual; 0: from row i
    """
    for t in range(tid, ldi(count), nth):
        row = ldi(index + 8 * t) if index else t
        source = x + row * ldx
        if residual:
            add_row(source, residual + row * ldresidual, n, scale)
        _rms_norm_row(source, weight, out + t * ldout, n, eps)


@kernel
def add_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, residual: Address, ldresidual: Int, n: Int, scale: Float = 1.0
):
    """x += scale * residual; ldresidual = 0: the same row for all."""
    for t in range(tid, ldi(count), nth):
        add_row(x + t * ldx, residual + t * ldresidual, n, scale)


@kernel
def add_groups(
    a, tid, nth, *, groups: Address, x: Address, ldx: Int, residual: Address, ldresidual: Int, n: Int,
    scale: Float = 1.0,
):  # fmt: skip
    """`add_rows` for the columns of all groups (see kernels/products/gemv.py)."""
    for g in range(ldi(groups)):
        first = ldi(groups + 24 * g + 16)
        for c in range(first + tid, first + ldi(groups + 24 * g + 24), nth):
            add_row(x + c * ldx, residual + c * ldresidual, n, scale)


@kernel
def add_group_rows(a, tid, nth, *, groups: Address, x: Address, ldx: Int, rows: Address, stride: Int, n: Int):
    """Add the row of each group's expert to the group's columns x: rows f32 [expert][n], `stride` bytes apart."""
    for g in range(ldi(groups)):
        row = rows + ldi(groups + 24 * g + 8) * stride
        first = ldi(groups + 24 * g + 16)
        for c in range(first + tid, first + ldi(groups + 24 * g + 24), nth):
            add_row(x + c * ldx, row, n, ONE)


@emit("i64,i64,f32->void")
def scale_row(e, x, n, scale):
    wide = e.splat(scale, 16)
    over_values(
        e,
        n,
        lambda o: e.store(e.b.fmul(wide, e.load(V16F, x, o)), x, o),
        lambda o: e.store(e.b.fmul(scale, e.load(F32, x, o)), x, o),
    )


@kernel
def scale_groups(a, tid, nth, *, groups: Address, x: Address, ldx: Int, factors: Address, n: Int):
    """Multiply each group's columns x by the factor of its expert: factors f32 [expert]."""
    for g in range(ldi(groups)):
        factor = ldf(factors + ldi(groups + 24 * g + 8) * 4)
        first = ldi(groups + 24 * g + 16)
        for c in range(first + tid, first + ldi(groups + 24 * g + 24), nth):
            scale_row(x + c * ldx, n, factor)


@kernel
def scale_rows(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, scale: Float):
    """x *= scale."""
    for t in range(tid, ldi(count), nth):
        scale_row(x + t * ldx, n, scale)


@emit("i64,i64,i64,f32->void")
def _scaled_row(e, x, out, n, scale):
    wide = e.splat(scale, 16)
    over_values(
        e,
        n,
        lambda o: e.store(e.b.fmul(wide, e.load(V16F, x, o)), out, o),
        lambda o: e.store(e.b.fmul(scale, e.load(F32, x, o)), out, o),
    )


@kernel
def scaled_copy(a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int, scale: Float):
    """out = scale * x."""
    for t in range(tid, ldi(count), nth):
        _scaled_row(x + t * ldx, out + t * ldout, n, scale)


@kernel
def scale_rows_by_position(a, tid, nth, *, count: Address, pos: Address, x: Address, ldx: Int, n: Int, table: Address):
    """x[t] *= table[pos[t]]: pos i64 [tok], table f32 [position]."""
    for t in range(tid, ldi(count), nth):
        scale_row(x + t * ldx, n, ldf(table + 4 * ldi(pos + 8 * t)))


@kernel
def copy_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int, index: Address = 0
):
    """out = x. index: i64 [count]: row i of out is row index[i] of x; 0: row i."""
    for t in range(tid, ldi(count), nth):
        source = x + (ldi(index + 8 * t) if index else t) * ldx
        for k in range(n):
            stf(out + t * ldout + 4 * k, ldf(source + 4 * k))


@kernel
def take_parts(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_group: Int, n: Int, stride: Int,
    out_stride: Int = 0,
):  # fmt: skip
    """out[t][g] = n values of x[t] at byte g * stride, e.g. every other head. In `out` they are out_stride bytes apart;
    0: side by side."""
    step = out_stride if out_stride else 4 * n
    for t in range(tid, ldi(count), nth):
        for g in range(n_group):
            copy_floats(x + t * ldx + g * stride, out + t * ldout + g * step, n)


# --- gates ---
@emit("i64,i64,i64,i64,f32->void")
def _gate_row(e, x, gate, out, n, scale):
    wide = e.splat(scale, 16)

    def whole(o):
        e.store(sigmoid(e, e.load(V16F, gate, o), e.b.fmul(wide, e.load(V16F, x, o))), out, o)

    def single(o):
        e.store(_gated_one(e, e.load(F32, gate, o), e.b.fmul(scale, e.load(F32, x, o))), out, o)

    over_values(e, n, whole, single)


def _gated_one(e: Emitter, gate: Value, x: Value) -> Value:
    """x * sigmoid(gate) of scalars, with the same operations as for vectors."""
    return e.lane(sigmoid(e, e.splat(gate, 4), e.splat(x, 4)), 0)


@emit("i64->f32")
def sigmoid_at(e, gate):
    return _gated_one(e, e.load(F32, gate), const(F32, 1.0))


@kernel
def gate_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, gate: Address, ldgate: Int, n: Int, one_gate: Int = 0,
    out: Address = 0, ldout: Int, scale: Float = 1.0,
):  # fmt: skip
    """out = scale * x * sigmoid(gate); out 0: x. gate f32 [row][n], or with one_gate f32 [row], one for all values of
    a row, in place and without `scale`."""
    for t in range(tid, ldi(count), nth):
        if one_gate:
            scale_row(x + t * ldx, n, sigmoid_at(gate + t * ldgate))
        else:
            _gate_row(x + t * ldx, gate + t * ldgate, out + t * ldout if out else x + t * ldx, n, scale)


# --- SwiGLU ---
@emit("i64,i64,i64,i64->void")
def _swiglu(e, gate, up, out, n):
    b = e.b

    def whole(o):
        e.store(b.fmul(e.sigmoid_times(e.load(V16F, gate, o)), e.load(V16F, up, o)), out, o)

    def single(o):
        g = e.lane(e.sigmoid_times(e.splat(e.load(F32, gate, o), 4)), 0)
        e.store(b.fmul(g, e.load(F32, up, o)), out, o)

    over_values(e, n, whole, single)


@kernel
def swiglu(
    a, tid, nth, *, count: Address, gate: Address, ldgate: Int, up: Address, ldup: Int, out: Address, ldout: Int, n: Int
):
    """out = silu(gate) * up; out may be gate or up."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t = i // per_row
        o = i % per_row * CHUNK
        _swiglu(gate + t * ldgate + 4 * o, up + t * ldup + 4 * o, out + t * ldout + 4 * o, min(CHUNK, n - o))


# --- GeGLU ---
GELU = 2 * math.sqrt(2 / math.pi)


def gelu_by_tanh(e: Emitter, x: Value) -> Value:
    """gelu(x) = x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubic = e.fma(e.b.fmul(x, x), const(x.type, 0.044715 * GELU), const(x.type, GELU))
    return sigmoid(e, e.b.fmul(x, cubic), x)


def _make_geglu(gelu: Callable[[Emitter, Value], Value]) -> Any:
    def geglu_row(e, gate, up, out, n):
        b = e.b

        def whole(o):
            e.store(b.fmul(gelu(e, e.load(V16F, gate, o)), e.load(V16F, up, o)), out, o)

        def single(o):
            g = e.lane(gelu(e, e.splat(e.load(F32, gate, o), 4)), 0)
            e.store(b.fmul(g, e.load(F32, up, o)), out, o)

        over_values(e, n, whole, single)

    return emit("i64,i64,i64,i64->void")(geglu_row)


# out = gelu(gate) * up: gelu by its tanh formula, and exact
geglu = variant(swiglu, "geglu", _swiglu=_make_geglu(gelu_by_tanh))
geglu_erf = variant(swiglu, "geglu_erf", _swiglu=_make_geglu(Emitter.gelu))


# --- soft cap ---
@emit("i64,i64,f32->void")
def _cap_row(e, x, n, cap):
    """x = cap tanh(x / cap) = 2 cap sigmoid(2 x / cap) - cap"""
    b = e.b
    twice, scale = b.fmul(cap, const(F32, 2.0)), b.fdiv(const(F32, 2.0), cap)

    def capped(v, lanes):
        limit = e.splat(twice, lanes)
        return b.fsub(sigmoid(e, b.fmul(v, e.splat(scale, lanes)), limit), e.splat(cap, lanes))

    over_values(
        e,
        n,
        lambda o: e.store(capped(e.load(V16F, x, o), 16), x, o),
        lambda o: e.store(e.lane(capped(e.splat(e.load(F32, x, o), 4), 4), 0), x, o),
    )


@kernel
def cap_rows(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int, cap: Float):
    """x = cap * tanh(x / cap)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _cap_row(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o), cap)


# --- squared ReLU ---
@emit("i64,i64->void")
def _relu_squared(e, x, n):
    """x = max(x, 0)^2; NaN stays NaN."""

    def some(ty):
        def one(o):
            v = e.load(ty, x, o)
            v = e.b.select(e.b.fcmp_ordered("<", v, const(ty, 0.0)), const(ty, 0.0), v)
            e.store(e.b.fmul(v, v), x, o)

        return one

    over_values(e, n, some(V16F), some(F32))


@kernel
def relu_squared(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int):
    """x = max(x, 0)^2. So et al. 2021, arXiv:2109.08668."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _relu_squared(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o))
