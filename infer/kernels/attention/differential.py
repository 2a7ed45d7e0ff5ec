"""Differential attention: outputs of pairs of heads are subtracted. These kernels run before and after the attention.

The keys of a pair are stored as one head of 2 n values, as are its values: each query gets zeros in the half that
belongs to the other query's keys. Ye et al. 2024, arXiv:2410.05258.
"""

import numpy as np

from ..build.jit import kernel
from ..emit.emitter import ldi
from ..emit.fields import Address, Float, Int
from ..recurrent.states import copy_floats, zero_fill
from ..rows.elementwise import add_row

MINUS = np.float32(-1.0)


@kernel
def spread_pairs(a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_pair: Int, n: Int):
    """Pad queries with zeros: out[t][p] = [x[t][p][0], zeros], [zeros, x[t][p][1]].

    x    f32 [tok][n_pair][2][n]
    out  f32 [tok][n_pair][2][2 n]
    """
    half = 4 * n
    for i in range(tid, ldi(count) * n_pair, nth):
        t, p = i // n_pair, i % n_pair
        source, target = x + t * ldx + 2 * p * half, out + t * ldout + 4 * p * half
        copy_floats(source, target, n)
        zero_fill(target + half, 2 * n)
        copy_floats(source + half, target + 3 * half, n)


@kernel
def subtract_pairs(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_pair: Int, n: Int, factor: Float
):
    """out[t][p] = x[t][p][0] - factor * x[t][p][1], rounded once.

    x    f32 [tok][n_pair][2][n]
    out  f32 [tok][n_pair][n]
    """
    size = 4 * n
    for i in range(tid, ldi(count) * n_pair, nth):
        t, p = i // n_pair, i % n_pair
        source, target = x + t * ldx + 2 * p * size, out + t * ldout + p * size
        copy_floats(source, target, n)
        add_row(target, source + size, n, MINUS * factor)
