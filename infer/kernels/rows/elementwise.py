"""Row-wise operations: embedding, RMS norm, SwiGLU, log-likelihood.

Rows are f32 with a stride in bytes; row lengths are arbitrary. `count` fields are addresses of an i64 that holds the
number of rows, so that one program serves every number of tokens.
"""

import math
from collections.abc import Callable
from typing import Any

from hybrid.quant.ggml.types import GGMLType

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import F32, I64, Emitter, Value, Vec, arg, const, emit, ldf, ldi, stf
from ..recurrent.states import copy_floats, sigmoid
from ..weights import FLOAT_BLOCKS, LOAD1

V16F = Vec(F32, 16)
CHUNK = 512  # values of a row that a thread handles at a time where rows are split


def _over(e: Emitter, n: Value, whole, single) -> None:
    """whole(byte offset) for every 16 values, single(byte offset) for the rest."""
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
def embed(a, tid, nth):
    """0 count, 1 tokens i64, 2 table, 3 row bytes, 4 out, 5 ldo, 6 row length."""
    tokens, table, stride, out, ldo, n = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5), arg(a, 6)
    for t in range(tid, ldi(arg(a, 0)), nth):
        embed_piece(table + ldi(tokens + 8 * t) * stride, out + t * ldo, n)


EMBED: dict[GGMLType, Kernel] = {
    kind: variant(embed, f"embed_{kind.name.lower()}", embed_piece=_make_embed_row(kind)) for kind in FLOAT_BLOCKS
}


# --- RMS norm ---
@emit("i64,i64,i64,f32->void")
def add_row(e, x, r, n, scale):
    """x += scale * r, rounded once; x + r to the bit when scale is 1."""
    wide = e.splat(scale, 16)

    def whole(o):
        e.store(e.fma(wide, e.load(V16F, r, o), e.load(V16F, x, o)), x, o)

    def single(o):
        e.store(e.fma(scale, e.load(F32, r, o), e.load(F32, x, o)), x, o)

    _over(e, n, whole, single)


@emit("i64,i64,i64,i64,f32->void")
def _rms_norm_row(e, x, weight, out, n, eps):
    """out = x / sqrt(mean(x^2) + eps) * weight; weight 0 = none. Sums in 16 lanes, halved at the end."""
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
            _over(
                e,
                n,
                lambda o: e.store(b.fmul(b.fmul(e.load(V16F, x, o), wide), e.load(V16F, weight, o)), out, o),
                lambda o: e.store(b.fmul(b.fmul(e.load(F32, x, o), scale), e.load(F32, weight, o)), out, o),
            )
        with otherwise:
            _over(
                e,
                n,
                lambda o: e.store(b.fmul(e.load(V16F, x, o), wide), out, o),
                lambda o: e.store(b.fmul(e.load(F32, x, o), scale), out, o),
            )


@kernel
def rms_norm(a, tid, nth):
    """x += scale * residual (kept), then out = norm(x) * weight. Zhang & Sennrich 2019, arXiv:1910.07467.

    0 count, 1 x, 2 ldx, 3 residual or 0, 4 ldr, 5 weight or 0, 6 out, 7 ldo, 8 length, 9 eps,
    10 i64 rows of x and residual to take or 0 (row i of out is then row index[i] of x), 11 scale
    """
    x, ldx, residual, ldr, weight = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    out, ldo, n, index = arg(a, 6), arg(a, 7), arg(a, 8), arg(a, 10)
    eps, scale = ldf(a + 72), ldf(a + 88)
    for t in range(tid, ldi(arg(a, 0)), nth):
        row = ldi(index + 8 * t) if index else t
        source = x + row * ldx
        if residual:
            add_row(source, residual + row * ldr, n, scale)
        _rms_norm_row(source, weight, out + t * ldo, n, eps)


@kernel
def add_rows(a, tid, nth):
    """x += scale * residual. 0 count, 1 x, 2 ldx, 3 residual, 4 ldr, 5 length, 6 scale."""
    for t in range(tid, ldi(arg(a, 0)), nth):
        add_row(arg(a, 1) + t * arg(a, 2), arg(a, 3) + t * arg(a, 4), arg(a, 5), ldf(a + 48))


@kernel
def add_groups(a, tid, nth):
    """As add_rows, in the columns of all groups. 0 groups (see kernels/products/gemv.py), the others alike."""
    groups, x, ldx, residual, ldr = arg(a, 0), arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4)
    for g in range(ldi(groups)):
        first = ldi(groups + 24 * g + 16)
        for c in range(first + tid, first + ldi(groups + 24 * g + 24), nth):
            add_row(x + c * ldx, residual + c * ldr, arg(a, 5), ldf(a + 48))


@emit("i64,i64,f32->void")
def _scale_row(e, x, n, scale):
    wide = e.splat(scale, 16)
    _over(
        e,
        n,
        lambda o: e.store(e.b.fmul(wide, e.load(V16F, x, o)), x, o),
        lambda o: e.store(e.b.fmul(scale, e.load(F32, x, o)), x, o),
    )


@kernel
def scale_rows(a, tid, nth):
    """x *= scale. 0 count, 1 x, 2 ldx, 3 length, 4 scale."""
    for t in range(tid, ldi(arg(a, 0)), nth):
        _scale_row(arg(a, 1) + t * arg(a, 2), arg(a, 3), ldf(a + 32))


@kernel
def copy_rows(a, tid, nth):
    """out = x. 0 count, 1 x, 2 ldx, 3 out, 4 ldo, 5 length."""
    for t in range(tid, ldi(arg(a, 0)), nth):
        for k in range(arg(a, 5)):
            stf(arg(a, 3) + t * arg(a, 4) + 4 * k, ldf(arg(a, 1) + t * arg(a, 2) + 4 * k))


@kernel
def take_parts(a, tid, nth):
    """out[t][g] = n values of x[t], `stride` bytes after those of g - 1: every other head, say.

    0 count, 1 x, 2 ldx, 3 out, 4 ldo, 5 n_group, 6 n, 7 stride
    """
    n_group, n = arg(a, 5), arg(a, 6)
    for t in range(tid, ldi(arg(a, 0)), nth):
        x, out = arg(a, 1) + t * arg(a, 2), arg(a, 3) + t * arg(a, 4)
        for g in range(n_group):
            copy_floats(x + g * arg(a, 7), out + 4 * g * n, n)


# --- gates ---
@emit("i64,i64,i64->void")
def _gate_row(e, x, gate, n):
    def whole(o):
        e.store(sigmoid(e, e.load(V16F, gate, o), e.load(V16F, x, o)), x, o)

    def single(o):
        e.store(_gated_one(e, e.load(F32, gate, o), e.load(F32, x, o)), x, o)

    _over(e, n, whole, single)


def _gated_one(e: Emitter, gate: Value, x: Value) -> Value:
    """x * sigmoid(gate) of scalars, with the operations of vectors."""
    return e.lane(sigmoid(e, e.splat(gate, 4), e.splat(x, 4)), 0)


@emit("i64->f32")
def _sigmoid_at(e, gate):
    return _gated_one(e, e.load(F32, gate), const(F32, 1.0))


@kernel
def gate_rows(a, tid, nth):
    """x *= sigmoid(gate). 0 count, 1 x, 2 ldx, 3 gate, 4 ldg, 5 length, 6 one gate for a row's values."""
    x, ldx, gate, ldg, n, only = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5), arg(a, 6)
    for t in range(tid, ldi(arg(a, 0)), nth):
        if only:
            _scale_row(x + t * ldx, n, _sigmoid_at(gate + t * ldg))
        else:
            _gate_row(x + t * ldx, gate + t * ldg, n)


# --- SwiGLU ---
@emit("i64,i64,i64,i64->void")
def _swiglu(e, gate, up, out, n):
    b = e.b

    def whole(o):
        e.store(b.fmul(e.sigmoid_times(e.load(V16F, gate, o)), e.load(V16F, up, o)), out, o)

    def single(o):
        g = e.lane(e.sigmoid_times(e.splat(e.load(F32, gate, o), 4)), 0)
        e.store(b.fmul(g, e.load(F32, up, o)), out, o)

    _over(e, n, whole, single)


@kernel
def swiglu(a, tid, nth):
    """out = silu(gate) * up. 0 count, 1 gate, 2 ldg, 3 up, 4 ldu, 5 out, 6 ldo, 7 length."""
    gate, ldg, up, ldu, out, ldo, n = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5), arg(a, 6), arg(a, 7)
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(arg(a, 0)) * per_row, nth):
        t = i // per_row
        o = i % per_row * CHUNK
        _swiglu(gate + t * ldg + 4 * o, up + t * ldu + 4 * o, out + t * ldo + 4 * o, min(CHUNK, n - o))


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

        _over(e, n, whole, single)

    return emit("i64,i64,i64,i64->void")(geglu_row)


# out = gelu(gate) * up: gelu by its tanh formula, and as it is defined
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

    _over(
        e,
        n,
        lambda o: e.store(capped(e.load(V16F, x, o), 16), x, o),
        lambda o: e.store(e.lane(capped(e.splat(e.load(F32, x, o), 4), 4), 0), x, o),
    )


@kernel
def cap_rows(a, tid, nth):
    """x = cap * tanh(x / cap). 0 count, 1 x, 2 ldx, 3 length, 4 cap."""
    n = arg(a, 3)
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(arg(a, 0)) * per_row, nth):
        o = i % per_row * CHUNK
        _cap_row(arg(a, 1) + i // per_row * arg(a, 2) + 4 * o, min(CHUNK, n - o), ldf(a + 32))


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

    _over(e, n, some(V16F), some(F32))


@kernel
def relu_squared(a, tid, nth):
    """x = max(x, 0)^2. So et al. 2021, arXiv:2109.08668. 0 count, 1 x, 2 ldx, 3 length."""
    x, ldx, n = arg(a, 1), arg(a, 2), arg(a, 3)
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(arg(a, 0)) * per_row, nth):
        o = i % per_row * CHUNK
        _relu_squared(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o))


# --- log-likelihood ---
@emit("i64,i64->f32")
def _row_max(e, x, n):
    b = e.b
    full = b.and_(n, const(I64, -16))
    (lanes,) = e.loop(
        b.shl(full, const(I64, 2)),
        lambda o, m: [e.intr("maxnum", m[0], e.load(V16F, x, o))],
        [const(V16F, float("-inf"))],
        step=64,
    )
    (top,) = e.loop(
        b.shl(n, const(I64, 2)),
        lambda o, m: [e.intr("maxnum", m[0], e.load(F32, x, o))],
        [e.halving_max(lanes)],
        start=b.shl(full, const(I64, 2)),
        step=4,
    )
    return top


@emit("i64,i64,f32->f32")
def _sum_exp(e, x, n, top):
    """Sum of exp(x - top) over n values."""
    b = e.b
    full = b.and_(n, const(I64, -16))
    wide = e.splat(top, 16)
    (lanes,) = e.loop(
        b.shl(full, const(I64, 2)),
        lambda o, s: [b.fadd(s[0], e.exp_nonpositive(b.fsub(e.load(V16F, x, o), wide)))],
        [const(V16F, 0.0)],
        step=64,
    )

    def one(o, s):
        v = e.splat(b.fsub(e.load(F32, x, o), top), 4)
        return [b.fadd(s[0], e.lane(e.exp_nonpositive(v), 0))]

    (total,) = e.loop(b.shl(n, const(I64, 2)), one, [e.halving_sum(lanes)], start=b.shl(full, const(I64, 2)), step=4)
    return total


@emit("i64,f64->void")
def _store64(e, address, value):
    e.store(value, address)


@kernel
def negative_log_likelihood(a, tid, nth):
    """out[i] = -log softmax(logits[i])[target[i]]. 0 count, 1 logits, 2 ld, 3 n_vocab, 4 targets i64, 5 out f64.

    exp in f32, sums of 4096 values in f32, the rest in f64.
    """
    logits, ld, n, targets, out = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 5)
    for t in range(tid, ldi(arg(a, 0)), nth):
        row = logits + t * ld
        top = _row_max(row, n)
        total = 0.0
        for o in range(0, n, 4096):
            total += _sum_exp(row + 4 * o, min(4096, n - o), top)
        _store64(out + 8 * t, math.log(total) - (float(ldf(row + 4 * ldi(targets + 8 * t))) - float(top)))
