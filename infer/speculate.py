"""Guesses of the next tokens, to be verified in one pass: text that repeats itself costs a fraction of its tokens.

A guess changes nothing but speed: a token counts when the sampler draws it from the logits that the model gives, and
those have the bits of a pass token by token.
"""

from collections.abc import Sequence

MOST = 10  # tokens of one guess
LENGTHS = (4, 3, 2)  # tokens that have to have occurred before, the longest first


MARGIN = 1.15  # a guess costs more than its pass: looking up, taking back
NARROW = 3  # passes of up to so many tokens have times of their own, wider ones cost about the same


class NGramSpeculator:
    """What followed the last time the text ended like this (prompt lookup decoding: Saxena 2023).

    How many tokens to guess is weighed: how often the text has been like this so far, against what wider passes have
    cost on this machine. Widths that were not tried twice count as free (the first time compiles).
    """

    def __init__(self, ids: Sequence[int], most: int = MOST) -> None:
        self.most = most
        self.ids: list[int] = []
        self.likely = 0.5  # that the next token is the one foretold: an average over the last ones
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> position after its last occurrence
        self._seconds: dict[int, list[float]] = {}  # width of a pass -> [number of passes, average]
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """The text goes on."""
        for token in ids:
            at = self._foretold()
            if at is not None:
                self.likely += ((self.ids[at] == token) - self.likely) / 8
            # what ends before this token is known to be followed by it; the end of the text is not in the table yet
            for n in LENGTHS:
                if len(self.ids) >= n:
                    self._after[tuple(self.ids[-n:])] = len(self.ids)
            self.ids.append(token)

    def guess(self, room: int) -> list[int]:
        """Tokens that may come next, at most `room`; none where that would not pay."""
        at = self._foretold()
        if at is None or room <= 0:
            return []
        most = min(room, self.most)
        period = self.ids[at : at + most]
        # the end of the text is followed by what is guessed to follow it
        known = (period * (most // len(period) + 1))[:most]
        widths = range(len(known) + 1)
        best = max(widths, key=lambda n: (sum(self.likely**i for i in range(n + 1)) / self._cost(n + 1), -n))
        return known[:best]

    def timed(self, width: int, seconds: float) -> None:
        """How long a pass of so many tokens took."""
        passes = self._seconds.setdefault(min(width, NARROW + 1), [0, 0.0])
        passes[0] += 1
        if passes[0] > 1:
            passes[1] += (seconds - passes[1]) / min(passes[0] - 1, 8)

    def _cost(self, width: int) -> float:
        """Of a pass, in passes of one token."""
        one = self._seconds.get(1, [0, 0.0])
        this = self._seconds.get(min(width, NARROW + 1), [0, 0.0])
        return max(1.0, MARGIN * this[1] / one[1]) if one[0] > 1 and this[0] > 1 and width > 1 else 1.0

    def _foretold(self) -> int | None:
        """The place of the token that would come next."""
        for n in LENGTHS:
            at = self._after.get(tuple(self.ids[-n:])) if len(self.ids) >= n else None
            if at is not None:
                return at
        return None
