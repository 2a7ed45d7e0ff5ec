"""Shared by the recurrent kernels: batch control, states, work items, and loads and stores of rows.

Batch control:

    ctl      i64 [3]         number of tokens, of segments, of outputs
    seg      i64 [n_seg][4]  first token, number of tokens, row of the state after them, row of the state before them
                             (tokens of one sequence, in order; row before -1: the sequence begins, its state is 0)
    counter  i64             the next work item; zero before each run

The two rows may be the same. Otherwise the row before stays unchanged, which costs a copy: so states are kept, shared
and restored. A segment whose row before is the row after of the previous segment continues that segment (one sequence,
a state kept after every piece); one thread computes a segment and all segments that continue it.

Rows are f32 [tok][ld bytes]. An item is a strip of channels, or a block of heads, of one segment. A channel gets the
same operations in the same order whatever the width of a vector, the strip, or the split of its tokens into calls.

A state is f32 [head][lane / 16][depth][16]: 16 lanes side by side, the last group of a head padded. A kernel computes
lanes independently of one another and sums over depth:

    Mamba-1      1 head, lanes = channels, depth = d_state
    Mamba-2      lanes = d_head, depth = d_state
    delta rule   lanes = d_v, depth = d_k
    RG-LRU       1 head, lanes = channels, depth = 1
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..build.jit import device
from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Emitter, Value, Vec, atomic_add, const, emit, ldi, stf

GROUP = 16  # lanes side by side in a state
MIN_STRIP = 64  # minimum channels of an item
ZERO = np.float32(0.0)

F32Array = npt.NDArray[np.float32]


# --- layouts ----------------------------------------------------------------------------------------------------------
def n_groups(n_lane: int) -> int:
    """Number of groups of 16 lanes, the last one padded."""
    return -(-n_lane // GROUP)


def state_shape(n_head: int, n_lane: int, depth: int) -> tuple[int, int, int, int]:
    """Shape of one sequence's state: [head][lane / 16][depth][16]."""
    return n_head, n_groups(n_lane), depth, GROUP


def arrange_heads(a: npt.ArrayLike) -> F32Array:
    """f32 [head, lane, depth] -> [head, lane / 16, depth, 16]; missing lanes are zero."""
    source = np.asarray(a, dtype=np.float32)
    n_head, n_lane, depth = source.shape
    padded = np.zeros((n_head, n_groups(n_lane) * GROUP, depth), np.float32)
    padded[:, :n_lane] = source
    return np.ascontiguousarray(padded.reshape(n_head, -1, GROUP, depth).transpose(0, 1, 3, 2))


def restore_heads(arranged: npt.ArrayLike, n_lane: int) -> F32Array:
    """Inverse of `arrange_heads`: [head, lane / 16, depth, 16] -> [head, lane, depth]."""
    source = np.asarray(arranged, dtype=np.float32)
    n_head, _, depth, _ = source.shape
    return np.ascontiguousarray(source.transpose(0, 1, 3, 2).reshape(n_head, -1, depth)[:, :n_lane])


def pad_channels(a: npt.ArrayLike) -> F32Array:
    """f32 [channel] -> [channel rounded up to 16], zeros appended."""
    source = np.asarray(a, dtype=np.float32)
    padded = np.zeros(n_groups(source.shape[0]) * GROUP, np.float32)
    padded[: source.shape[0]] = source
    return padded


# --- items ------------------------------------------------------------------------------------------------------------
@device
def strip_of(n_channel, n_item, nth, most):
    """Channels of a strip, a multiple of 16: about four items per thread, between MIN_STRIP and `most`."""
    share = n_channel * n_item // (4 * nth)
    return (min(max(share, MIN_STRIP), most) + GROUP - 1) // GROUP * GROUP


@device
def block_of(n_head, n_seg, nth):
    """Heads of an item: about eight items per thread. All heads take one tile of tokens, then the next: with a whole
    long segment per head, every row would be on a page that has left the TLB."""
    return max(1, min(n_head, n_head * n_seg // (8 * nth)))


@device
def zero_fill(address, n):
    """Set n floats at `address` to zero."""
    for i in range(n):
        stf(address + 4 * i, ZERO)


@device
def continues(seg, s):
    """Whether the segment at address `s` continues the previous one (see above); `seg`: address of the first."""
    return s > seg and ldi(s + 24) >= 0 and ldi(s + 24) == ldi(s - 16)


@device
def next_part(ctr, n, size, seg, n_seg, i0, i1, s):
    """(i0, i1, s): the caller's next work, channels or heads i0 .. i1 - 1 of `n` and the segment at address s.

    This is the segment after `s` if it continues `s`, else the next untaken item of `size` channels or heads. Begin
    with s = 0; i0 = n if nothing is left.
    """
    following = s + 32
    if s != 0 and following < seg + 32 * n_seg and continues(seg, following):
        return i0, i1, following
    n_item = (n + size - 1) // size * n_seg
    while True:
        i = atomic_add(ctr, 1)
        if i >= n_item:
            return n, n, seg
        place = seg + 32 * (i % n_seg)
        if not continues(seg, place):
            first = i // n_seg * size
            return first, min(n, first + size), place


@emit("i64,i64,i64->void")
def copy_floats(e, source, target, n):
    def body(width: int) -> Callable[[Value, list[Value]], None]:
        return lambda i, _: e.store(e.load(Vec(F32, width), source, i), target, i)

    size = e.b.shl(n, const(I64, 2))
    wide = e.b.and_(size, const(I64, -4 * GROUP))
    e.loop(wide, body(GROUP), step=4 * GROUP)
    e.loop(size, body(1), start=wide, step=4)


@device
def enter_state(s, base, stride, offset, n):
    """Copy n floats at byte `offset` from the row before segment `s` to the row after it; zeros if the sequence begins.
    The rows begin at `base`."""
    after, before = ldi(s + 16), ldi(s + 24)
    if before < 0:
        zero_fill(base + after * stride + offset, n)
    elif before != after:
        copy_floats(base + before * stride + offset, base + after * stride + offset, n)


# --- in the emitter ---------------------------------------------------------------------------------------------------
def optional(e: Emitter, ty: Any, address: Value, offset: Value) -> Value:
    """Load a `ty` at `address` + `offset` bytes; zeros if the address is 0."""
    nothing = e.stack(ty)
    e.store(const(ty, 0.0), nothing)
    none = e.b.icmp_signed("==", address, const(I64, 0))
    return e.load(ty, e.b.select(none, nothing, e.at(address, offset)))


def sigmoid(e: Emitter, x: Value, numerator: Value | None = None) -> Value:
    """1 / (1 + exp(-x)), or numerator / (1 + exp(-x)). NaN stays NaN."""
    b, ty = e.b, x.type
    power = e.exp2(e.at_most(b.fmul(x, const(ty, -LOG2E)), 126.0))
    return b.fdiv(const(ty, 1.0) if numerator is None else numerator, b.fadd(const(ty, 1.0), power))


def load_lanes(e: Emitter, pointer: Value, n: Value, groups: int) -> list[Value]:
    """Load the first n floats of `groups` vectors of 16; the others are zero."""
    b, ty = e.b, Vec(F32, GROUP)
    missing = b.icmp_signed("<", n, const(I64, GROUP * groups))
    slot = e.stack(ty, groups)
    with b.if_else(missing) as (partly, wholly):
        with partly:
            for g in range(groups):
                e.store(const(ty, 0.0), slot, 4 * GROUP * g)
            e.loop(b.shl(n, const(I64, 2)), lambda o, _: e.store(e.load(F32, pointer, o), slot, o), step=4)
            some = [e.load(ty, slot, 4 * GROUP * g) for g in range(groups)]
            after_some = b.block
        with wholly:
            full = [e.load(ty, pointer, 4 * GROUP * g) for g in range(groups)]
            after_full = b.block
    merged = []
    for one, other in zip(some, full, strict=True):
        phi = b.phi(ty)
        phi.add_incoming(one, after_some)
        phi.add_incoming(other, after_full)
        merged.append(phi)
    return merged


def store_lanes(e: Emitter, values: Sequence[Value], pointer: Value, n: Value) -> None:
    """Store the first n floats of vectors of 16."""
    b, ty = e.b, Vec(F32, GROUP)
    missing = b.icmp_signed("<", n, const(I64, GROUP * len(values)))
    slot = e.stack(ty, len(values))
    with b.if_else(missing) as (partly, wholly):
        with partly:
            for g, value in enumerate(values):
                e.store(value, slot, 4 * GROUP * g)
            e.loop(b.shl(n, const(I64, 2)), lambda o, _: e.store(e.load(F32, slot, o), pointer, o), step=4)
        with wholly:
            for g, value in enumerate(values):
                e.store(value, pointer, 4 * GROUP * g)


def each_group(
    e: Emitter,
    n: Value,
    body: Callable[[Value, Value, list[Value]], Sequence[Value] | None],
    carried: Sequence[Value] = (),
) -> list[Value]:
    """carried = body(offset in bytes, values left, carried) for every 16 of n values, the last time perhaps fewer.
    Returns the last carried values."""
    b = e.b
    size, whole = b.shl(n, const(I64, 2)), b.and_(b.shl(n, const(I64, 2)), const(I64, -4 * GROUP))
    values = e.loop(whole, lambda o, c: body(o, const(I64, GROUP), c), carried, step=4 * GROUP)
    return e.loop(
        size, lambda o, c: body(o, b.lshr(b.sub(size, o), const(I64, 2)), c), values, start=whole, step=4 * GROUP
    )
