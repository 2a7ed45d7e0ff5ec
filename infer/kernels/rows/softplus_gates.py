"""Gates of Laguna's attention: the softplus of a number for each head, or for each value."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import CHUNK, over_values, scale_row


@emit("i64,i64,i64->void")
def _gate_row(e, x, gate, n):
    """x *= softplus(gate)"""
    ty = Vec(F32, 16)

    def whole(o):
        e.store(e.b.fmul(e.softplus(e.load(ty, gate, o)), e.load(ty, x, o)), x, o)

    def single(o):
        factor = e.lane(e.softplus(e.splat(e.load(F32, gate, o), 4)), 0)
        e.store(e.b.fmul(factor, e.load(F32, x, o)), x, o)

    over_values(e, n, whole, single)


@emit("i64->f32")
def _softplus_at(e, gate):
    return e.lane(e.softplus(e.splat(e.load(F32, gate), 4)), 0)


@kernel
def softplus_gates(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, gate: Address, ldgate: Int, n_head: Int, n: Int, each: Int
):
    """x *= log(1 + exp(gate)). x f32 [tok][n_head][n], gate the same, or without `each` f32 [tok][n_head]."""
    n_tok = ldi(count)
    if each:
        per_row = (n_head * n + CHUNK - 1) // CHUNK
        for i in range(tid, n_tok * per_row, nth):
            t = i // per_row
            o = i % per_row * CHUNK
            _gate_row(x + t * ldx + 4 * o, gate + t * ldgate + 4 * o, min(CHUNK, n_head * n - o))
    else:
        for i in range(tid, n_tok * n_head, nth):
            t, h = i // n_head, i % n_head
            scale_row(x + t * ldx + 4 * h * n, n, _softplus_at(gate + t * ldgate + 4 * h))
