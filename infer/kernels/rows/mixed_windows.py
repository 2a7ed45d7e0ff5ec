"""The sum of a token's last inputs, whose taps the token changes itself, head by head (Inkling 2)."""

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from .elementwise import over_values


@emit("i64,i64,i64,i64,i64,i64,i64,i64,f32->void")
def _mix_head(e, x, part, w, ldw, more, out, n, n_window, scale):
    b = e.b

    def some(ty):
        def one(o):
            def tap(j, total):
                back = b.shl(b.sub(b.sub(n_window, const(I64, 1)), j), const(I64, 2))
                extra = b.fmul(e.load(F32, more, back), scale)
                extra = extra if ty is F32 else e.splat(extra, ty.count)
                factor = b.fadd(e.load(ty, e.at(w, b.mul(j, ldw)), o), extra)
                return [e.fma(factor, e.load(ty, e.at(x, b.mul(j, part)), o), total[0])]

            (total,) = e.loop(n_window, tap, [const(ty, 0.0)])
            e.store(total, out, o)

        return one

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@kernel
def mixed_windows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, part: Int, w: Address, more: Address, ldmore: Int,
    y: Address, ldy: Int, n_head: Int, n: Int, n_window: Int, scale: Float,
):  # fmt: skip
    """y[c] = sum_j (w[j][c] + scale more[head of c][n_window - 1 - j]) x[j][c], j ascending, one fma each.

    x, part  f32 [tok][n_window][n_head n], oldest first, as of `conv1d_windows`; `part` bytes from window to window
    w        f32 [n_window][n_head n]
    more     f32 [tok][head][n_window], newest first
    y        f32 [tok][n_head n], not x

    Reference: tests/reference/inkling.py. Error: 4e-7 of max(1, |y|).
    """
    for i in range(tid, ldi(count) * n_head, nth):
        t, h = i // n_head, i % n_head
        first = 4 * h * n
        _mix_head(
            x + t * ldx + first, part, w + first, 4 * n_head * n, more + t * ldmore + 4 * h * n_window,
            y + t * ldy + first, n, n_window, scale,
        )  # fmt: skip
