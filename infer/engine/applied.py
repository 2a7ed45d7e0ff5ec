"""The adapters that are applied to a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..memory import Move
from ..program.builder import aligned_empty


@dataclass(frozen=True)
class Applied:
    """Adapters by number, ascending, each with its scale, not 0; the tokens before `start` are read without them."""

    scales: tuple[tuple[int, float], ...] = ()
    start: int = 0

    @classmethod
    def of(cls, scales: Mapping[int, float], start: int = 0) -> "Applied":
        """Adapters with these scales. Adapters with scale 0 change nothing, and are left out."""
        kept = tuple((number, scale) for number, scale in sorted(scales.items()) if scale)
        return cls(kept, start) if kept else NONE

    def __bool__(self) -> bool:
        return bool(self.scales)


NONE = Applied()


class AdapterLists:
    """The part of the control block that says which adapters each of up to n tokens has: `adapted` and `lists` of a
    `Batch`. A list is made once for all tokens with the same adapters."""

    def __init__(self, n: int, n_adapters: int) -> None:
        sizes = {"adapted": n, "lists": 1 + n * (1 + 2 * n_adapters)} if n_adapters else {"adapted": 1, "lists": 1}
        self.arrays = {name: aligned_empty(8 * size).view(np.int64) for name, size in sizes.items()}
        for array in self.arrays.values():
            array[:] = 0
        self._used = 1  # words of lists; the first list is empty

    def fill(self, applied: Sequence[Applied], moves: Sequence[Move]) -> None:
        """Write the lists of segments with these moves."""
        adapted, places, first = self.arrays["adapted"], {NONE.scales: 0}, 0
        self._used = 1
        for each, move in zip(applied, moves, strict=True):
            if each.scales not in places:
                places[each.scales] = self._add(each)
            before = min(max(each.start - move.past, 0), move.n)
            adapted[first : first + before] = 0
            adapted[first + before : first + move.n] = places[each.scales]
            first += move.n

    def _add(self, applied: Applied) -> int:
        """Write a list; returns where it begins."""
        lists, begin = self.arrays["lists"], self._used
        lists[begin] = len(applied.scales)
        for i, (number, scale) in enumerate(applied.scales):
            at = begin + 1 + 2 * i
            lists[at : at + 2] = number, int(np.float32(scale).view(np.uint32))
        self._used = begin + 1 + 2 * len(applied.scales)
        return begin

    def copied(self, n_tok: int) -> dict[str, np.ndarray]:
        """A copy of what `fill` wrote for n_tok tokens."""
        used = {"adapted": n_tok, "lists": self._used}
        return {name: self.arrays[name][:n].copy() for name, n in used.items()}
