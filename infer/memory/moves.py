"""Tokens of a sequence at other positions: removed from its middle, shifted, divided (llama.cpp PRs #5328, #7531).

Keys and values stay where they are in the order of the sequence, without a hole; positions are noted beside them. Keys
that RoPE turned are turned on to their new position, whatever type they are kept in (f16 and q8_0 round once more).
Recurrent layers have no positions: they only note the new ones.

What was moved is not what the model would make of the tokens that are left, since these were computed beside others at
other positions. So `computed` says how many tokens at the beginning are unchanged: the rest is never taken for the
memory of their text.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from .positions import Places, Positions

if TYPE_CHECKING:
    from .attention import AttentionMemory


class Moves:
    """Part of HybridMemory."""

    n_ctx: int
    n_past: Any
    writable: list[int]
    positions: list[Positions]
    attention: "AttentionMemory"
    learned_positions: bool
    _computed: dict[int, int]

    @property
    def is_recurrent(self) -> bool:
        """Whether layers keep a state, which cannot be cut."""
        raise NotImplementedError

    def _check(self, seq: int) -> None:
        raise NotImplementedError

    def _trim(self, seq: int) -> None:
        raise NotImplementedError

    # --- what a sequence is ---
    def computed(self, seq: int) -> int:
        """Tokens at the beginning of a sequence that are what the model makes of them: all, unless it was moved."""
        past = int(self.n_past[seq])
        return min(past, self._computed.get(seq, past))

    def is_moved(self, seq: int) -> bool:
        """Whether the sequence is not what the model makes of all its tokens."""
        return seq in self._computed

    def next_position(self, seq: int) -> int:
        """Where the sequence goes on."""
        return self.positions[seq].at(int(self.n_past[seq]))

    def mark(self, seq: int, listed: Places | None = None, computed: int | None = None) -> None:
        """Positions of the first tokens (None: 0, 1, 2...), and how many tokens are `computed` (None: all)."""
        self.positions[seq] = Positions() if listed is None else Positions(listed)
        self._computed.pop(seq, None)
        if computed is not None and computed < self.n_past[seq]:
            self._computed[seq] = computed

    # --- moving ---
    def seq_add(self, seq: int, p0: int, p1: int, delta: int) -> int:
        """Shift the tokens at positions p0..p1 (negative: from the beginning, to the end) by `delta`.

        Those whose position would be negative are removed. Returns the position at which the sequence goes on.
        UsageError when tokens would come to lie beyond others or the context, or cannot be moved.
        """
        self._check(seq)
        past = int(self.n_past[seq])
        first, end = self.positions[seq].indices(p0, p1, past)
        if delta and first < end:
            new = self.positions[seq].of(0, past)
            new[first:end] += delta
            lost = int(np.count_nonzero(new < 0))
            if lost and (self.is_recurrent or first):
                raise UsageError(
                    f"sequence {seq}: positions {p0} to {p1} cannot be shifted by {delta}, below 0. "
                    "Remove what comes before them, or shift the context."
                )
            self._renumber(seq, new[first:end], first, f"shifted by {delta}", lost)
        return self.next_position(seq)

    def seq_div(self, seq: int, p0: int, p1: int, divisor: int) -> int:
        """Divide the positions p0..p1 (negative: from the beginning, to the end), rounding down.

        Returns the position at which the sequence goes on. UsageError as for `seq_add`.
        """
        self._check(seq)
        if divisor < 1:
            raise UsageError(f"positions cannot be divided by {divisor}, only by 1 or more.")
        past = int(self.n_past[seq])
        first, end = self.positions[seq].indices(p0, p1, past)
        if divisor > 1 and first < end:
            new = self.positions[seq].of(first, end - first) // divisor
            self._renumber(seq, new, first, f"divided by {divisor}")
        return self.next_position(seq)

    def shift(self, seq: int, keep: int, n: int) -> int:
        """Take n tokens behind the first `keep` out of the attention layers; the rest moves up to their positions.

        Recurrent layers go on from the state they have, which has seen all tokens. Returns the position at which the
        sequence goes on. UsageError when no token would be left after them, or positions are learned.
        """
        self._check(seq)
        past = int(self.n_past[seq])
        if keep < 0 or n < 1 or keep + n >= past:
            raise UsageError(
                f"sequence {seq}: {n} tokens after the first {keep} cannot leave a sequence of {past}.",
                remedy=Remedy.FEWER_KEPT_TOKENS,
            )
        self._check_movable(seq)
        places = self.positions[seq].of(0, past)
        self._remove(seq, keep, keep + n)
        self._renumber(seq, places[keep + n :] - (places[keep + n] - places[keep]), keep, "shifted")
        return self.next_position(seq)

    def _remove(self, seq: int, first: int, end: int) -> None:
        """Take tokens first..end out of the attention layers, from before others: their positions are left empty."""
        past = int(self.n_past[seq])
        places, computed = self.positions[seq].of(0, past), min(first, self.computed(seq))
        self._open(seq, first)
        self.attention.remove(seq, first, end, past)
        self._close(seq, np.delete(places, slice(first, end)), computed)

    def _renumber(self, seq: int, new: Places, first: int, how: str, lost: int = 0) -> None:
        """Give the tokens from index `first` on `new` positions, of which `lost` are below 0: these tokens go."""
        past = int(self.n_past[seq])
        places, computed = self.positions[seq].of(0, past), min(first, self.computed(seq))
        moved = places.copy()
        moved[first : first + len(new)] = new
        self._check_movable(seq)
        if (np.diff(moved) < 0).any() or moved[-1] >= self.n_ctx:
            bound = "beyond others" if moved[-1] < self.n_ctx else f"beyond the context of {self.n_ctx}"
            raise UsageError(
                f"sequence {seq}: positions {places[first]} to {places[first + len(new) - 1]} cannot be {how}: tokens "
                f"would lie {bound}. Move those in the way first."
            )
        deltas = moved[first:] - places[first:]
        if lost < past:
            self._open(seq, first)
            self.attention.turn(seq, first, deltas)
            if lost:
                self.attention.remove(seq, 0, lost, past)
        self._close(seq, moved[lost:], computed)

    def _open(self, seq: int, first: int) -> None:
        """Before tokens from index `first` on are changed: after an interrupt the sequence has those before."""
        self.attention.own(seq, first)
        self.n_past[seq] = 0 if self.is_recurrent else first
        self.positions[seq].cut(int(self.n_past[seq]))
        self.writable[seq] = 0

    def _close(self, seq: int, places: Places, computed: int) -> None:
        self.n_past[seq] = len(places)
        self.mark(seq, places, 0 if self.is_recurrent else computed)
        self._trim(seq)

    def _check_movable(self, seq: int) -> None:
        if self.learned_positions:
            raise UsageError(
                f"sequence {seq} cannot be shifted: its model has learned positions, which are in all that it keeps. "
                "Process the text again.",
                remedy=Remedy.LARGER_CONTEXT,
            )

    def _check_windows(self, seq: int) -> None:
        """Layers with a window count tokens, so there must be no gap between positions where there are such layers."""
        if self.positions[seq].has_gaps and any(s.window for s in self.attention.specs):
            raise UsageError(
                f"sequence {seq} has gaps between its positions, and its model sees through a window of positions. "
                "Close them first (seq_add)."
            )
