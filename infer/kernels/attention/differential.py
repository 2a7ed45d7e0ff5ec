"""Around the attention of pairs of heads whose outputs are subtracted: queries laid out for it, and the difference.

Keys of a pair are one head of 2 d values, and so are its values: each query takes its half of the keys' head, with
zeros in the other half. Ye et al. 2024, arXiv:2410.05258.
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
    """out[t][p] = [x[t][p][0], zeros], [zeros, x[t][p][1]].

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
