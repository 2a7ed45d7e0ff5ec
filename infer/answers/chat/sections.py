"""Sections of calls: reads their tags, and the calls in them with the parser of their format.

The text between a tag and a name is kept until the name is complete: if it is not a tool's, all of it is text.
Brackets, commas and whitespace between tags are optional: models sometimes deviate from their templates.
"""

from collections.abc import Generator, Sequence

from .answer_parts import AnswerParts
from .cursor import Cursor
from .format import Call, CallFormat, JsonCall, NamedCall, PythonCall, XmlCall
from .json_calls import JsonCalls
from .marks_in_text import tokens
from .named_calls import NamedCalls, varying_marks
from .python_calls import PythonCalls
from .xml_calls import XmlCalls

_LIST = ("[", "]", ",")


class Sections:
    """Reads sections of one format.

    marks          tags that begin a section; empty if only a whole answer can be one
    marks_in_text  tags that begin a section outside thoughts
    """

    def __init__(self, format: CallFormat, told: AnswerParts) -> None:
        opening, closing = format.call.opening, format.call.closing
        self._told = told
        self._is_list = isinstance(format.call, JsonCall | PythonCall)
        self._is_python = isinstance(format.call, PythonCall)
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
        self._again = tokens(format.again)
        self._has_several = format.between is not None and bool(format.begin.strip())
        stops = [mark for mark in (*self._closing, *self._end) if not set(mark) <= set('[]{},:"')]
        self._parser = _parser(format.call, stops)
        self.mark = format.mark
        self.marks = [format.mark] if format.mark else []
        self._short = short_mark(format) or ""
        self.marks_in_text = [*self.marks, *([self._short] if self._short else [])]

    def _without_list(self, tokens: list[str]) -> list[str]:
        return [token for token in tokens if not (self._is_list and token in _LIST)]

    def may_begin(self, char: str) -> bool:
        """Whether an answer that begins with `char` may be a section without a tag."""
        return bool(char) and (char in "{[" or (self._is_python and (char.isalpha() or char == "_")))

    def read(self, cursor: Cursor) -> Generator[None, None, bool]:
        """Reads one section. Returns False if it contains no call; the text read is then in `cursor.kept()`."""
        cursor.keep()
        is_short = (yield from cursor.literal(self.marks_in_text)) == self._short != ""
        yield from self._optional(cursor, [] if is_short else self._begin)
        listed = self._is_list and bool((yield from cursor.mark("[")))
        if listed and self._end and (yield from cursor.marks(["]", *self._end])):
            cursor.forget()
            self._told.pass_over()  # an empty list: models write it if no tool helps
            return False
        if not (yield from self._item(cursor, [] if is_short else self._first)):
            return False
        while True:
            yield from self._optional(cursor, self._closing)
            if not (listed or self._has_several):
                break
            cursor.keep()
            yield from self._optional(cursor, [",", *self._between] if listed else self._between)
            if listed and (yield from cursor.mark("]")):
                yield from self._optional(cursor, self._closing)  # the tags of one call enclose the whole list
                break
            if self._end and (yield from self._ahead(cursor, self._end[0])):
                break
            if not (yield from self._item(cursor, self._opening)):
                self._told.say(cursor.kept())
                return True
        cursor.forget()
        yield from self._optional(cursor, self._end)
        yield from self._go_on(cursor)
        return True

    def _go_on(self, cursor: Cursor) -> Generator[None, None, None]:
        """Skips the text between two sections, if another follows."""
        if self._again and self.mark:
            cursor.keep()
            yield from self._optional(cursor, self._again)
            if (yield from self._ahead(cursor, self.mark)):
                cursor.forget()
            else:
                self._told.say(cursor.kept())

    def _item(self, cursor: Cursor, opening: Sequence[str]) -> Generator[None, None, bool]:
        """Reads one call and the tags that open it."""
        if self._is_list:
            yield from self._optional(cursor, opening)
        elif not (yield from varying_marks(cursor, opening)):
            return False
        yield from cursor.white()
        return (yield from self._parser.read(cursor, self._told))

    def _ahead(self, cursor: Cursor, mark: str) -> Generator[None, None, bool]:
        yield from cursor.white()
        return bool((yield from cursor.ahead((mark,))))

    def _optional(self, cursor: Cursor, marks: Sequence[str]) -> Generator[None, None, None]:
        for mark in marks:
            yield from cursor.mark(mark)


def short_mark(format: CallFormat) -> str | None:
    """The tag just before a name, if models may omit the tags before it, else None."""
    opening = tokens(format.call.opening) if isinstance(format.call, XmlCall) else []
    last = opening[-1] if opening else ""
    return last if last.startswith("<") and last != format.mark else None


def _parser(call: Call, stops: Sequence[str]) -> JsonCalls | NamedCalls | PythonCalls | XmlCalls:
    match call:
        case JsonCall():
            return JsonCalls(call, stops)
        case NamedCall():
            return NamedCalls(call, stops)
        case PythonCall():
            return PythonCalls(stops)
        case XmlCall():
            return XmlCalls(call)


def _behind(mark: str, marks: str) -> str:
    return marks[marks.index(mark) + len(mark) :] if mark in marks else marks
