"""Reads calls written as JSON objects, {"name": "f", "arguments": {...}}, while they arrive.

Keys may come in any order: arguments before the name wait for it. Other keys are skipped. Arguments are passed on as
the model wrote them; a JSON string as arguments ("{\\"a\\": 1}") is unwrapped. JSON is read leniently: only the ends of
strings and brackets matter, so a mistake of the model reaches the caller in the arguments and loses no call.
"""

import json
import re
from collections.abc import Generator, Sequence

from .answer_parts import AnswerParts
from .cursor import WHITE, Cursor, Sink
from .format import JsonCall
from .parameter_types import escaped

_IN_STRING = re.compile(r'[^"\\]*')
_BETWEEN_STRINGS = re.compile(r"[\s\w.,:+-]*")
_SCALAR = re.compile(r"[\w.+-]*")
_HEX = "0123456789abcdefABCDEF"
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class JsonCalls:
    """Reads calls of one format. stops: tags that end a call wherever they occur outside strings."""

    def __init__(self, call: JsonCall, stops: Sequence[str]) -> None:
        self._name_key, self._argument_keys = call.name_key, (call.arguments_key, "arguments", "parameters")
        self._stops = stops

    def read(self, cursor: Cursor, told: AnswerParts) -> Generator[None, None, bool]:
        """Reads one object. Returns False if it calls no known tool."""
        if not (yield from cursor.literal(("{",))):
            return False
        named, given = False, False
        early: list[str] = []  # arguments that came before the name
        while (key := (yield from _text(cursor))) is not None:
            yield from cursor.white()
            if not (yield from cursor.literal((":",))):
                break
            yield from cursor.white()
            if key == self._name_key and not named:
                name = yield from _text(cursor)
                if name is None or told.tool(name) is None:
                    return False
                named = True
                cursor.forget()
                told.call(name)
                told.arguments("".join(early))
            elif key in self._argument_keys and not given:
                given = True
                yield from json_arguments(cursor, told.arguments if named else early.append, self._stops)
            else:
                yield from _value(cursor, _nothing, self._stops)
            yield from cursor.white()
            if not (yield from cursor.literal((",",))):
                break
        if named and (yield from cursor.literal(("}",))) and not given:
            told.arguments("{}")
        return named


def json_arguments(cursor: Cursor, sink: Sink, stops: Sequence[str]) -> Generator[None, None, None]:
    """Reads the value of a call's arguments: an object, or whatever the model wrote. Nothing and null become {}."""
    first = yield from cursor.peek()
    if first and first in "{[":
        yield from _value(cursor, sink, stops)
    elif first == '"':
        unwrapped = _Unwrapped(sink)
        if (yield from _unescaped(cursor, unwrapped.add)):
            unwrapped.end()
    elif first:
        pieces: list[str] = []
        yield from cursor.run(_SCALAR, pieces.append)
        text = "".join(pieces)
        sink("{}" if text in ("", "null") else text)


class _Unwrapped:
    """The value of a JSON string: an object is passed on raw, any other text as a JSON string again."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._front: list[str] | None = []  # leading whitespace, until the next character decides
        self._is_text = False

    def add(self, text: str) -> None:
        """More of the string's value, unescaped."""
        if self._front is not None:
            self._front.append(text)
            if not text.strip(WHITE):
                return
            text, self._front = "".join(self._front), None
            self._is_text = not text.lstrip(WHITE).startswith("{")
            if self._is_text:
                self._sink('"')
        self._sink(escaped(text) if self._is_text else text)

    def end(self) -> None:
        """The string has ended. If it was empty or whitespace, the arguments are `{}`."""
        if self._front is not None:
            self._sink("{}")
        elif self._is_text:
            self._sink('"')


def _nothing(_text: str) -> None:
    pass


def _value(cursor: Cursor, sink: Sink, stops: Sequence[str]) -> Generator[None, None, None]:
    """Copies a value as written, up to its closing bracket or to a stop before that."""
    first = yield from cursor.peek()
    if first == '"':
        yield from _string(cursor, sink)
        return
    if not first or first not in "{[":
        yield from cursor.run(_SCALAR, sink)
        return
    depth = 0
    while True:
        yield from cursor.run(_BETWEEN_STRINGS, sink)
        char = yield from cursor.peek()
        if char == '"':
            yield from _string(cursor, sink)
            continue
        if not char or (yield from cursor.ahead(stops)):
            return
        sink(cursor.take(1))
        depth += (char in "{[") - (char in "}]")
        if depth <= 0 and char in "}]":
            return


def _string(cursor: Cursor, sink: Sink) -> Generator[None, None, bool]:
    """Copies a string as written, with its quotes. Returns False if it is not closed."""
    sink(cursor.take(1))
    while True:
        yield from cursor.run(_IN_STRING, sink)
        char = yield from cursor.peek()
        if not char:
            return False
        sink(cursor.take(1))
        if char == '"':
            return True
        if (yield from cursor.peek()):
            sink(cursor.take(1))


def _text(cursor: Cursor) -> Generator[None, None, str | None]:
    """The value of the string that comes next, after whitespace; None if no valid JSON string does."""
    yield from cursor.white()
    if (yield from cursor.peek()) != '"':
        return None
    pieces: list[str] = []
    if not (yield from _string(cursor, pieces.append)):
        return None
    try:
        return str(json.loads("".join(pieces), strict=False))
    except ValueError:
        return None


class _Surrogates:
    """Passes text and characters on to a sink, and joins surrogate pairs.

    A lone half stays an escape, since it goes into JSON again.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, self._half = sink, ""

    def end(self) -> None:
        """No second half follows."""
        if self._half:
            self._sink(f"\\u{ord(self._half):04x}")
            self._half = ""

    def say(self, text: str) -> None:
        self.end()
        self._sink(text)

    def code(self, code: int) -> None:
        """A character as a UTF-16 code unit."""
        if self._half and 0xDC00 <= code < 0xE000:
            pair, self._half = 0x10000 + ((ord(self._half) - 0xD800) << 10) + (code - 0xDC00), ""
            self._sink(chr(pair))
        elif 0xD800 <= code < 0xDC00:
            self.end()
            self._half = chr(code)
        elif 0xDC00 <= code < 0xE000:
            self.say(f"\\u{code:04x}")
        else:
            self.say(chr(code))


def _unescaped(cursor: Cursor, sink: Sink) -> Generator[None, None, bool]:
    """Passes a string's value on while it arrives. Returns False if the string is not closed."""
    said = _Surrogates(sink)
    cursor.take(1)
    while True:
        yield from cursor.run(_IN_STRING, said.say)
        char = yield from cursor.peek()
        if char == "":
            return False
        cursor.take(1)
        if char == '"':
            said.end()
            return True
        char = yield from cursor.peek()
        if char != "u":
            if char:
                cursor.take(1)
                said.say(_ESCAPES.get(char, char))
            continue
        cursor.take(1)
        digits = ""
        while len(digits) < 4 and (digit := (yield from cursor.peek())) and digit in _HEX:
            digits += cursor.take(1)
        if len(digits) < 4:
            said.say(f"\\u{digits}")
        else:
            said.code(int(digits, 16))
