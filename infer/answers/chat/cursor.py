"""A text that arrives in pieces, read as if it were there: readers are generators that yield where it ends so far.

    def reader(cursor):                            # a Reading
        if (yield from cursor.literal("<think>")):
            ...

Whatever the pieces are, a reader takes the same steps: each of these waits until what follows cannot change its result.
Nothing that was taken is looked at again, and at most a literal's length waits: reading is linear in the text.
"""

import re
from collections.abc import Callable, Generator, Sequence

WHITE = " \t\r\n"
_WHITE = re.compile(f"[{WHITE}]*")

Sink = Callable[[str], object]
"""What takes a text in pieces."""


class Cursor:
    """A place in the text. data[at:]: what has arrived and was not taken."""

    def __init__(self) -> None:
        self.data = ""
        self.at = 0
        self.ended = False
        self._kept: list[str] | None = None

    def feed(self, text: str) -> None:
        self.data = self.data[self.at :] + text
        self.at = 0

    def take(self, n: int) -> str:
        """The next `n` characters, which have arrived."""
        text = self.data[self.at : self.at + n]
        self.at += n
        if self._kept is not None:
            self._kept.append(text)
        return text

    def keep(self) -> None:
        """What is taken from here on may be asked for again."""
        self._kept = []

    def kept(self) -> str:
        """What was taken since `keep`; nothing is kept any more."""
        kept, self._kept = self._kept, None
        return "".join(kept or [])

    def forget(self) -> None:
        """Nothing is kept any more."""
        self._kept = None

    def peek(self) -> Generator[None, None, str]:
        """The next character; "" at the end of the text."""
        while self.at >= len(self.data):
            if self.ended:
                return ""
            yield
        return self.data[self.at]

    def run(self, pattern: re.Pattern[str], sink: Sink | None = None) -> Generator[None, None, int]:
        """Takes all that fits `pattern`, a class of characters repeated, and tells how many they were."""
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
        """Takes white space."""
        return (yield from self.run(_WHITE, sink))

    def ahead(self, literals: Sequence[str]) -> Generator[None, None, str]:
        """The longest of the literals that the text goes on with; "" for none. Takes nothing."""
        while True:
            left = len(self.data) - self.at
            longer = any(len(literal) > left and literal.startswith(self.data[self.at :]) for literal in literals)
            if not longer or self.ended:
                found = [literal for literal in literals if self.data.startswith(literal, self.at)]
                return max(found, key=len, default="")
            yield

    def literal(self, literals: Sequence[str]) -> Generator[None, None, str]:
        """As `ahead`, and takes it."""
        found = yield from self.ahead(literals)
        if found:
            self.take(len(found))
        return found

    def mark(self, mark: str) -> Generator[None, None, bool]:
        """Takes white space, and a mark behind it. False: another text is there."""
        yield from self.white()
        return bool((yield from self.literal((mark,))))

    def marks(self, marks: Sequence[str]) -> Generator[None, None, bool]:
        """Takes marks one behind the other, white space before each or not. False: one is missing."""
        for mark in marks:
            if not (yield from self.mark(mark)):
                return False
        return True

    def until(self, stops: "Stops", sink: Sink) -> Generator[None, None, bool]:
        """Takes the text before the first of the stops; False: none came before the end."""
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
        """Where the first literal is, and where one may have begun that is not whole yet; len(text) where none."""
        match = self._pattern.search(text, at)
        found = match.start() if match is not None else len(text)
        start = max(at, len(text) - self._longest + 1)
        while self._first is not None and (begun := self._first.search(text, start)) is not None:
            if text[begun.start() :] in self._beginnings:
                return found, begun.start()
            start = begun.start() + 1
        return found, len(text)
