"""The last positions at which the prompt cache gave something up, as hashes of the texts up to there.

A text that is read again is looked up here, to tell whether it was never known or given up for lack of room. The hash
of the first n tokens t is a number for their owner plus sum (t[i] + 1) * M**i modulo 2**64; a collision only makes the
stated reason wrong.
"""

import secrets

import numpy as np
import numpy.typing as npt

from ..faults import SidePath

GIVEN_UP = SidePath("what the prompt cache has given up")
MOST = 4096  # positions: 64 KiB
SPACING = 512  # step between noted positions where a whole stretch of text was given up

Tokens = npt.NDArray[np.int32]


class GivenUp:
    """The last `most` positions."""

    def __init__(self, most: int = MOST) -> None:
        self._positions = np.zeros(most, np.int64)  # 0: unused
        self._hashes = np.zeros(most, np.uint64)
        self._next = 0
        self._powers = np.ones(1, np.uint64)
        self._base = np.uint64(secrets.randbits(63) << 1 | 1)

    def add(self, ids: Tokens, since: int | None = None, owner: bytes = b"") -> None:
        """Note that the cache gave up the position after the tokens `ids`.

        since: also note every SPACING-th position after `since`.
        """
        GIVEN_UP.do(lambda: self._add(ids, since, owner))

    def _add(self, ids: Tokens, since: int | None, owner: bytes) -> None:
        n = len(ids)
        first = n if since is None else (since // SPACING + 1) * SPACING
        positions = np.array([*range(first, n, SPACING), n] if n else [], np.int64)[-len(self._positions) :]
        at = (self._next + np.arange(len(positions))) % len(self._positions)
        self._positions[at], self._hashes[at] = positions, self._hashes_of(ids, owner)[positions]
        self._next = int(at[-1] + 1) % len(self._positions) if len(at) else self._next

    def last(self, ids: Tokens, after: int, owner: bytes = b"") -> int:
        """The last position after `after` at which a part of this text was given up; 0: no such position."""
        return GIVEN_UP.run(lambda: self._last(ids, after, owner), lambda: 0)

    def _last(self, ids: Tokens, after: int, owner: bytes) -> int:
        near = np.flatnonzero((self._positions > after) & (self._positions <= len(ids)))
        if not len(near):
            return 0
        same = self._hashes_of(ids, owner)[self._positions[near]] == self._hashes[near]
        return int(self._positions[near[same]].max(initial=0))

    def clear(self) -> None:
        """Forget all positions."""
        self._positions[:] = 0

    def _hashes_of(self, ids: Tokens, owner: bytes) -> npt.NDArray[np.uint64]:
        """Hashes of the first 0, 1, ... len(ids) tokens of a text of this owner."""
        if len(self._powers) < len(ids):
            factors = np.full(2 * len(ids), self._base, np.uint64)
            factors[0] = 1
            self._powers = np.cumprod(factors, dtype=np.uint64)
        hashes = np.zeros(len(ids) + 1, np.uint64)
        np.cumsum((ids.astype(np.uint64) + np.uint64(1)) * self._powers[: len(ids)], dtype=np.uint64, out=hashes[1:])
        return hashes + np.uint64(int.from_bytes(owner[:8], "little"))
