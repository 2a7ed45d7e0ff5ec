"""Arguments written as JSON while they are read from another notation."""

import re

from .cursor import WHITE, Sink
from .parameter_types import STRING, escaped, quoted, typed

_NUMBER = re.compile(rf"[{WHITE}\d.eE+-]*")
_LONGEST_WORD = 8  # more than any of those below, to see that a text is none
# By which character a value of a type begins. Other characters begin a string.
_DIGITS = "-0123456789"
_BEGIN = {"object": "{", "array": "[", "number": _DIGITS, "integer": _DIGITS, "boolean": "tTfF", "null": "nN"}
_WORDS = ("true", "false", "null", "none")


class ObjectText:
    """An object: keys and values in turn."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._front = "{"

    def key(self, key: str) -> None:
        self.sink(f"{self._front}{quoted(key)}: ")
        self._front = ", "

    def close(self) -> None:
        self.sink("{}" if self._front == "{" else "}")


class TypedText:
    """A value that arrives as bare text, in pieces. What can only be a string is written at once.

    trail  what stands between the text and the mark behind it, if it does
    """

    def __init__(self, types: frozenset[str], trail: str, sink: Sink) -> None:
        self._types, self._trail, self._sink = types, trail, sink
        self._others = "".join(_BEGIN[kind] for kind in types if kind != "string")
        self._pieces: list[str] = []
        self._head = ""  # the beginning, white space before it left out
        self._held = ""  # of a string: the last characters, which may be the trail
        self._streams = types == STRING
        if self._streams:
            sink('"')

    def add(self, text: str) -> None:
        """More of the value's text, in pieces of any size. Told at once as soon as it can be nothing but a string."""
        if self._streams:
            self._write(text)
            return
        self._pieces.append(text)
        if "string" not in self._types:
            return
        if len(self._head) < _LONGEST_WORD:
            self._head = (self._head + text[: _LONGEST_WORD + len(self._trail)]).lstrip(WHITE)
        if not self._may_be_other(text):
            self._streams = True
            pieces, self._pieces = self._pieces, []
            self._sink('"')
            self._write("".join(pieces))

    def end(self) -> None:
        """The value is whole."""
        if self._streams:
            self._sink(escaped(self._held.removesuffix(self._trail)) + '"')
        else:
            self._sink(typed("".join(self._pieces).removesuffix(self._trail), self._types))

    def cut(self) -> None:
        """The answer ends in the middle of the value."""
        if self._streams:
            self._sink(escaped(self._held.removesuffix(self._trail)))

    def _may_be_other(self, text: str) -> bool:
        """Whether it may be of a type other than string, after one more piece."""
        if not self._head:
            return True
        if self._head[0] not in self._others:
            return False
        if self._head[0] in _DIGITS:
            return _NUMBER.fullmatch(text) is not None
        word = self._head.lower().rstrip(WHITE)
        return self._head[0] in "{[" or any(known.startswith(word) for known in _WORDS)

    def _write(self, text: str) -> None:
        text = self._held + text
        lengths = range(min(len(text), len(self._trail)), 0, -1)
        held = next((n for n in lengths if text.endswith(self._trail[:n])), 0)
        self._held = text[len(text) - held :]
        self._sink(escaped(text[: len(text) - held]))
