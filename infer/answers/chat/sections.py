"""Sections of calls: their marks, and the calls in them by the parser of their format.

What stands between a mark and a name is kept until the name is complete: if it is no tool's, all of it is text.
Brackets, commas and white space between marks may be there or not: models write them otherwise than their templates at
times.
"""

import re
from collections.abc import Generator, Sequence

from .cursor import Cursor
from .format import CallFormat, JsonCall, PythonCall
from .json_calls import json_call
from .told import Told

_TOKENS = re.compile(r"\[/?\w+\]|<[^<>\s]*>?|[^\s\[\]<>{},]+|\S")
_LIST = ("[", "]", ",")


def tokens(marks: str) -> list[str]:
    """Marks one by one: white space may stand between any two."""
    return _TOKENS.findall(marks)


class Sections:
    """Reads sections of one format.

    marks     with which one begins in text, the shortest that say so; none where only a whole answer is one
    """

    def __init__(self, format: CallFormat, told: Told) -> None:
        self._told, self._call = told, format.call
        self._is_list = isinstance(format.call, JsonCall | PythonCall)
        opening, closing = getattr(format.call, "opening", ""), getattr(format.call, "closing", "")
        self._opening = self._without_list(tokens(opening))
        if format.mark in format.begin:
            self._begin = self._without_list(tokens(_behind(format.mark, format.begin)))
            self._first = self._opening
        else:
            self._begin = []
            self._first = self._without_list(tokens(_behind(format.mark, opening)))
        self._closing = self._without_list(tokens(closing))
        self._between = self._without_list(tokens(format.between or ""))
        self._end = self._without_list(tokens(format.end))
        self._again = self._without_list(tokens(format.again))
        self._has_several = format.between is not None and bool(format.begin.strip())
        self._stops = [token for token in (*self._closing, *self._end) if token]
        self.mark = format.mark
        self.marks = [format.mark] if format.mark else []

    def _without_list(self, tokens: list[str]) -> list[str]:
        return [token for token in tokens if not (self._is_list and token in _LIST)]

    def may_begin(self, char: str) -> bool:
        """Whether an answer that begins with `char` may be a section without a mark."""
        return bool(char) and (char in "{[" or (isinstance(self._call, PythonCall) and (char.isalpha() or char == "_")))

    def read(self, cursor: Cursor) -> Generator[None, None, bool]:
        """Reads one section. False: it calls no tool, and `cursor.kept()` is a text."""
        cursor.keep()
        if self.mark:
            cursor.take(len(self.mark))
        yield from self._optional(cursor, self._begin)
        listed = self._is_list and bool((yield from self._mark(cursor, "[")))
        if not (yield from self._item(cursor, self._first)):
            return False
        while True:
            yield from self._optional(cursor, self._closing)
            if not (listed or self._has_several):
                break
            if listed and (yield from self._mark(cursor, "]")):
                yield from self._optional(cursor, self._closing)  # where a list stands in the marks of a call
                break
            if self._end and (yield from self._ahead(cursor, self._end[0])):
                break
            cursor.keep()
            yield from self._optional(cursor, [",", *self._between] if listed else self._between)
            if not (yield from self._item(cursor, self._opening)):
                self._told.say(cursor.kept())
                return True
        yield from self._optional(cursor, self._end)
        yield from self._go_on(cursor)
        return True

    def _go_on(self, cursor: Cursor) -> Generator[None, None, None]:
        """Passes over what stands between two sections, if another follows."""
        if self._again and self.mark:
            cursor.keep()
            yield from self._optional(cursor, self._again)
            if (yield from self._ahead(cursor, self.mark)):
                cursor.forget()
            else:
                self._told.say(cursor.kept())

    def _item(self, cursor: Cursor, opening: Sequence[str]) -> Generator[None, None, bool]:
        """One call: the parser begins behind the marks that open it."""
        told, call = self._told, self._call
        if isinstance(call, JsonCall):
            yield from self._optional(cursor, opening)
            yield from cursor.white()
            return (yield from json_call(cursor, told, call, self._stops))
        return False

    def _ahead(self, cursor: Cursor, mark: str) -> Generator[None, None, bool]:
        yield from cursor.white()
        return bool((yield from cursor.ahead((mark,))))

    def _mark(self, cursor: Cursor, mark: str) -> Generator[None, None, bool]:
        yield from cursor.white()
        return bool((yield from cursor.literal((mark,))))

    def _optional(self, cursor: Cursor, marks: Sequence[str]) -> Generator[None, None, None]:
        for mark in marks:
            yield from self._mark(cursor, mark)


def _behind(mark: str, marks: str) -> str:
    return marks[marks.index(mark) + len(mark) :] if mark in marks else marks
