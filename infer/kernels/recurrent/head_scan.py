"""Template of scans whose state is a matrix for every head. Batch control, items and states: see states.py.

A thread takes a block of heads of a segment. For each tile of tokens it computes all heads of the block, `strip` lanes
of a head at a time.
"""

from collections.abc import Callable
from typing import Any

from ..build.jit import Kernel
from ..build.kernel import with_globals
from ..emit.emitter import ldi
from ..emit.fields import Address, Counter, Int
from .states import GROUP, block_of, enter_state, next_part

TILE = 64  # tokens of a tile


def lanes_piece(a, first, n, head, lane, state):  # replaced in every variant
    raise NotImplementedError


STRIP = GROUP


def scan_heads(
    a, tid, nth, *, ctl: Address, seg: Address, state: Address, stride: Int, n_head: Int, width: Int, depth: Int,
    counter: Counter,
):  # fmt: skip
    """The template of these scans. state f32 [row][head][width / 16][depth][16], rows `stride` bytes apart."""
    n_seg = ldi(ctl + 8)
    head_bytes = 4 * ((width + GROUP - 1) // GROUP * GROUP) * depth
    block = block_of(n_head, n_seg, nth)
    h0 = h1 = s = 0
    while True:
        h0, h1, s = next_part(counter, n_head, block, seg, n_seg, h0, h1, s)
        if h0 == n_head:
            break
        first, n, row = ldi(s), ldi(s + 8), state + ldi(s + 16) * stride
        enter_state(s, state, stride, h0 * head_bytes, (h1 - h0) * head_bytes // 4)
        for t in range(0, n, TILE):
            for head in range(h0, h1):
                for lane in range(0, width, STRIP):
                    part = row + head * head_bytes + 4 * lane * depth
                    lanes_piece(a, first + t, min(TILE, n - t), head, lane, part)


def head_scan(
    lanes: Any, *, width: str = "d", depth: str = "d", strip: int = GROUP
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a scan kernel: @head_scan(lanes) on a function without a body that declares the fields of the records.

    lanes(record, first token, number of tokens, head, first lane, address of its part of the state) does the work.
    width, depth: names of the fields with the number of a head's lanes and of its state's rows.
    """

    def scan(declaration: Callable[..., Any]) -> Kernel:
        template = with_globals(scan_heads, declaration.__name__, {"lanes_piece": lanes, "STRIP": strip})
        return Kernel(template, declaration=declaration, names={"width": width, "depth": depth})

    return scan
