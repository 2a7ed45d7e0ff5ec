"""The gated short convolution of encoders (LFM2), whose taps are before and after each token.

y[t] = after[t] * (bias + sum_k w[k] * before[u] * x[u])    u = t - d_conv // 2 + k, inside the text; k ascending
"""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from ..recurrent.states import copy_floats
from .elementwise import over_values

_V = Vec(F32, 16)


@emit("i64,i64->void")
def _clear_row(e, y, n):
    over_values(e, n, lambda o: e.store(const(_V, 0.0), y, o), lambda o: e.store(const(F32, 0.0), y, o))


@emit("i64,i64,i64,i64,i64->void")
def _add_tap(e, y, w, gate, x, n):
    """y += w * (gate * x), one fma each."""

    def some(ty):
        def one(o):
            value = e.b.fmul(e.load(ty, gate, o), e.load(ty, x, o))
            e.store(e.fma(e.load(ty, w, o), value, e.load(ty, y, o)), y, o)

        return one

    over_values(e, n, some(_V), some(F32))


@emit("i64,i64,i64->void")
def _multiply_row(e, y, gate, n):
    """y *= gate"""

    def some(ty):
        return lambda o: e.store(e.b.fmul(e.load(ty, gate, o), e.load(ty, y, o)), y, o)

    over_values(e, n, some(_V), some(F32))


@kernel
def centered_conv(
    a, tid, nth, *, count: Address, pos: Address, last: Address, x: Address, ldx: Int, before: Address, ldbefore: Int,
    after: Address, ldafter: Int, w: Address, bias: Address = 0, y: Address, ldy: Int, n: Int, d_conv: Int,
):  # fmt: skip
    """The formula above.

    pos, last         i64 [tok]: place of a token in its text, and of the text's last token; a text's rows are adjacent
    x, before, after  f32 [tok][n]
    w                 f32 [d_conv][n], d_conv odd
    bias              f32 [n]; 0: none
    y                 f32 [tok][n], none of the inputs

    Reference: tests/unit/infer/kernels/rows/test_centered_conv.py. Error: 3e-7 of max(1, |y|).
    """
    half = d_conv // 2
    for t in range(tid, ldi(count), nth):
        row, p, end = y + t * ldy, ldi(pos + 8 * t), ldi(last + 8 * t)
        if bias:
            copy_floats(bias, row, n)
        else:
            _clear_row(row, n)
        for k in range(max(0, half - p), min(d_conv, end - p + half + 1)):
            u = t - half + k
            _add_tap(row, w + 4 * k * n, before + u * ldbefore, x + u * ldx, n)
        _multiply_row(row, after + t * ldafter, n)
