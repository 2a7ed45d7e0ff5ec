"""Scans whose state is a matrix for every head: which heads, lanes and tokens pass together. Batch control, items and
states: see recurrent.py.

A thread takes a block of heads of a segment. Tokens pass in tiles, all heads of the block tile by tile,
and `strip` lanes of a head at a time.
"""

from typing import Any

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import arg, ldi
from .states import GROUP, block_of, enter_state, next_part

TILE = 64  # tokens of a tile


def lanes_piece(a, first, n, head, lane, state):  # replaced in every variant, as are the fields of the op record
    raise NotImplementedError


CTL = SEG = STATE = STRIDE = N_HEAD = WIDTH = DEPTH = CTR = STRIP = 0


@kernel
def scan_heads(a, tid, nth):
    """state: f32 [row][head][width / 16][depth][16], read and written; stride of rows in bytes."""
    n_seg, n_head, width, depth, ctr = ldi(arg(a, CTL) + 8), arg(a, N_HEAD), arg(a, WIDTH), arg(a, DEPTH), arg(a, CTR)
    base, stride = arg(a, STATE), arg(a, STRIDE)
    head_bytes = 4 * ((width + GROUP - 1) // GROUP * GROUP) * depth
    block = block_of(n_head, n_seg, nth)
    h0 = h1 = s = 0
    while True:
        h0, h1, s = next_part(ctr, n_head, block, arg(a, SEG), n_seg, h0, h1, s)
        if h0 == n_head:
            break
        first, n, row = ldi(s), ldi(s + 8), base + ldi(s + 16) * stride
        enter_state(s, base, stride, h0 * head_bytes, (h1 - h0) * head_bytes // 4)
        for t in range(0, n, TILE):
            for head in range(h0, h1):
                for lane in range(0, width, STRIP):
                    state = row + head * head_bytes + 4 * lane * depth
                    lanes_piece(a, first + t, min(TILE, n - t), head, lane, state)


def head_scan(name: str, fields: str, lanes: Any, *, width: str = "d", depth: str = "d", strip: int = GROUP) -> Kernel:
    """A kernel over records of `fields` ('ctl seg ... state stride ... n_head ... ctr').

    lanes(record, first token, number of tokens, head, first lane, address of its part of the state) does the work.
    width, depth: the fields with a head's lanes, and with the rows of its state.
    """
    place = fields.split().index
    return variant(
        scan_heads,
        name,
        lanes_piece=lanes,
        CTL=place("ctl"),
        SEG=place("seg"),
        STATE=place("state"),
        STRIDE=place("stride"),
        N_HEAD=place("n_head"),
        WIDTH=place(width),
        DEPTH=place(depth),
        CTR=place("ctr"),
        STRIP=strip,
    )
