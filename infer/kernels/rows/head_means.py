"""Means of queries and their keys, added to both."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import over_values


@emit("i64,i64,i64,i64,i64,i64,i64->void")
def _group(e, q, k, out_q, out_k, n_rep, step, n):
    """`add_head_means` of the n_rep query heads, `step` bytes apart, that share one key head."""
    b = e.b

    def some(ty):
        def one(o):
            key = e.load(ty, k, o)

            def head(r, total):
                at = b.add(o, b.mul(r, step))
                mean = b.fmul(b.fadd(e.load(ty, q, at), key), const(ty, 0.5))
                e.store(b.fadd(e.load(ty, out_q, at), mean), out_q, at)
                return [b.fadd(total[0], mean)]

            (total,) = e.loop(n_rep, head, [const(ty, 0.0)])
            count = b.sitofp(n_rep, F32)
            mean = b.fdiv(total, e.splat(count, 16) if ty is not F32 else count)
            e.store(b.fadd(e.load(ty, out_k, o), mean), out_k, o)

        return one

    over_values(e, n, some(Vec(F32, 16)), some(F32))


@kernel
def add_head_means(
    a, tid, nth, *, count: Address, q: Address, ldq: Int, k: Address, ldk: Int, out_q: Address, ldout_q: Int,
    out_k: Address, ldout_k: Int, n_head: Int, n_kv: Int, d_head: Int,
):  # fmt: skip
    """out_q[h] += m[h], the mean of query h and its key; out_k[g] += the mean of m over the queries that share key g,
    summed in ascending order.

    q, out_q  f32 [tok][n_head][d_head]
    k, out_k  f32 [tok][n_kv][d_head]
    """
    n_rep, step = n_head // n_kv, 4 * d_head
    for i in range(tid, ldi(count) * n_kv, nth):
        t, g = i // n_kv, i % n_kv
        wide = g * n_rep * step
        _group(
            q + t * ldq + wide, k + t * ldk + g * step, out_q + t * ldout_q + wide, out_k + t * ldout_k + g * step,
            n_rep, step, d_head,
        )  # fmt: skip
