"""Gated RMS norm of groups of a row's values, used between a scan and the projection after it."""

from typing import Any

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Fields, Float, Int
from ..recurrent.states import GROUP, each_group, load_lanes, sigmoid, store_lanes


def _norm_group(gate: str) -> Any:
    """Piece for one group of a token; gate: '', 'before' or 'after' the norm. Squares are summed in 16 lanes, halved at
    the end."""

    def norm_group(e: Emitter, a: Value, t: Value, g: Value) -> None:
        b, f, ty, zero = e.b, Fields(e, a, gated_norm), Vec(F32, GROUP), const(I64, 0)
        first = b.mul(g, f.n)
        y, z, out = (f.rows(name, t, first).at(zero) for name in ("y", "z", "out"))
        weight = e.at(f.weight, b.mul(g, f.stride))
        is_sigmoid = b.icmp_signed("!=", f.by_sigmoid, zero)

        def act(o: Value, left: Value) -> Value:
            (v,) = load_lanes(e, e.at(z, o), left, 1)
            return sigmoid(e, v, b.select(is_sigmoid, const(ty, 1.0), v))

        def square(o: Value, left: Value, sums: list[Value]) -> list[Value]:
            (v,) = load_lanes(e, e.at(y, o), left, 1)
            if gate == "before":
                v = b.fmul(v, act(o, left))
            store_lanes(e, [v], e.at(out, o), left)
            return [e.fma(v, v, sums[0])]

        def scale(o: Value, left: Value, _: list[Value]) -> None:
            (v,), (w,) = load_lanes(e, e.at(out, o), left, 1), load_lanes(e, e.at(weight, o), left, 1)
            v = b.fmul(b.fmul(v, factor), w)
            store_lanes(e, [b.fmul(v, act(o, left)) if gate == "after" else v], e.at(out, o), left)

        (sums,) = each_group(e, f.n, square, [const(ty, 0.0)])
        mean = b.fdiv(e.halving_sum(sums), b.sitofp(f.n, F32))
        factor = e.splat(b.fdiv(const(F32, 1.0), e.intr("sqrt", b.fadd(mean, f.eps))), GROUP)
        each_group(e, f.n, scale)

    return emit("i64,i64,i64->void")(norm_group)


norm_only, gate_then_norm, norm_then_gate = _norm_group(""), _norm_group("before"), _norm_group("after")


@kernel
def gated_norm(
    a, tid, nth, *, count: Address, y: Address, ldy: Int, z: Address = 0, ldz: Int, weight: Address, stride: Int,
    out: Address, ldout: Int, n_group: Int, n: Int, eps: Float, norm_first: Int = 0, by_sigmoid: Int = 0,
):  # fmt: skip
    """RMS norm of every group of a row, gated. Zhang & Sennrich 2019, arXiv:1910.07467; Dao & Gu 2024.

        norm_first = 0    out = norm(y * act(z)) * weight       Mamba-2
        norm_first = 1    out = norm(y) * weight * act(z)       delta rule
        norm(v) = v / sqrt(mean(v^2) + eps) over the n values of a group

    count           of tokens
    y               f32 [tok][group][n]
    z               f32 [tok][group][n]; 0: no gate
    weight, stride  f32 [n] per group, `stride` bytes apart (0: the same for all)
    out             f32 [tok][group][n]; may be y, not z
    by_sigmoid      act is the sigmoid; otherwise SiLU

    Reference: tests/reference/recurrent.py. Error: 5e-7 of max(1, |out|).
    """
    for i in range(tid, ldi(count) * n_group, nth):
        t, g = i // n_group, i % n_group
        if z == 0:
            norm_only(a, t, g)
        elif norm_first == 0:
            gate_then_norm(a, t, g)
        else:
            norm_then_gate(a, t, g)
