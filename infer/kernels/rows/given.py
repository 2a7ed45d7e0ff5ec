"""Rows given from outside for some tokens of a batch: the features of pictures."""

from ..build.jit import kernel
from ..emit.emitter import ldf, ldi, stf
from ..emit.fields import Address, Float, Int
from ..recurrent.states import copy_floats


@kernel
def given_rows(
    a, tid, nth, *, count: Address, given: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int,
    scale: Float = 1.0,
):  # fmt: skip
    """out[t] = scale * x[t] for the tokens with given[t] != 0; the other rows stay. given i64 [count]; x, out f32."""
    for t in range(tid, ldi(count), nth):
        if ldi(given + 8 * t):
            if scale == 1.0:
                copy_floats(x + t * ldx, out + t * ldout, n)
            else:
                for k in range(n):
                    stf(out + t * ldout + 4 * k, ldf(x + t * ldx + 4 * k) * scale)


@kernel
def add_given_rows(
    a, tid, nth, *, count: Address, given: Address, x: Address, ldx: Int, out: Address, ldout: Int, n: Int
):
    """out[t] += x[t] for the tokens with given[t] != 0. given i64 [count]; x, out f32."""
    for t in range(tid, ldi(count), nth):
        if ldi(given + 8 * t):
            for k in range(n):
                o = out + t * ldout + 4 * k
                stf(o, ldf(o) + ldf(x + t * ldx + 4 * k))
