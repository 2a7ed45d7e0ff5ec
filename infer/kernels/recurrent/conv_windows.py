"""A causal depthwise convolution over time whose output for each token contains the last few tokens, which a second
convolution reads.

    y[t][j] = bias + sum_k w[k] * x[t - (n_window - 1) - (d_conv - 1) + j + k]      k ascending, one fma each

So y[t][n_window - 1] is the convolution at t, and y[t][0] the convolution n_window - 1 tokens earlier. Before the first
token x is 0, so the second convolution sees the bias there.
"""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, emit, ldi
from ..emit.fields import Address, Counter, Int
from ..rows.elementwise import over_values
from .states import copy_floats, enter_state, next_part, strip_of

V16F = Vec(F32, 16)


@emit("i64,i64,i64,i64,i64->void")
def _first_tap(e, out, x, w, bias, n):
    """out = w * x + bias"""

    def some(ty):
        return lambda o: e.store(e.fma(e.load(ty, w, o), e.load(ty, x, o), e.load(ty, bias, o)), out, o)

    over_values(e, n, some(V16F), some(F32))


@emit("i64,i64,i64,i64->void")
def _next_tap(e, out, x, w, n):
    """out = w * x + out"""

    def some(ty):
        return lambda o: e.store(e.fma(e.load(ty, w, o), e.load(ty, x, o), e.load(ty, out, o)), out, o)

    over_values(e, n, some(V16F), some(F32))


@kernel
def conv1d_windows(
    a, tid, nth, *, ctl: Address, seg: Address, x: Address, ldx: Int, w: Address, bias: Address, state: Address,
    stride: Int, y: Address, ldy: Int, part: Int, n_channel: Int, d_conv: Int, n_window: Int, counter: Counter,
):  # fmt: skip
    """The convolution above. Its state has the inputs that both convolutions need.

    ctl, seg, counter  batch control, see states.py
    x                  f32 [tok][n_channel]
    w, bias            f32 [d_conv][n_channel], oldest tap first, and f32 [n_channel]
    state, stride      f32 [row][d_conv + n_window - 2][n_channel], the last inputs, oldest first; read and written;
                       bytes from row to row
    y, part            f32 [tok][n_window][n_channel], not x; `part` bytes from one window of a token to the next

    Reference: tests/reference/convolved_attention.py. Error: 7e-7 of max(1, |y|).
    """
    n_seg = ldi(ctl + 8)
    n_kept = d_conv + n_window - 2
    step = 4 * n_channel
    strip = strip_of(n_channel, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n, width = ldi(s), ldi(s + 8), c1 - c0
        row = state + ldi(s + 16) * stride + 4 * c0
        for k in range(n_kept):
            enter_state(s, state, stride, k * step + 4 * c0, width)
        for t in range(n):
            for j in range(n_window):
                out = y + (first + t) * ldy + j * part + 4 * c0
                for k in range(d_conv):
                    time = t - n_kept + j + k
                    source = x + (first + time) * ldx + 4 * c0 if time >= 0 else row + (time + n_kept) * step
                    if k == 0:
                        _first_tap(out, source, w + 4 * c0, bias + 4 * c0, width)
                    else:
                        _next_tap(out, source, w + k * step + 4 * c0, width)
        for k in range(n_kept):  # ascending: a row is read before it is overwritten
            time = n + k - n_kept
            source = x + (first + time) * ldx + 4 * c0 if time >= 0 else row + (time + n_kept) * step
            copy_floats(source, row + k * step, width)
