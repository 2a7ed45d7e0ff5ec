"""Scan of RWKV-4, whose state is three values for every channel. Peng et al. 2023, arXiv:2305.13048. Batch control,
items and states: see states.py.

    y = (a + exp(u + k) v) / (b + exp(u + k));    a = exp(w) a + exp(k) v;    b = exp(w) b + exp(k)

a and b are kept as multiples of exp(m), m = max(m' + w, k) with the previous m', so that no exponential overflows.
"""

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Counter, Fields, Int
from .states import GROUP, enter_state, load_lanes, next_part, store_lanes, strip_of

TILE = 16  # tokens of a tile
DEPTH = 3  # values of a channel: a, b, m
LOWEST = -1e38  # m before the first token
ROW = Vec(F32, GROUP)


@emit("i64,i64,i64,i64,i64,i64->void")
def _channels(e, a, u, c, left, state, m):
    """m tokens from row u for channels c .. c + 15, of which the first `left` exist."""
    b, f, column = e.b, Fields(e, a, wkv4_scan), e.b.shl(c, const(I64, 2))
    k, v, y = (f.rows(name, u, c) for name in "kvy")
    bonus, decay = e.load(ROW, f.u, column), e.load(ROW, f.w, column)

    def weights(most: Value, other: Value) -> tuple[Value, Value, Value]:
        """The larger exponent, and the exponentials of both minus it."""
        top = b.select(b.fcmp_ordered("<", most, other), other, most)
        return top, e.exp_nonpositive(b.fsub(most, top)), e.exp_nonpositive(b.fsub(other, top))

    def token(t: Value, kept: list[Value]) -> list[Value]:
        total, count, most = kept
        (key,), (value,) = load_lanes(e, k.at(t), left, 1), load_lanes(e, v.at(t), left, 1)
        _, old, own = weights(most, b.fadd(bonus, key))
        out = b.fdiv(e.fma(old, total, b.fmul(own, value)), e.fma(old, count, own))
        store_lanes(e, [out], y.at(t), left)
        most, old, own = weights(b.fadd(most, decay), key)
        return [e.fma(old, total, b.fmul(own, value)), e.fma(old, count, own), most]

    total, count, most = (e.load(ROW, state, 4 * GROUP * i) for i in range(DEPTH))
    # b is at least 1 after every token
    most = b.select(b.fcmp_ordered("==", count, const(ROW, 0.0)), const(ROW, LOWEST), most)
    for i, value in enumerate(e.loop(m, token, [total, count, most])):
        e.store(value, state, 4 * GROUP * i)


@kernel
def wkv4_scan(
    a, tid, nth, *, ctl: Address, seg: Address, k: Address, ldk: Int, v: Address, ldv: Int, u: Address, w: Address,
    state: Address, stride: Int, y: Address, ldy: Int, n_channel: Int, counter: Counter,
):  # fmt: skip
    """Scan of RWKV-4 (see above).

    ctl, seg, counter  batch control
    k, v               f32 [tok][n_channel]; y may be one of them
    u, w               f32 [n_channel rounded up to 16]; w, the logarithm of a decay, is at most 0
    state, stride      f32 [row][n_channel / 16][3][16], read and written; bytes from row to row
    y                  f32 [tok][n_channel]

    Reference: tests/reference/rwkv.py. Error: 5e-6 of max(1, |y|) for keys of up to 12: m is rounded for
    every token.
    """
    n_seg = ldi(ctl + 8)
    strip = strip_of(n_channel, n_seg, nth, 512)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n_channel, strip, seg, n_seg, c0, c1, s)
        if c0 == n_channel:
            break
        first, n, row = ldi(s), ldi(s + 8), state + ldi(s + 16) * stride
        enter_state(s, state, stride, 4 * DEPTH * c0, (c1 - c0 + GROUP - 1) // GROUP * GROUP * DEPTH)
        for t in range(0, n, TILE):
            for c in range(c0, c1, GROUP):
                _channels(a, first + t, c, c1 - c, row + 4 * DEPTH * c, min(TILE, n - t))
