"""Layer norm with a bias. Ba et al. 2016, arXiv:1607.06450"""

from ..build.jit import kernel
from ..emit.emitter import F32, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import GROUP, each_group, load_lanes, store_lanes
from .elementwise import add_row

V16F = Vec(F32, GROUP)


def centre(e: Emitter, x: Value, out: Value, n: Value, eps: Value) -> Value:
    """out = x - mean(x), n values; returns 1 / sqrt(mean(out^2) + eps) in 16 lanes. Sums in 16 lanes, halved at the
    end. out may be x."""
    b = e.b

    def add(o: Value, left: Value, sums: list[Value]) -> list[Value]:
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        return [b.fadd(sums[0], v)]

    (sums,) = each_group(e, n, add, [const(V16F, 0.0)])
    size = b.sitofp(n, F32)
    mean = e.splat(b.fdiv(e.halving_sum(sums), size), GROUP)

    def square(o: Value, left: Value, sums: list[Value]) -> list[Value]:
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        store_lanes(e, [b.fsub(v, mean)], e.at(out, o), left)
        (v,) = load_lanes(e, e.at(out, o), left, 1)  # again, so that missing lanes are 0, not -mean
        return [e.fma(v, v, sums[0])]

    (squares,) = each_group(e, n, square, [const(V16F, 0.0)])
    variance = b.fdiv(e.halving_sum(squares), size)
    return e.splat(b.fdiv(const(F32, 1.0), e.intr("sqrt", b.fadd(variance, eps))), GROUP)


@emit("i64,i64,i64,i64,i64,f32->void")
def _layer_norm_row(e, x, weight, bias, out, n, eps):
    factor = centre(e, e.ptr(x), e.ptr(out), n, eps)

    def scale(o: Value, left: Value, _: list[Value]) -> None:
        v, w, c = (load_lanes(e, e.at(address, o), left, 1)[0] for address in (out, weight, bias))
        store_lanes(e, [e.fma(e.b.fmul(v, factor), w, c)], e.at(out, o), left)

    each_group(e, n, scale)


@kernel
def layer_norm(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, residual: Address = 0, ldresidual: Int, weight: Address,
    bias: Address, out: Address, ldout: Int, n: Int, eps: Float, index: Address = 0, scale: Float = 1.0,
):  # fmt: skip
    """x += scale * residual, then out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.

    weight and bias f32 [n], the others as in `rms_norm`. out may be x if there is no index.
    Reference: tests/unit/infer/kernels/rows/test_layer_norm.py. Error: 5e-7 of max(1, |out|).
    """
    for t in range(tid, ldi(count), nth):
        row = ldi(index + 8 * t) if index else t
        if residual:
            add_row(x + row * ldx, residual + row * ldresidual, n, scale)
        _layer_norm_row(x + row * ldx, weight, bias, out + t * ldout, n, eps)
