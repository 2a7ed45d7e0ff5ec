"""The recurrences of RWKV. Peng et al. 2024, arXiv:2404.05892 (RWKV-6); Peng et al. 2025, arXiv:2503.14456 (RWKV-7).
Batch control, items and states: see states.py and head_scan.py; lanes are a head's values, depth its keys.

    RWKV-6    y = S^T r + (r . (u k)) v;    S = diag(w) S + k v^T      (RWKV-5: w is the same for all tokens)
    GLA       S = diag(w) S + k v^T;    y = scale S^T r      (gated linear attention, arXiv:2312.06635)
    RWKV-7    S = diag(w) S + k v^T - (kk a) (S^T kk)^T;    y = S^T r

Tokens are processed in sequence. In RWKV-7 a token's change of the state is known only after a whole pass over it, so
it is made in the next token's pass, and y = S^T (r w) + (r . k) v - (r . (kk a)) S^T kk, with the state before the
token, needs no extra pass: per token the state is read once and written once.
"""

from collections.abc import Sequence
from typing import Any

from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit
from ..emit.fields import Address, Counter, Fields, Float, Int, RowsAt
from .head_scan import head_scan
from .states import GROUP, each_group, load_lanes, store_lanes

ROW = Vec(F32, GROUP)


def _broadcast(e: Emitter, row: Value, i: Value) -> Value:
    return e.splat(e.load(F32, row, e.b.shl(i, const(I64, 2))), GROUP)


class _Lanes:
    """Addresses and rows for up to 16 lanes of a head and the tokens from row `first` on."""

    def __init__(self, e: Emitter, f: Fields, first: Value, head: Value, lane: Value, state: Value) -> None:
        self.e, self.f, self.first, self.state = e, f, first, state
        self.keys = e.b.mul(head, f.d)
        self.values, self.left = e.b.add(self.keys, lane), e.b.sub(f.d, lane)
        self.even = e.b.and_(f.d, const(I64, -2))

    def place(self, i: Value) -> Value:
        return self.e.at(self.state, self.e.b.shl(i, const(I64, 6)))

    def rows(self, name: str) -> RowsAt:
        return self.f.rows(name, self.first, self.keys, "ld")


def _make_lanes6(*, after: bool = False, constant: bool = False) -> Any:
    """Piece of RWKV-6; `after`: y uses the state after the token, without a bonus (GLA). `constant`: w is the same for
    all tokens (RWKV-5)."""

    def lanes(e: Emitter, a: Value, first: Value, n: Value, head: Value, lane: Value, state: Value) -> None:
        b, f = e.b, Fields(e, a, gla_scan if after else wkv5_scan if constant else wkv6_scan)
        it = _Lanes(e, f, first, head, lane, state)
        r, k = (it.rows(name) for name in "rk")
        w = e.at(f.w, b.shl(it.keys, const(I64, 2))) if constant else it.rows("w")
        v = f.rows("v", first, b.add(b.mul(b.sdiv(head, f.repeat), f.d), lane))
        y = f.rows("y", first, it.values)
        u = e.at(f.u, b.shl(it.keys, const(I64, 2))) if not after else None
        scale = e.splat(f.scale, GROUP) if after else None

        def token(t: Value, _: list[Value]) -> None:
            rrow, krow, wrow = r.at(t), k.at(t), w if constant else w.at(t)
            (value,) = load_lanes(e, v.at(t), it.left, 1)

            def product(o: Value, some: Value, sums: list[Value]) -> list[Value]:
                rv, kv, uv = (load_lanes(e, e.at(row, o), some, 1)[0] for row in (rrow, krow, u))
                return [e.fma(rv, b.fmul(uv, kv), sums[0])]

            def step(i: Value, seen: Value) -> Value:
                s = e.load(ROW, it.place(i))
                new = e.fma(_broadcast(e, wrow, i), s, b.fmul(_broadcast(e, krow, i), value))
                e.store(new, it.place(i))
                return e.fma(_broadcast(e, rrow, i), new if after else s, seen)

            def pair(i: Value, sums: list[Value]) -> list[Value]:
                return [step(i, sums[0]), step(b.add(i, const(I64, 1)), sums[1])]

            bonus = None
            if not after:
                (products,) = each_group(e, f.d, product, [const(ROW, 0.0)])
                bonus = e.splat(e.halving_sum(products), GROUP)
            seen, odd = e.loop(it.even, pair, [const(ROW, 0.0)] * 2, step=2)
            (seen,) = e.loop(f.d, lambda i, c: [step(i, c[0])], [seen], start=it.even)
            seen = b.fadd(seen, odd)
            out = b.fmul(scale, seen) if after else e.fma(bonus, value, seen)
            store_lanes(e, [out], y.at(t), it.left)

        e.loop(n, token)

    return emit("i64,i64,i64,i64,i64,i64->void")(lanes)


@emit("i64,i64,i64,i64,i64,i64->void")
def _lanes7(e, a, first, n, head, lane, state):
    b, f = e.b, Fields(e, a, wkv7_scan)
    it = _Lanes(e, f, first, head, lane, state)
    r, k, w, back, removed = (it.rows(name) for name in ("r", "k", "w", "rate", "kk"))
    v, y = f.rows("v", first, it.values, "ld"), f.rows("y", first, it.values)
    dots = f.rows("dots", first, b.mul(head, const(I64, 3)))

    def change(t: Value, i: Value, s: Value, value: Value, lost: Value) -> Value:
        """Row i (a key) of S after token t; `lost` is -S^T kk of the state before it."""
        s = b.fmul(_broadcast(e, w.at(t), i), s)
        s = e.fma(_broadcast(e, k.at(t), i), value, s)
        return e.fma(_broadcast(e, back.at(t), i), lost, s)

    def token(t: Value, before: Sequence[Value]) -> list[Value]:
        """Compute y of token t; returns its (value, lost) for `change`. `before`: the same of the previous token, whose
        change is pending, or ()."""
        rrow, lrow = r.at(t), removed.at(t)

        def step(i: Value, known: Value, seen: Value) -> tuple[Value, Value]:
            s = e.load(ROW, it.place(i))
            if before:
                s = change(b.sub(t, const(I64, 1)), i, s, *before)
                e.store(s, it.place(i))
            return e.fma(_broadcast(e, lrow, i), s, known), e.fma(_broadcast(e, rrow, i), s, seen)

        def pair(i: Value, sums: list[Value]) -> list[Value]:
            return [*step(i, *sums[:2]), *step(b.add(i, const(I64, 1)), *sums[2:])]

        sums = e.loop(it.even, pair, [const(ROW, 0.0)] * 4, step=2)
        known, seen = e.loop(f.d, lambda i, c: step(i, *c), sums[:2], start=it.even)
        lost, seen = b.fneg(b.fadd(known, sums[2])), b.fadd(seen, sums[3])
        (value,) = load_lanes(e, v.at(t), it.left, 1)
        rk, ra = (e.splat(e.load(F32, dots.at(t), 4 * j), GROUP) for j in range(2))
        store_lanes(e, [e.fma(ra, lost, e.fma(rk, value, seen))], y.at(t), it.left)
        return [value, lost]

    carried = e.loop(n, token, token(const(I64, 0), ()), start=1)
    last = b.sub(n, const(I64, 1))
    e.loop(f.d, lambda i, _: e.store(change(last, i, e.load(ROW, it.place(i)), *carried), it.place(i)))


@head_scan(_make_lanes6())
def wkv6_scan(
    *, ctl: Address, seg: Address, r: Address, k: Address, w: Address, ld: Int, v: Address, ldv: Int, u: Address,
    state: Address, stride: Int, y: Address, ldy: Int, n_head: Int, d: Int, repeat: Int = 1, counter: Counter,
):  # fmt: skip
    """Scan of RWKV-6 (see above).

    ctl, seg, counter  batch control
    r, k, w            f32 [tok][head][d]; w: factors of the state
    v                  f32 [tok][head / repeat][d]
    u                  f32 [head][d]
    state, stride      f32 [row][head][d / 16][d][16], read and written; bytes from row to row
    y                  f32 [tok][head][d], not an input
    repeat             number of neighbouring heads that share values

    Sums over d: even and odd channels separately, by fma in ascending order from 0, then the two sums; r . (u k) in 16
    lanes, halved at the end.
    Reference: tests/reference/rwkv.py. Error: 4e-7 of max(1, |y|, |S|).
    """


@head_scan(_make_lanes6(constant=True))
def wkv5_scan(
    *, ctl: Address, seg: Address, r: Address, k: Address, ld: Int, v: Address, ldv: Int, w: Address, u: Address,
    state: Address, stride: Int, y: Address, ldy: Int, n_head: Int, d: Int, repeat: Int = 1, counter: Counter,
):  # fmt: skip
    """Scan of RWKV-5: as `wkv6_scan`, but w is f32 [head][d]."""


@head_scan(_make_lanes6(after=True))
def gla_scan(
    *, ctl: Address, seg: Address, r: Address, k: Address, w: Address, ld: Int, v: Address, ldv: Int, scale: Float,
    state: Address, stride: Int, y: Address, ldy: Int, n_head: Int, d: Int, repeat: Int = 1, counter: Counter,
):  # fmt: skip
    """Scan of gated linear attention (see above). As `wkv6_scan`, without u; y is multiplied with `scale`."""


@head_scan(_lanes7)
def wkv7_scan(
    *, ctl: Address, seg: Address, r: Address, k: Address, v: Address, w: Address, rate: Address, kk: Address,
    ld: Int, dots: Address, lddots: Int, state: Address, stride: Int, y: Address, ldy: Int, n_head: Int, d: Int,
    counter: Counter,
):  # fmt: skip
    """Scan of RWKV-7 (see above) on the results of `wkv7_prepare`.

    ctl, seg, counter  batch control
    r, k, v, w, kk     f32 [tok][head][d]; r is already multiplied with w
    rate               f32 [tok][head][d]: kk a
    dots               f32 [tok][head][3]: r . k, r . (kk a), and a value not read here
    state, stride      f32 [row][head][d / 16][d][16], read and written; bytes from row to row
    y                  f32 [tok][head][d], not an input

    Sums over d: even and odd channels separately, by fma in ascending order from 0, then the two sums.
    Reference: tests/reference/rwkv.py. Error: 4e-7 of max(1, |y|, |S|).
    """
