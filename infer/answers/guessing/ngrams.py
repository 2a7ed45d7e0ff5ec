"""Guesses the next tokens from repetitions, to be verified in one pass: repetitive text costs a fraction of its tokens.

A guess changes nothing but speed: a token counts only if the sampler samples it from the model's logits, which have the
same bits as in passes token by token.
"""

from collections.abc import Sequence

import numpy as np

MOST = 7  # tokens of one guess: with the last token as many as have kernels of their own (program/products.py)
LENGTHS = (4, 3, 2)  # lengths of n-grams that have to have occurred before, the longest first
ONE_BY_ONE = 32  # the last tokens of a text, from which `likely` is learned; all before are looked at together

# n-grams are known by hashes of 63 bits: sums of tokens times powers of an odd number. Equal ones only guess wrong
_POWERS = [0x5851F42D4C957F2D**k % (1 << 64) for k in range(max(LENGTHS))]
_MASK = (1 << 63) - 1


class NGrams:
    """Guesses that a text continues as after the last occurrence of its end (prompt lookup decoding: Saxena 2023)."""

    def __init__(self, ids: Sequence[int], most: int = MOST) -> None:
        """most: tokens of one guess."""
        self.most = most
        self.ids: list[int] = []
        # for each of LENGTHS: how often its guesses of the next token were right, an average over the last ones
        self._chances = [0.5] * len(LENGTHS)
        self._at: int | None = None  # index of the guessed token
        self._by = 0  # index in LENGTHS of the n-gram that guesses it
        self._seen = 0  # tokens of `ids` that were looked at
        # for each of LENGTHS: n-gram -> position after its last occurrence, and the n-gram at the end of the text
        self._after: list[dict[int, int]] = [{} for _ in LENGTHS]
        self._last = [0] * len(LENGTHS)
        self.extend(ids)

    @property
    def likely(self) -> float:
        """The chance that the guessed next token is right."""
        return self._chances[self._by]

    def extend(self, ids: Sequence[int]) -> None:
        """Adds tokens to the text."""
        self.ids += ids

    def look(self) -> None:
        """Looks at the new tokens of the text."""
        mine, last = self.ids, self._last
        if len(mine) - self._seen > 2 * ONE_BY_ONE:
            self._look_at_many(len(mine) - ONE_BY_ONE)
        for n in range(self._seen, len(mine)):
            token, at = mine[n], self._at
            if at is not None:
                self._chances[self._by] += ((mine[at] == token) - self._chances[self._by]) / 8
            for i, length in enumerate(LENGTHS):
                # the n-gram before this token is now known to be followed by it
                if n >= length:
                    self._after[i][last[i]] = n
                if n + 1 >= length:
                    last[i] = sum(mine[n - k] * _POWERS[k] for k in range(length)) & _MASK
            self._find(n + 1)
        self._seen = len(mine)

    def _look_at_many(self, end: int) -> None:
        """Looks at the tokens up to index `end`, from which no chances are learned."""
        first = max(0, self._seen - max(LENGTHS))
        ids = np.asarray(self.ids[first:end], np.int64).view(np.uint64)
        for i, length in enumerate(LENGTHS):
            grams = np.zeros(len(ids) - length + 1, np.uint64)
            for k in range(length):
                grams += ids[length - 1 - k :][: len(grams)] * np.uint64(_POWERS[k])
            *followed, self._last[i] = (grams & np.uint64(_MASK)).tolist()
            self._after[i].update(zip(followed, range(first + length, end), strict=True))
        self._seen = end
        self._find(end)

    def _find(self, n: int) -> None:
        """Guesses the token after the first n."""
        self._at = None
        for i, length in enumerate(LENGTHS):
            if n >= length and (place := self._after[i].get(self._last[i])) is not None:
                self._at, self._by = place, i
                return

    def foretold(self, room: int) -> list[int]:
        """Tokens that may come next, at most `room`. Call `look` first."""
        at = self._at
        if at is None:
            return []
        most = min(room, self.most)
        period = self.ids[at : at + most]
        # a guess that reaches the end of the text repeats itself
        return (period * (most // len(period) + 1))[:most]
