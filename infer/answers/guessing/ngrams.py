"""Guesses the next tokens from repetitions, to be verified in one pass: repetitive text costs a fraction of its tokens.

A guess changes nothing but speed: a token counts only if the sampler samples it from the model's logits, which have the
same bits as in passes token by token.
"""

from collections.abc import Sequence

MOST = 10  # tokens of one guess
LENGTHS = (4, 3, 2)  # lengths of n-grams that have to have occurred before, the longest first
_MASKS = [(1 << 32 * n) - 1 for n in LENGTHS]

# If guesses rarely come true, or cannot pay, this many tokens are looked at together: Python takes 30 us for each if
# all of a small model has gone through the caches meanwhile.
UNLIKELY, TOGETHER = 0.5, 8


class NGrams:
    """Guesses that a text continues as after the last occurrence of its end (prompt lookup decoding: Saxena 2023)."""

    def __init__(self, ids: Sequence[int], most: int = MOST) -> None:
        """most: tokens of one guess."""
        self.most = most
        self.ids: list[int] = []
        self.likely = 0.5  # chance that the guessed next token is right: an average over the last ones
        self._at: int | None = None  # index of the guessed token
        self._rests = 0  # length of the text up to which nothing is guessed
        self._seen = 0  # tokens of `ids` that were looked at
        # for each of LENGTHS: n-gram -> position after its last occurrence, and the n-gram at the end of the text.
        # n-grams are numbers, 32 bits for a token
        self._after: list[dict[int, int]] = [{} for _ in LENGTHS]
        self._last = [0] * len(LENGTHS)
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Adds tokens to the text."""
        self.ids += ids

    def look(self, most: int | None = None) -> bool:
        """Looks at new tokens of the text, at most `most`; returns whether none are left."""
        mine, last = self.ids, self._last
        end = len(mine) if most is None else min(len(mine), self._seen + most)
        for n in range(self._seen, end):
            token, at = mine[n], self._at
            if at is not None:
                self.likely += ((mine[at] == token) - self.likely) / 8
            self._at = None
            for i, length in enumerate(LENGTHS):
                # the n-gram before this token is now known to be followed by it
                if n >= length:
                    self._after[i][last[i]] = n
                last[i] = (last[i] << 32 | token) & _MASKS[i]
            for i, length in enumerate(LENGTHS):
                if n + 1 >= length and (place := self._after[i].get(last[i])) is not None:
                    self._at = place
                    break
        self._seen = end
        return end == len(mine)

    @property
    def rests(self) -> bool:
        """Whether nothing is guessed for now, because guesses were rarely right or could not pay."""
        return len(self.ids) < self._rests

    def rest(self) -> None:
        """Guesses nothing for TOGETHER tokens, which are then looked at together."""
        self._rests = len(self.ids) + TOGETHER

    def foretold(self, room: int) -> list[int]:
        """Tokens that may come next, at most `room`. Call `look` first, for all new tokens."""
        if self.likely < UNLIKELY:
            self.rest()
        at = self._at
        if at is None:
            return []
        most = min(room, self.most)
        period = self.ids[at : at + most]
        # a guess that reaches the end of the text repeats itself
        return (period * (most // len(period) + 1))[:most]
