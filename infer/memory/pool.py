"""Indices of pages (of keys and values) or rows (of recurrent states) that may have several owners."""

from collections import Counter
from collections.abc import Callable

from hybrid.quant.ggml.errors import Remedy, StateError


class IndexPool:
    """Hands out the places 0 .. size - 1. A new place has one owner, may get more, and is free again without owners.

    The prompt cache may be any number of a place's owners: see `hold`. The place freed last is handed out first, so the
    resident memory grows only with the places in use at one time. `refill` is called when all places are in use: it
    gives something up and returns True, or returns False when nothing is left to give up.
    """

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what
        self.refill: Callable[[], bool] = lambda: False
        self.alone = 0  # places that only the prompt cache owns
        self._owners: list[int] = []
        self._held: list[int] = []  # how many of the owners are the prompt cache
        self._free: list[int] = []

    @property
    def used(self) -> int:
        return len(self._owners) - len(self._free)

    @property
    def touched(self) -> int:
        """Number of places that were ever in use, hence resident."""
        return len(self._owners)

    def take(self) -> int:
        """Take a free place, with one owner. Raises StateError when all are in use and nothing can be given up."""
        while not self._free:
            if len(self._owners) < self.size:
                self._owners.append(0)
                self._held.append(0)
                self._free.append(len(self._owners) - 1)
            elif not self.refill():
                raise StateError(
                    f"the memory is full: all {self.size} {self.what} are in use. Close a sequence.",
                    remedy=Remedy.LARGER_CONTEXT,
                )
        place = self._free.pop()
        self._owners[place] = 1
        return place

    def take_many(self, n: int) -> list[int]:
        """Take n places. Raises StateError, and takes nothing, when there are fewer."""
        taken: list[int] = []
        try:
            while len(taken) < n:
                taken.append(self.take())
        except BaseException:
            for place in taken:
                self.drop(place)
            raise
        return taken

    def owners(self, place: int) -> int:
        return self._owners[place]

    def is_alone(self, place: int) -> bool:
        """Whether nobody but the prompt cache owns the place."""
        return self._owners[place] == self._held[place] > 0

    def share(self, place: int) -> int:
        """Add an owner."""
        return self._change(place, 1, 0)

    def drop(self, place: int) -> None:
        """Remove an owner."""
        self._change(place, -1, 0)

    def hold(self, place: int) -> int:
        """Add the prompt cache as an owner."""
        return self._change(place, 1, 1)

    def claim(self, place: int) -> int:
        """Turn one of the owners into the prompt cache."""
        return self._change(place, 0, 1)

    def let_go(self, place: int) -> None:
        """Remove the prompt cache as an owner, once."""
        self._change(place, -1, -1)

    def recount(self, owners: Counter[int], held: Counter[int]) -> None:
        """Set the owners of every place. held: how many of them are the prompt cache."""
        places = range(len(self._owners))
        self._owners = [owners[place] for place in places]
        self._held = [held[place] for place in places]
        self._free = [place for place in places if not owners[place]]
        self.alone = sum(map(self.is_alone, places))

    def _change(self, place: int, owners: int, held: int) -> int:
        was, is_held = self._owners[place], self._held[place]
        assert was > 0
        self.alone -= was == is_held
        self._owners[place], self._held[place] = was, is_held = was + owners, is_held + held
        assert was >= is_held >= 0
        if was:
            self.alone += was == is_held
        else:
            self._free.append(place)
        return place
