"""The position of each token of a sequence, for RoPE and for requests for a range of positions.

A token's position is its index in the sequence unless positions were removed from the middle, shifted or divided, or
pictures come before it and positions have three axes (picture_tokens.py).
Positions never decrease along a sequence, so a token attends to the tokens before it.
"""

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
_NONE: Places = np.zeros(0, np.int64)


def first_moved(positions: Places, unmoved: Places | None = None) -> int:
    """Index of the first token whose position is not the unmoved one (None: its index); the number of tokens if there
    is no such token."""
    moved = np.flatnonzero(positions != (np.arange(len(positions)) if unmoved is None else unmoved))
    return int(moved[0]) if len(moved) else len(positions)


class Positions:
    """Positions of one sequence: `listed` for the first tokens; the later ones count up from there."""

    def __init__(self, listed: Places = _NONE) -> None:
        self.listed = _NONE
        self.offset = 0  # position - index, for tokens after the listed ones
        self.set(listed)

    def set(self, listed: Places) -> None:
        """Set the positions of the first tokens, which must not decrease. A list 0, 1, 2... is not stored."""
        plain = np.array_equal(listed, np.arange(len(listed)))
        self.listed = _NONE if plain else np.array(listed, np.int64)
        self.offset = 0 if plain else int(listed[-1]) + 1 - len(listed)

    @property
    def plain(self) -> bool:
        """Whether every position is the token's index."""
        return not len(self.listed)

    @property
    def has_gaps(self) -> bool:
        """Whether two neighbours are not exactly one position apart."""
        return bool((np.diff(self.listed) != 1).any())

    def of(self, start: int, n: int) -> Places:
        """The positions, i64 [n], of n tokens from index `start` on."""
        if start >= len(self.listed):
            return np.arange(start + self.offset, start + n + self.offset)
        known = self.listed[start : start + n]
        first = start + len(known)
        return np.concatenate([known, np.arange(first, start + n) + self.offset])

    def at(self, n: int) -> int:
        """The position of the token that follows n tokens."""
        return int(self.listed[n]) if n < len(self.listed) else n + self.offset

    def cut(self, n: int) -> None:
        """Shorten the sequence to n tokens."""
        if n < len(self.listed):
            self.set(self.listed[:n])

    def indices(self, p0: int, p1: int, n: int) -> tuple[int, int]:
        """Index range (first, end) of the tokens, among the first n, at positions p0..p1.

        Negative p0: from the beginning; negative p1: to the end.
        """
        mine = self.of(0, n)
        first = int(np.searchsorted(mine, p0)) if p0 > 0 else 0
        return first, max(first, int(np.searchsorted(mine, p1)) if p1 >= 0 else n)
