"""What one rendering of a chat template may take: steps, and memory for the values that it makes.

Steps stand for time: a loop pass, a call, and every 1024 characters that an operation reads or writes. They do not
depend on the machine, so that a template which passes a bound does so everywhere. Memory is counted where a value is
made; values that nothing else holds any more are taken off when the bound is reached.
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
_LOOK = 10_000 << _SHIFT  # between two looks at whether anybody waits for the text
_VISIT = 1024  # characters that take as long as it takes to visit one value
_PIECE = 64  # bytes of one new value, and the reference to it
_COPY = 4  # characters are copied faster than they are looked at, by this power of two
SMALL = 4096  # characters or elements; a smaller value is counted once and never taken off
_LEFT = 1 << 21  # bytes of values that nobody else may hold, before they are looked for and taken off
_ONLY_HERE = 2  # references to a value of `_large` that nothing else holds: its own, and the question's

_SCALARS = frozenset({float, bool, type(None), range})
_HOLDERS = {"Namespace": "_Namespace__attrs", "Cycler": "items"}  # of jinja2's values, by the names of their types
_SERIES: Any = (list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


class LimitError(Exception):
    """The template ran or grew too long."""


class Budget:
    """Counts for one rendering. Each method raises LimitError when a bound is passed, or GoneError.

    used: characters read and written so far; a step counts as several characters. Callers may add short texts to it
    directly: the next step compares it with the bound.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is used yet."""
        self.used = 0
        self._next = _LOOK  # of `used`, when the bounds are looked at
        self._memory = 0  # bytes
        self._due = _LEFT  # when large values are taken off
        self._large: dict[int, Any] = {}

    def exhaust(self) -> None:
        """Mark the budget as used up, so that every later step is refused."""
        self.used = max(self.used, _MOST + (1 << _SHIFT))

    def end(self) -> None:
        """Let go of the values of this rendering."""
        self._large = {}

    @property
    def steps(self) -> int:
        """Steps used so far."""
        return self.used >> _SHIFT

    def step(self, cost: int = 1) -> None:
        self.touch(cost << _SHIFT)

    def counted(self, items: Iterable[Any], cost: int) -> Iterator[Any]:
        """The items; each costs `cost` steps."""
        cost <<= _SHIFT
        for item in items:
            self.used += cost
            if self.used > self._next:
                self.touch(0)
            yield item

    def touch(self, n: int) -> None:
        """An operation reads or writes n characters."""
        self.used += n
        if self.used > self._next:
            if self.used > _MOST:
                raise LimitError(f"it takes more than {MAX_STEPS} steps")
            self._next = min(self.used + _LOOK, _MOST)
            look()

    def room(self, n: int) -> None:
        """An operation will make a string of n characters, or of fewer, by copying."""
        if n > MAX_TEXT:
            raise LimitError(f"it makes a string of more than {MAX_TEXT} characters")
        self.touch(n >> _COPY)

    def pieces(self, n: int) -> None:
        """An operation will make n new values, or fewer, or a list of n."""
        if _PIECE * n > MAX_MEMORY:
            raise self._too_much()
        self.touch(_PIECE * n)

    def made(self, value: Any) -> Any:
        """Counts a value that an operation has made, and returns it. Its elements were counted when they were made."""
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
        """The large values that only this budget holds."""
        for key in list(self._large):
            if sys.getrefcount(self._large[key]) <= _ONLY_HERE:
                self._memory -= _size(self._large.pop(key))
        if self._memory > MAX_MEMORY:
            raise self._too_much()
        self._due = self._memory + _LEFT

    def _too_much(self) -> LimitError:
        return LimitError(f"it holds more than {MAX_MEMORY} bytes")

    def walk(self, *values: Any) -> tuple[int, int]:
        """Visits values and all that is in them, again wherever they occur again, as an operation does that compares
        them or writes them as text. Returns (characters that they have as text, at most; levels of values)."""
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
    """Bytes of a value with its elements, which may be new objects, too (a range makes its elements)."""
    return sys.getsizeof(value) + (0 if isinstance(value, str) else _PIECE // 2 * len(value))


def _parts(value: Any) -> list[Any]:
    """The inner values that are written when a value is written as text."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, _SERIES):
        return list(value)
    attribute = _HOLDERS.get(type(value).__name__)
    return [getattr(value, attribute)] if attribute else []
