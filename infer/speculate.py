"""Guesses of the next tokens, to be verified in one pass: text that repeats itself costs a fraction of its tokens.

A guess changes nothing but speed: a token counts when the sampler draws it from the logits that the model gives, and
those have the bits of a pass token by token.
"""

from collections.abc import Sequence

MOST = 10  # tokens of one guess
LENGTHS = (4, 3, 2)  # tokens that have to have occurred before, the longest first


class NGramSpeculator:
    """What followed the last time the text ended like this (prompt lookup decoding: Saxena 2023).

    Guesses grow while they come true and shrink when they do not: a wrong token costs the time of its pass.
    """

    def __init__(self, ids: Sequence[int], most: int = MOST) -> None:
        self.most = most
        self.ids: list[int] = []
        self.n_guessed = self.n_accepted = 0
        self._bold = 2.0  # tokens to guess, on average what came true
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> position after its last occurrence
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """The text goes on."""
        for token in ids:
            # what ends before this token is known to be followed by it; the end of the text is not in the table yet
            for n in LENGTHS:
                if len(self.ids) >= n:
                    self._after[tuple(self.ids[-n:])] = len(self.ids)
            self.ids.append(token)

    def guess(self, room: int) -> list[int]:
        """Tokens that may come next, at most `room`; none where the text ends as it never did before."""
        most = min(room, self.most, round(self._bold) + 1)
        if most > 0:
            for n in LENGTHS:
                at = self._after.get(tuple(self.ids[-n:])) if len(self.ids) >= n else None
                if at is not None:
                    return self.ids[at : at + most]
        return []

    def learn(self, n_guessed: int, n_accepted: int) -> None:
        """How many tokens of a guess came true."""
        self.n_guessed += n_guessed
        self.n_accepted += n_accepted
        self._bold += (n_accepted + (n_accepted == n_guessed) * n_guessed - self._bold) / 2
