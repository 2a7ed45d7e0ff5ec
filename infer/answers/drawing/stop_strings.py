"""Searches a growing text for all stop strings at once: their number does not change the cost of a character.

Aho and Corasick, "Efficient string matching", 1975. A state is the longest suffix of the text that begins a stop
string.
"""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from hybrid.quant.ggml.errors import UsageError

MOST = 1024  # stop strings
MOST_CHARACTERS = 1 << 16  # of all of them together


class StopStrings:
    """A search for any of `stop`; build it with `searching`.

    depth    by state: how many characters of the text may belong to a stop string
    longest  by state: length of the longest stop string that ends there; 0: none does
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self.depth, self.longest = [0], [0]
        after: list[list[tuple[str, int]]] = [[]]  # the characters and states that follow each state
        for one in stop:
            state = 0
            for character in one:
                following = self._next.get((state, character))
                if following is None:
                    following = self._next[state, character] = len(self.depth)
                    after[state].append((character, following))
                    after.append([])
                    self.depth.append(self.depth[state] + 1)
                    self.longest.append(0)
                state = following
            self.longest[state] = len(one)
        self._shorter = [0] * len(self.depth)  # by state: the next longest suffix that begins a stop string
        waiting = deque(state for _, state in after[0])
        while waiting:
            state = waiting.popleft()
            self.longest[state] = self.longest[state] or self.longest[self._shorter[state]]
            for character, following in after[state]:
                self._shorter[following] = self.step(self._shorter[state], character)
                waiting.append(following)

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while (following := self._next.get((state, character))) is None and state:
            state = self._shorter[state]
        return following or 0


@lru_cache(maxsize=16)
def _built(stop: tuple[str, ...]) -> StopStrings:
    return StopStrings(stop)


def searching(stop: Sequence[str]) -> StopStrings:
    """A search that several answers may share. Raises UsageError if a string is empty, or there are too many."""
    if any(not text for text in stop):
        raise UsageError('a stop string is "", expected at least one character')
    n = sum(map(len, stop))
    if len(stop) > MOST or n > MOST_CHARACTERS:
        raise UsageError(
            f"stop: {len(stop)} strings of {n} characters together, expected at most {MOST} strings of "
            f"{MOST_CHARACTERS} characters. Leave some out."
        )
    return _built(tuple(stop))
