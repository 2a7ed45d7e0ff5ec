"""A sublayer on residual streams: it reads the sum of all gated streams; its result is added to each with a weight.
Streams are side by side: f32 [tok][stream][n]."""

from ..build.jit import kernel
from ..emit.emitter import F32, Emitter, Value, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from ..recurrent.states import sigmoid
from .elementwise import CHUNK, add_row, over_values, sigmoid_at

V16F = Vec(F32, 16)


@emit("i64,i64->void")
def _silu(e, x, n):
    """x = silu(x)"""

    def single(o):
        e.store(e.lane(e.sigmoid_times(e.splat(e.load(F32, x, o), 4)), 0), x, o)

    over_values(e, n, lambda o: e.store(e.sigmoid_times(e.load(V16F, x, o)), x, o), single)


@kernel
def silu_rows(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int):
    """x = silu(x)."""
    for t in range(tid, ldi(count), nth):
        _silu(x + t * ldx, n)


@emit("i64,i64,i64,i64,i64,i64->void")
def _mix(e: Emitter, x, gate, out, n_stream, step, n):
    """out = sum over streams of x * sigmoid(gate); streams `step` bytes apart."""

    def summed(o: Value, load, gated) -> Value:
        def one(s: Value, total: list[Value]) -> list[Value]:
            place = e.b.add(o, e.b.mul(s, step))
            return [e.b.fadd(total[0], gated(load(gate, place), load(x, place)))]

        return e.loop(n_stream, one, [const(load(x, o).type, 0.0)])[0]

    def whole(o):
        def load(p, place):
            return e.load(V16F, p, place)

        e.store(summed(o, load, lambda g, v: sigmoid(e, g, v)), out, o)

    def single(o):  # the same operations as for vectors
        def load(p, place):
            return e.splat(e.load(F32, p, place), 4)

        e.store(e.lane(summed(o, load, lambda g, v: sigmoid(e, g, v)), 0), out, o)

    over_values(e, n, whole, single)


@kernel
def mix_gated_streams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, gate: Address, ldgate: Int, out: Address, ldout: Int,
    n_stream: Int, n: Int,
):  # fmt: skip
    """out[t] = sum over streams s, ascending, of x[t][s] * sigmoid(gate[t][s]): f32 [tok][n].

    Reference: tests/reference/qwen4_exp.py. Error: 5e-7 of the sum of |x|.
    """
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        _mix(
            x + t * ldx + 4 * o, gate + t * ldgate + 4 * o, out + t * ldout + 4 * o, n_stream, 4 * n, min(CHUNK, n - o)
        )


@kernel
def inject_into_streams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, y: Address, ldy: Int, weights: Address, ldweights: Int,
    n_stream: Int, n: Int,
):  # fmt: skip
    """x[t][s] += 2 * sigmoid(weights[t][s]) * y[t]: y f32 [tok][n], weights f32 [tok][stream].

    Reference: tests/reference/qwen4_exp.py. Error: 3e-7 of |x| + 2 |y|.
    """
    for i in range(tid, ldi(count) * n_stream, nth):
        t, s = i // n_stream, i % n_stream
        weight = sigmoid_at(weights + t * ldweights + 4 * s)
        add_row(x + t * ldx + 4 * s * n, y + t * ldy, n, weight + weight)
