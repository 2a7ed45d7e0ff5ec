"""Move tokens of a sequence: remove from its middle, shift or divide positions (llama.cpp PRs #5328, #7531).

`seq_rm`, `seq_add` and `seq_div` take positions and have llama.cpp's meaning; `remove` and `shift` count tokens.

Keys and values lie in the order of the sequence, without a hole; positions are recorded separately. Keys with RoPE are
rotated further to their new position, whatever their type (f16 and q8_0 are rounded once more). Recurrent layers have
no positions: they only record the new ones.

After a move the model would compute another memory for the remaining tokens, which were computed next to others at
other positions. So `computed` counts the unchanged leading tokens: the rest is never taken for the memory of
their text.
"""

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from .hybrid import HybridMemory
from .positions import Places


def seq_rm(memory: HybridMemory, seq: int, p0: int, p1: int = -1) -> int:
    """Forget the tokens at positions p0..p1 (-1: to the end). Returns the position at which the sequence continues.

    Only attention can forget from the middle of a sequence: a gap is left there, and later tokens stay as computed.
    Raises StateError where a recurrent state would remember the removed tokens.
    """
    memory.check(seq)
    n = int(memory.n_past[seq])
    first, end = memory.positions[seq].indices(p0, p1, n)
    if first < end:
        remove(memory, seq, first, end)
    return memory.next_position(seq)


def remove(memory: HybridMemory, seq: int, start: int, end: int) -> None:
    """`seq_rm` by token index: remove tokens start..end."""
    memory.check(seq)
    n = int(memory.n_past[seq])
    if end >= n:
        memory.truncate(seq, start)
    elif memory.is_recurrent:
        raise StateError(
            f"sequence {seq}: cannot remove tokens {start} to {end} of {n}: the recurrent state has seen them. "
            "Remove up to the end and process the rest again, or shift the context."
        )
    elif start < end:
        _remove(memory, seq, start, end)


def seq_add(memory: HybridMemory, seq: int, p0: int, p1: int, delta: int) -> int:
    """Shift the tokens at positions p0..p1 (negative: from the beginning, to the end) by `delta`.

    Tokens whose position would be negative are removed. Returns the position at which the sequence continues. Raises
    UsageError when tokens would pass others or the end of the context, or cannot be moved.
    """
    memory.check(seq)
    past = int(memory.n_past[seq])
    first, end = memory.positions[seq].indices(p0, p1, past)
    if delta and first < end:
        new = memory.positions[seq].of(0, past)
        new[first:end] += delta
        lost = int(np.count_nonzero(new < 0))
        if lost and (memory.is_recurrent or first):
            raise UsageError(
                f"sequence {seq}: positions {p0} to {p1} cannot be shifted by {delta}, below 0. "
                "Remove the tokens before them, or shift the context."
            )
        _renumber(memory, seq, new[first:end], first, f"shifted by {delta}", lost)
    return memory.next_position(seq)


def seq_div(memory: HybridMemory, seq: int, p0: int, p1: int, divisor: int) -> int:
    """Divide the positions p0..p1 (negative: from the beginning, to the end), rounding down.

    Returns the position at which the sequence continues. Raises UsageError as `seq_add` does.
    """
    memory.check(seq)
    if divisor < 1:
        raise UsageError(f"positions cannot be divided by {divisor}, only by 1 or more.")
    past = int(memory.n_past[seq])
    first, end = memory.positions[seq].indices(p0, p1, past)
    if divisor > 1 and first < end:
        new = memory.positions[seq].of(first, end - first) // divisor
        _renumber(memory, seq, new, first, f"divided by {divisor}")
    return memory.next_position(seq)


def shift(memory: HybridMemory, seq: int, keep: int, n: int) -> int:
    """Remove n tokens after the first `keep` from the attention layers; the rest moves down to their positions.

    Recurrent layers keep their state, which has seen all tokens. Returns the position at which the sequence continues.
    Raises UsageError when no token would be left after the removed ones, or positions are learned.
    """
    memory.check(seq)
    past = int(memory.n_past[seq])
    if keep < 0 or n < 1 or keep + n >= past:
        raise UsageError(
            f"sequence {seq}: cannot remove {n} tokens after the first {keep} of {past}: a token must follow them.",
            remedy=Remedy.FEWER_KEPT_TOKENS,
        )
    _check_movable(memory, seq)
    places = memory.positions[seq].of(0, past)
    _remove(memory, seq, keep, keep + n)
    _renumber(memory, seq, places[keep + n :] - (places[keep + n] - places[keep]), keep, "shifted")
    return memory.next_position(seq)


def _remove(memory: HybridMemory, seq: int, first: int, end: int) -> None:
    """Remove tokens first..end, which others follow, from the attention layers; their positions stay empty."""
    if memory.attention.row_specs:
        _check_movable(memory, seq)
    past = int(memory.n_past[seq])
    places, computed = memory.positions[seq].of(0, past), min(first, memory.computed(seq))
    _open(memory, seq, first)
    memory.attention.remove(seq, first, end, past)
    _close(memory, seq, np.delete(places, slice(first, end)), computed)


def _renumber(memory: HybridMemory, seq: int, new: Places, first: int, how: str, lost: int = 0) -> None:
    """Give the tokens from index `first` on `new` positions. `lost`: how many of these are below 0; their tokens go."""
    past = int(memory.n_past[seq])
    places, computed = memory.positions[seq].of(0, past), min(first, memory.computed(seq))
    moved = places.copy()
    moved[first : first + len(new)] = new
    _check_movable(memory, seq)
    if (np.diff(moved) < 0).any() or moved[-1] >= memory.n_ctx:
        bound = "beyond others" if moved[-1] < memory.n_ctx else f"beyond the context of {memory.n_ctx}"
        raise UsageError(
            f"sequence {seq}: positions {places[first]} to {places[first + len(new) - 1]} cannot be {how}: tokens "
            f"would lie {bound}. Move the tokens in the way first."
        )
    deltas = moved[first:] - places[first:]
    if lost < past:
        _open(memory, seq, first)
        memory.attention.turn(seq, first, deltas)
        if lost:
            memory.attention.remove(seq, 0, lost, past)
    _close(memory, seq, moved[lost:], computed)


def _open(memory: HybridMemory, seq: int, first: int) -> None:
    """Prepare a change of the tokens from index `first` on: if interrupted, the sequence keeps the tokens before."""
    memory.attention.own(seq, first)
    memory.n_past[seq] = 0 if memory.is_recurrent else first
    memory.positions[seq].cut(int(memory.n_past[seq]))
    memory.writable[seq] = 0


def _close(memory: HybridMemory, seq: int, places: Places, computed: int) -> None:
    memory.n_past[seq] = len(places)
    memory.mark(seq, places, 0 if memory.is_recurrent else computed)
    memory.trim(seq)


def _check_movable(memory: HybridMemory, seq: int) -> None:
    if memory.immovable:
        raise UsageError(
            f"sequence {seq} cannot be shifted: its model has {memory.immovable}. Process the text again.",
            remedy=Remedy.LARGER_CONTEXT,
        )
