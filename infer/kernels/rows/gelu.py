"""GELU (Hendrycks & Gimpel 2016, arXiv:1606.08415) without a gate: exact (BERT), and by its tanh formula."""

from collections.abc import Callable
from typing import Any

from ..build.jit import kernel, variant
from ..emit.emitter import F32, Emitter, Value, Vec, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import CHUNK, gelu_by_tanh, over_values


def _make_row(function: Callable[[Emitter, Value], Value]) -> Any:
    def row(e, x, n):
        over_values(
            e,
            n,
            lambda o: e.store(function(e, e.load(Vec(F32, 16), x, o)), x, o),
            lambda o: e.store(e.lane(function(e, e.splat(e.load(F32, x, o), 4)), 0), x, o),
        )

    return emit("i64,i64->void")(row)


_gelu_row = _make_row(Emitter.gelu)


@kernel
def gelu(a, tid, nth, *, count: Address, x: Address, ldx: Int, n: Int):
    """x = gelu(x). Error: 4e-7 of max(1, |x|)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        o = i % per_row * CHUNK
        _gelu_row(x + i // per_row * ldx + 4 * o, min(CHUNK, n - o))


gelu_tanh = variant(gelu, "gelu_tanh", _gelu_row=_make_row(gelu_by_tanh))
