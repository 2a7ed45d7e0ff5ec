"""Asks the system for the pages of experts that the next products read, for models larger than the memory.

Without it every product waits for its pages one after the other. All requests at once keep the disk busy.
"""

from ..build.jit import kernel
from ..emit.emitter import I32, const, emit, ldi
from ..emit.fields import Address, Int

PIECE = 128 << 10  # bytes per request: Linux reads no more of one than the device's read-ahead, usually 128 KB
WILLNEED = 3  # MADV_WILLNEED of Linux and macOS


@emit("i64,i64->void")
def _will_need(e, address, nbytes):
    e.call("madvise", I32, address, nbytes, const(I32, WILLNEED))


@kernel
def fetch_experts(a, tid, nth, *, groups: Address, w: Address, expert_stride: Int, page: Int):
    """Asks for the matrices of all used experts of a stack.

    groups  i64 [0] number of groups, then per group: expert, first column, number of columns
    w       the stack, expert_stride bytes per expert
    page    bytes of a page of memory: madvise(2) takes only addresses that are a multiple
    """
    n_pieces = (expert_stride + PIECE - 1) // PIECE
    for i in range(tid, ldi(groups) * n_pieces, nth):
        begin = w + ldi(groups + 8 + i // n_pieces * 24) * expert_stride
        first = begin + i % n_pieces * PIECE
        _will_need(first // page * page, min(PIECE, begin + expert_stride - first) + first % page)
