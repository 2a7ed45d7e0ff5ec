"""Reads a text that arrives in pieces: readers are generators that yield when they need more of it.

    def reader(cursor):
        if (yield from cursor.literal("<think>")):
            ...

A reader takes the same steps however the text is cut: each step waits until more text cannot change its result. Text
that was taken is never looked at again, and at most a literal's length waits: reading takes linear time.
"""

import re
from collections.abc import Callable, Generator, Sequence

WHITE = " \t\r\n"
_WHITE = re.compile(f"[{WHITE}]*")

Sink = Callable[[str], object]
"""Receives a text in pieces."""


class Cursor:
    """A position in the text. data[at:] has arrived and is not taken yet."""

    def __init__(self) -> None:
        self.data = ""
        self.at = 0
        self.ended = False
        self._kept: list[str] | None = None

    def feed(self, text: str) -> None:
        self.data = self.data[self.at :] + text
        self.at = 0

    def take(self, n: int) -> str:
        """Takes the next `n` characters, which must have arrived."""
        text = self.data[self.at : self.at + n]
        self.at += n
        if self._kept is not None:
            self._kept.append(text)
        return text

    def keep(self) -> None:
        """Records the text that is taken from here on, for `kept`."""
        self._kept = []

    def kept(self) -> str:
        """Returns the text taken since `keep`, and stops recording."""
        kept, self._kept = self._kept, None
        return "".join(kept or [])

    def forget(self) -> None:
        """Stops recording."""
        self._kept = None

    def peek(self) -> Generator[None, None, str]:
        """The next character, which is not taken; "" at the end of the text."""
        while self.at >= len(self.data):
            if self.ended:
                return ""
            yield
        return self.data[self.at]

    def run(self, pattern: re.Pattern[str], sink: Sink | None = None) -> Generator[None, None, int]:
        """Takes all that matches `pattern`, a repeated character class; returns the number of characters."""
        n = 0
        while True:
            match = pattern.match(self.data, self.at)
            if match is not None and match.end() > self.at:
                n += match.end() - self.at
                text = self.take(match.end() - self.at)
                if sink is not None:
                    sink(text)
            if self.at < len(self.data) or self.ended:
                return n
            yield

    def white(self, sink: Sink | None = None) -> Generator[None, None, int]:
        """Takes whitespace; returns the number of characters."""
        return (yield from self.run(_WHITE, sink))

    def ahead(self, literals: Sequence[str]) -> Generator[None, None, str]:
        """The longest of the literals that comes next; "" if none does. Takes nothing."""
        while True:
            left = len(self.data) - self.at
            longer = any(len(literal) > left and literal.startswith(self.data[self.at :]) for literal in literals)
            if not longer or self.ended:
                found = [literal for literal in literals if self.data.startswith(literal, self.at)]
                return max(found, key=len, default="")
            yield

    def literal(self, literals: Sequence[str]) -> Generator[None, None, str]:
        """Like `ahead`, but takes the literal."""
        found = yield from self.ahead(literals)
        if found:
            self.take(len(found))
        return found

    def mark(self, mark: str) -> Generator[None, None, bool]:
        """Takes whitespace, and a tag after it. Returns False if the tag is missing; the whitespace stays taken."""
        yield from self.white()
        return bool((yield from self.literal((mark,))))

    def marks(self, marks: Sequence[str]) -> Generator[None, None, bool]:
        """Takes tags in order, each with any whitespace before it. Returns False at the first that is missing."""
        for mark in marks:
            if not (yield from self.mark(mark)):
                return False
        return True

    def until(self, stops: "Stops", sink: Sink) -> Generator[None, None, bool]:
        """Takes the text before the first stop. Returns False if the text ends without one."""
        while True:
            found, begun = stops.find(self.data, self.at)
            place = found if self.ended else min(found, begun)
            if place > self.at:
                sink(self.take(place - self.at))
            if place == found < len(self.data):
                return True
            if self.ended:
                return False
            yield


class Stops:
    """Literals that a text is searched for, all at once."""

    def __init__(self, literals: Sequence[str]) -> None:
        self.literals = sorted({literal for literal in literals if literal}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)")
        self._longest = len(self.literals[0]) if self.literals else 0
        beginnings = {literal[:n] for literal in self.literals for n in range(1, len(literal))}
        self._first = (
            re.compile("[" + "".join(map(re.escape, {b[0] for b in beginnings})) + "]") if beginnings else None
        )
        self._beginnings = beginnings

    def find(self, text: str, at: int) -> tuple[int, int]:
        """Index of the first literal, and of the beginning of a literal that is not whole yet; len(text) for none."""
        match = self._pattern.search(text, at)
        found = match.start() if match is not None else len(text)
        start = max(at, len(text) - self._longest + 1)
        while self._first is not None and (begun := self._first.search(text, start)) is not None:
            if text[begun.start() :] in self._beginnings:
                return found, begun.start()
            start = begun.start() + 1
        return found, len(text)
