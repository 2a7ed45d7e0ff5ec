"""Inputs of lightning attention's scan, which is `mamba2_scan`: a head's values are x, its keys B, its queries C; the
decay is the same for every token. Qin et al. 2024, arXiv:2401.04658"""

from ..build.jit import kernel
from ..emit.emitter import Emitter, Value, emit, ldi
from ..emit.fields import Address, Int
from .states import each_group, load_lanes, store_lanes


@emit("i64,i64,i64->void")
def _silu(e: Emitter, x: Value, out: Value, n: Value) -> None:
    def some(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(x, o), left, 1)
        store_lanes(e, [e.sigmoid_times(v)], e.at(out, o), left)

    each_group(e, n, some)


@kernel
def lightning_inputs(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_head: Int, d: Int
):
    """out[t] = silu of the values of all heads, then of the keys, then of the queries: rows for `mamba2_scan`.

    count  of tokens
    x      f32 [tok][head][3][d]: query, key and value of every head
    out    f32 [tok][3][head][d], not x

    Reference: tests/reference/minimax.py. Error: 5e-7 of max(1, |out|).
    """
    for i in range(tid, ldi(count) * n_head, nth):
        t, h = i // n_head, i % n_head
        head, row = x + t * ldx + 12 * h * d, out + t * ldout + 4 * h * d
        for part in range(3):
            _silu(head + 4 * part * d, row + 4 * (2 - part) * n_head * d, d)
