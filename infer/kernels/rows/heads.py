"""Products with one matrix per head, computed like mixtures of experts: heads take the place of experts, and every
token goes to all heads. Also the gates of heads.

The columns of a head are consecutive and begin at a multiple of the tile's width: token t of head h is column
h * round_up(tokens, width) + t. Columns in between are unused.
"""

from ..build.jit import device, kernel
from ..emit.emitter import ldi, sti
from ..emit.fields import Address, Int
from ..recurrent.states import copy_floats, zero_fill
from .elementwise import scale_row, sigmoid_at


@device
def rounded(n, width):
    return (n + width - 1) // width * width


@kernel
def head_groups(a, tid, nth, *, count: Address, n_head: Int, width: Int, groups: Address):
    """Write the groups of columns, one per head. One thread.

    count   of tokens
    groups  written: see gemv.py
    """
    if tid != 0:
        return
    n_tok = ldi(count)
    sti(groups, n_head)
    for h in range(n_head):
        group = groups + 8 + 24 * h
        sti(group, h)
        sti(group + 8, h * rounded(n_tok, width))
        sti(group + 16, n_tok)


@kernel
def split_heads(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_head: Int, n: Int, stride: Int,
    width: Int,
):  # fmt: skip
    """out[column of t and h] = n values of x[t] at byte h * stride."""
    n_tok = ldi(count)
    for i in range(tid, n_tok * n_head, nth):
        t, h = i // n_head, i % n_head
        column = h * rounded(n_tok, width) + t
        copy_floats(x + t * ldx + h * stride, out + column * ldout, n)


@kernel
def join_heads(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_head: Int, n: Int, stride: Int,
    width: Int, gate: Address = 0, ldgate: Int = 0,
):  # fmt: skip
    """The inverse of `split_heads`, then out *= sigmoid(gate). gate: f32 [tok][head]; 0: none."""
    n_tok = ldi(count)
    for i in range(tid, n_tok * n_head, nth):
        t, h = i // n_head, i % n_head
        column, target = h * rounded(n_tok, width) + t, out + t * ldout + h * stride
        copy_floats(x + column * ldx, target, n)
        if gate:
            scale_row(target, n, sigmoid_at(gate + t * ldgate + 4 * h))


@kernel
def pad_heads(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, out: Address, ldout: Int, n_head: Int, n: Int, width: Int
):
    """out[t][h] = x[t][h], then zeros: x f32 [tok][head][n], out f32 [tok][head][width]."""
    for i in range(tid, ldi(count) * n_head, nth):
        t, h = i // n_head, i % n_head
        target = out + t * ldout + 4 * h * width
        copy_floats(x + t * ldx + 4 * h * n, target, n)
        zero_fill(target + 4 * n, width - n)


@kernel
def gate_heads(a, tid, nth, *, count: Address, x: Address, ldx: Int, gate: Address, ldgate: Int, n_head: Int, n: Int):
    """x[t][h] *= sigmoid(gate[t][h]): x f32 [tok][head][n], gate f32 [tok][head]."""
    for i in range(tid, ldi(count) * n_head, nth):
        t, h = i // n_head, i % n_head
        scale_row(x + t * ldx + 4 * h * n, n, sigmoid_at(gate + t * ldgate + 4 * h))
