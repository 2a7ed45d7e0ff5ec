"""Scalar softmax, for few numbers: scores of experts or streams."""

import numpy as np

from ..build.jit import device
from ..emit.emitter import emit, ldf, stf

ZERO = np.float32(0.0)


@emit("f32->f32")
def exp_nonpositive(e, x):
    """exp(x) for x <= 0."""
    return e.lane(e.exp_nonpositive(e.splat(x, 4)), 0)


@device
def softmax(row, n):
    """Softmax of n scores in place; the sum in ascending order."""
    top = ldf(row)
    for j in range(1, n):
        top = max(top, ldf(row + 4 * j))
    total = ZERO
    for j in range(n):
        v = exp_nonpositive(ldf(row + 4 * j) - top)
        total += v
        stf(row + 4 * j, v)
    for j in range(n):
        stf(row + 4 * j, ldf(row + 4 * j) / total)
