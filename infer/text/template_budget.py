"""Limits on one rendering of a chat template: steps, and memory for the values that it makes.

Steps stand for time: a loop pass, a call, and every 1024 characters that an operation reads or writes. They do not
depend on the machine, so a template that exceeds a limit does so everywhere. Memory is counted where a value is made.
When a limit is reached, values that nothing else holds any more are subtracted.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from .stops import look

MAX_STEPS = 1_000_000  # of one rendering (a call counts as 5); long real conversations need some 10 000
MAX_TEXT = 1 << 24  # characters in any one string, and in the result
MAX_MEMORY = 1 << 28  # bytes of values that a template has made and still holds

_SHIFT = 10  # a step is 1024 characters
_MOST = MAX_STEPS << _SHIFT
_LOOK = 10_000 << _SHIFT  # between two calls of `look`
_VISIT = 1024  # cost of visiting one value, in characters
_PIECE = 64  # bytes of one new value, and the reference to it
_COPY = 4  # copying a character is faster than reading it, by this power of two
SMALL = 4096  # characters or elements; smaller values are counted once and never subtracted
_LEFT = 1 << 21  # bytes of new values after which values that nothing else holds are subtracted
_ONLY_HERE = 2  # sys.getrefcount of a value that only `_large` holds: its reference, and the argument's

_SCALARS = frozenset({float, bool, type(None), range})
_HOLDERS = {"Namespace": "_Namespace__attrs", "Cycler": "items"}  # jinja2's type -> attribute with its inner values
_SERIES: Any = (list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


class LimitError(Exception):
    """The template took too many steps or too much memory."""


class Budget:
    """The counts of one rendering. Every method raises LimitError when a limit is exceeded, or GoneError.

    used: characters read and written so far; a step counts as 1024. For short texts callers may add to it directly: the
    next step compares it with the limit.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start a rendering: set all counts to 0."""
        self.used = 0
        self._next = _LOOK  # value of `used` at which limits are checked next
        self._memory = 0  # bytes
        self._due = _LEFT  # value of `_memory` at which large values are subtracted next
        self._large: dict[int, Any] = {}

    def exhaust(self) -> None:
        """Mark the budget as exhausted, so that every later step raises LimitError."""
        self.used = max(self.used, _MOST + (1 << _SHIFT))

    def end(self) -> None:
        """Release the values of this rendering."""
        self._large = {}

    @property
    def steps(self) -> int:
        """Steps used so far."""
        return self.used >> _SHIFT

    def step(self, cost: int = 1) -> None:
        self.touch(cost << _SHIFT)

    def counted(self, items: Iterable[Any], cost: int) -> Iterator[Any]:
        """Yield the items; each costs `cost` steps."""
        cost <<= _SHIFT
        for item in items:
            self.used += cost
            if self.used > self._next:
                self.touch(0)
            yield item

    def touch(self, n: int) -> None:
        """Count an operation that reads or writes n characters."""
        self.used += n
        if self.used > self._next:
            if self.used > _MOST:
                raise LimitError(f"it takes more than {MAX_STEPS} steps")
            self._next = min(self.used + _LOOK, _MOST)
            look()

    def room(self, n: int) -> None:
        """Count an operation that will copy at most n characters into a new string."""
        if n > MAX_TEXT:
            raise LimitError(f"it makes a string of more than {MAX_TEXT} characters")
        self.touch(n >> _COPY)

    def pieces(self, n: int) -> None:
        """Count an operation that will make at most n new values, or a list of n."""
        if _PIECE * n > MAX_MEMORY:
            raise self._too_much()
        self.touch(_PIECE * n)

    def made(self, value: Any) -> Any:
        """Count a value that an operation has made, and return it. Its elements were counted when they were made."""
        if type(value) is str:
            if len(value) > SMALL:
                self._made_large(value)
            else:
                self._memory += _PIECE + len(value)
        elif isinstance(value, str | list | tuple | dict):
            if len(value) <= SMALL:
                self._memory += _PIECE + 8 * len(value)
            else:
                self._made_large(value)
        if self._memory > self._due:
            self._take_off()
        return value

    def _made_large(self, value: Any) -> None:
        if id(value) not in self._large:
            if isinstance(value, str):
                self.room(len(value))
            self._memory += _size(value)
            self._large[id(value)] = value

    def _take_off(self) -> None:
        """Subtract the large values that only this budget holds."""
        for key in list(self._large):
            if sys.getrefcount(self._large[key]) <= _ONLY_HERE:
                self._memory -= _size(self._large.pop(key))
        if self._memory > MAX_MEMORY:
            raise self._too_much()
        self._due = self._memory + _LEFT

    def _too_much(self) -> LimitError:
        return LimitError(f"it holds more than {MAX_MEMORY} bytes")

    def walk(self, *values: Any) -> tuple[int, int]:
        """Count a visit of values and all their inner values, repeated ones again: the cost to compare them or to write
        them as text. Returns (limit on their characters as text, levels of nesting)."""
        level: list[Any] = list(values)
        characters = depth = 0
        while level:
            before, following = characters, []
            for value in level:
                kind = type(value)
                if kind is str:
                    characters += len(value)
                elif kind is int:
                    characters += 8 + (value.bit_length() >> 1)
                elif kind in _SCALARS:
                    characters += 32
                else:
                    characters += len(value) if isinstance(value, str) else _PIECE
                    parts = _parts(value)
                    self.touch(_VISIT * len(parts))
                    following += parts
            self.touch(characters - before)
            level = following
            depth += 1
        return characters, depth


def _size(value: Any) -> int:
    """Bytes of a value with its elements, which may be new objects (a range makes its elements)."""
    return sys.getsizeof(value) + (0 if isinstance(value, str) else _PIECE // 2 * len(value))


def _parts(value: Any) -> list[Any]:
    """The inner values of a value, as written in its text."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, _SERIES):
        return list(value)
    attribute = _HOLDERS.get(type(value).__name__)
    return [getattr(value, attribute)] if attribute else []
