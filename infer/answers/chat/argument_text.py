"""Writes arguments as JSON while they are read from another notation."""

import re

from .cursor import WHITE, Sink
from .parameter_types import STRING, escaped, quoted, typed

_NUMBER = re.compile(rf"[{WHITE}\d.eE+-]*")
_LONGEST_WORD = 8  # longer than any of the words below: enough to rule them out
# The characters with which a value of a type may begin. All other characters begin a string.
_DIGITS = "-0123456789"
_BEGIN = {"object": "{", "array": "[", "number": _DIGITS, "integer": _DIGITS, "boolean": "tTfF", "null": "nN"}
_WORDS = ("true", "false", "null", "none")


class ObjectText:
    """Writes an object: keys and values in turn."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._front = "{"

    def key(self, key: str) -> None:
        self.sink(f"{self._front}{quoted(key)}: ")
        self._front = ", "

    def close(self) -> None:
        self.sink("{}" if self._front == "{" else "}")


class TypedText:
    """Writes a value that arrives as bare text, in pieces. Text that can only be a string is passed on at once.

    trail  the format's text between the value and the tag after it; dropped if it is there
    """

    def __init__(self, types: frozenset[str], trail: str, sink: Sink) -> None:
        self._types, self._trail, self._sink = types, trail, sink
        self._others = "".join(_BEGIN[kind] for kind in types if kind != "string")
        self._pieces: list[str] = []
        self._head = ""  # the beginning, without leading whitespace
        self._held = ""  # of a string: its end, which may be the trail
        self._streams = types == STRING
        if self._streams:
            sink('"')

    def add(self, text: str) -> None:
        """Adds a piece of the value's text."""
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
        """The value is complete."""
        if self._streams:
            self._sink(escaped(self._held.removesuffix(self._trail)) + '"')
        else:
            self._sink(typed("".join(self._pieces).removesuffix(self._trail), self._types))

    def cut(self) -> None:
        """The answer ends in the middle of the value."""
        if self._streams:
            self._sink(escaped(self._held.removesuffix(self._trail)))

    def _may_be_other(self, text: str) -> bool:
        """Whether the value may still be of a type other than string, now that `text` was added."""
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
