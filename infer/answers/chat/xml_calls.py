"""Reads calls with a tag per parameter, <function=f>\\n<parameter=a>\\nx\\n</parameter>, while they arrive.

A value is the text between tags, less a line feed on either side if the format has one there; the tool's schema decides
whether it is a string or JSON. The tag after a value ends it only if the format goes on after that tag: a value may
contain the tag.
"""

import re
from collections.abc import Generator, Sequence

from .answer_parts import AnswerParts
from .argument_text import ObjectText, TypedText
from .cursor import WHITE, Cursor, Stops
from .format import XmlCall
from .marks_in_text import tokens

_NAME = re.compile(r"[A-Za-z0-9_.-]*")


class XmlCalls:
    """Reads calls of one format."""

    def __init__(self, call: XmlCall) -> None:
        self._after_name, self._before_key = tokens(call.after_name), tokens(call.before_key)
        self._after_key, self._after_value = tokens(call.after_key), tokens(call.after_value)
        self._lead = call.after_key[len(call.after_key.rstrip(WHITE)) :]
        self._trail = call.after_value[: len(call.after_value) - len(call.after_value.lstrip(WHITE))]
        self._closing = tokens(call.closing)
        self._key_stops = Stops(self._after_key[:1])
        self._value_stops = Stops([*self._after_value[:1], *self._closing[:1]])
        self._next = [*self._before_key[:1], *self._closing[:1], *tokens(call.opening)[:1]]

    def read(self, cursor: Cursor, told: AnswerParts) -> Generator[None, None, bool]:
        """Reads one call from its name on. Returns False if it calls no known tool."""
        pieces: list[str] = []
        yield from cursor.run(_NAME, pieces.append)
        name = "".join(pieces)
        if told.tool(name) is None:
            return False
        if not (yield from cursor.marks(self._after_name)):
            return False
        if not self._after_name and not (yield from self._goes_on(cursor)):
            return False
        cursor.forget()
        told.call(name)
        arguments = ObjectText(told.arguments)
        while (yield from cursor.marks(self._before_key)):
            pieces = []
            if not (yield from cursor.until(self._key_stops, pieces.append)):
                return True  # cut off
            key = "".join(pieces).strip(WHITE)
            yield from cursor.marks(self._after_key)
            arguments.key(key)
            value = TypedText(told.types(name, key), self._trail, told.arguments)
            if not (yield from self._value(cursor, value)):
                return True
        arguments.close()
        return True

    def _value(self, cursor: Cursor, value: TypedText) -> Generator[None, None, bool]:
        """Reads a value and its closing tag, or the call's if that is missing. Returns False if it is cut off."""
        if self._lead:
            yield from cursor.literal((self._lead,))
        while (yield from cursor.until(self._value_stops, value.add)):
            passed: list[str] = []
            is_end = yield from self._passes(cursor, self._after_value, passed)
            if is_end:
                yield from cursor.white(passed.append)
                is_end = yield from self._goes_on(cursor)
            elif not "".join(passed).strip(WHITE):
                is_end = yield from self._passes(cursor, self._closing, passed)
            if is_end:
                value.end()
                return True
            value.add("".join(passed))
        value.cut()
        return False

    def _passes(self, cursor: Cursor, marks: Sequence[str], passed: list[str]) -> Generator[None, None, bool]:
        """Takes tags in order and records them in `passed`. Returns False at the first that is missing."""
        for mark in marks:
            yield from cursor.white(passed.append)
            if not (yield from cursor.literal((mark,))):
                return False
            passed.append(mark)
        return True

    def _goes_on(self, cursor: Cursor) -> Generator[None, None, bool]:
        """Whether the next tag may follow a value, or the answer ends here."""
        yield from cursor.white()
        return not (yield from cursor.peek()) or bool((yield from cursor.ahead(self._next)))
