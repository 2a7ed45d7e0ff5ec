"""Rotary positions on three axes (M-RoPE, Wang et al. 2024, arXiv:2409.12191): time, row and column of a picture's
tokens. Every pair of a head rotates with the position on one of the axes. In text all three are equal."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel
from ..emit.emitter import ldf, ldi, stf
from ..emit.fields import Address, Int

N_AXES = 3


def axes_of(sections: Sequence[int], half: int, *, interleaved: bool) -> npt.NDArray[np.int64]:
    """The axis of each of `half` pairs: 0 time, 1 row, 2 column.

    sections: number of pairs of each axis. interleaved: pairs 1, 4, 7... are of rows and 2, 5, 8... of columns, as many
    as their sections say, the rest of time; otherwise the sections follow each other, and repeat.
    """
    axes = np.zeros(half, np.int64)
    if interleaved:
        for axis in (1, 2):
            axes[axis : min(half, N_AXES * sections[axis]) : N_AXES] = axis
        return axes
    order = np.repeat(np.arange(len(sections)), sections)
    return np.where((axes := np.resize(order, half)) < N_AXES, axes, 0) if len(order) else axes


@kernel
def pick_turns(
    a, tid, nth, *, count: Address, positions: Address, stride: Int, axes: Address, table: Address, out: Address,
    half: Int,
):  # fmt: skip
    """out[t][j] = table[positions[axes[j]][t]][j]: the rotations of each token, to be read with its index as position.

    positions  i64 [3][stride bytes]: of each token on each axis
    axes       i64 [half]
    table      f32 [n_ctx][half][2]: see `rope_table`
    out        f32 [count][half][2]
    """
    for t in range(tid, ldi(count), nth):
        for j in range(half):
            row = ldi(positions + ldi(axes + 8 * j) * stride + 8 * t)
            source, target = table + (row * half + j) * 8, out + (t * half + j) * 8
            stf(target, ldf(source))
            stf(target + 4, ldf(source + 4))
