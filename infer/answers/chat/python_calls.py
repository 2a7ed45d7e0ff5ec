"""Reads calls in Python's notation, f(a="x", b=[1, True]), while they arrive.

A string is passed on as it arrives, any other value when it is complete. A value that is not a literal becomes a
string. A value without a name gets the name of the parameter at its index in the tool's schema.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from .answer_parts import AnswerParts
from .argument_text import ObjectText
from .cursor import Cursor, Sink
from .parameter_types import STRING, escaped, quoted
from .python_literals import LiteralSource, python_string
from .tools import Tool

_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_WORD = re.compile(r"\w*")
_QUOTES = ("'", '"')


class PythonCalls:
    """Reads calls. stops: tags that end a call wherever they occur outside strings."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops

    def read(self, cursor: Cursor, told: AnswerParts) -> Generator[None, None, bool]:
        """Reads one call. Returns False if it calls no known tool."""
        pieces: list[str] = []
        yield from cursor.run(_NAME, pieces.append)
        name = "".join(pieces)
        tool = told.tool(name)
        if tool is None or not (yield from cursor.mark("(")):
            return False
        cursor.forget()
        told.call(name)
        arguments = ObjectText(told.arguments)
        places = iter(_properties(tool))
        while not (yield from cursor.mark(")")):
            if (yield from cursor.ahead(self._stops)):
                break
            if not (yield from self._argument(cursor, tool, told, arguments, places)):
                return True  # cut off
            if not (yield from cursor.mark(",")):
                if not (yield from cursor.mark(")")) and not (yield from cursor.peek()):
                    return True
                break
        arguments.close()
        return True

    def _argument(
        self, cursor: Cursor, tool: Tool, told: AnswerParts, arguments: ObjectText, places: Iterator[str]
    ) -> Generator[None, None, bool]:
        """Reads one argument. Returns False if the answer ends in it."""
        pieces: list[str] = []
        yield from cursor.run(_WORD, pieces.append)
        word = "".join(pieces)
        is_named = bool(word) and (yield from cursor.mark("="))
        after = yield from cursor.peek()
        if not is_named and (not after or (not word and after in ",]}")):
            return bool(after)
        key, word = (word, "") if is_named else (next(places, ""), word)
        if not key:
            return (yield from LiteralSource(word).read(cursor, self._stops))
        arguments.key(key)
        yield from cursor.white()
        if not word and (yield from cursor.peek()) in _QUOTES:
            if not (yield from _strings(cursor, arguments.sink, self._stops)):
                return False
            if (yield from cursor.peek()) not in (",", ")"):  # not a literal: skip the rest
                return (yield from LiteralSource().read(cursor, self._stops))
            return True
        source = LiteralSource(word)
        if not (yield from source.read(cursor, self._stops)):
            return False
        is_string = key in _properties(tool) and told.types(tool.name, key) == STRING
        arguments.sink(_json_of(source, is_string=is_string))
        return True


def _properties(tool: Tool) -> dict[str, Any]:
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    return properties


def _strings(cursor: Cursor, sink: Sink, stops: Sequence[str]) -> Generator[None, None, bool]:
    """Reads adjacent strings as one. Returns False if the answer ends in them."""
    sink('"')
    while (yield from cursor.peek()) in _QUOTES:
        if not (yield from python_string(cursor, lambda text: sink(escaped(text)), stops)):
            return False
        yield from cursor.white()
    sink('"')
    return True


def _json_of(source: LiteralSource, *, is_string: bool) -> str:
    """The value as JSON. is_string: by the schema; unquoted values other than None are then text."""
    json = source.json()
    if json is None or (is_string and json != "null" and not json.startswith('"')):
        return quoted(source.text())
    return json
