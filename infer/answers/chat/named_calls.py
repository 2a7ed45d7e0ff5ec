"""Reads calls written as a name between tags and a JSON object, <function=f>{"a": 1}</function>, while they arrive."""

import re
from collections.abc import Generator, Sequence

from .answer_parts import AnswerParts
from .cursor import Cursor, Sink
from .format import NamedCall
from .json_calls import json_arguments
from .marks_in_text import tokens

_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[\w-]*\d[\w-]*")
_WORD = re.compile(r"[\w-]*")


class NamedCalls:
    """Reads calls of one format. stops: tags that end the arguments wherever they occur outside strings."""

    def __init__(self, call: NamedCall, stops: Sequence[str]) -> None:
        self._before_arguments, self._stops = tokens(call.before_arguments), stops

    def read(self, cursor: Cursor, told: AnswerParts) -> Generator[None, None, bool]:
        """Reads one call from its name on. Returns False if it calls no known tool."""
        pieces: list[str] = []
        yield from cursor.run(_NAME, pieces.append)
        name = "".join(pieces)
        ids: list[str] = []
        if told.tool(name) is None or not (yield from varying_marks(cursor, self._before_arguments, ids.append)):
            return False
        cursor.forget()
        told.call(name, "".join(ids))
        yield from cursor.white()
        first = yield from cursor.peek()
        if first and first in '{["':
            yield from json_arguments(cursor, told.arguments, self._stops)
        elif first:
            yield from cursor.literal(("null",))
            told.arguments("{}")
        return True


def varying_marks(cursor: Cursor, marks: Sequence[str], sink: Sink | None = None) -> Generator[None, None, bool]:
    """Takes tags in order. Words with digits in them are ids or numbers: any word is accepted there. False: one is
    missing.

    sink  receives the ids
    """
    for mark in marks:
        yield from cursor.white()
        place = 0
        for word in _VARIABLE.finditer(mark):
            if not (yield from _literal(cursor, mark[place : word.start()])):
                return False
            pieces: list[str] = []
            yield from cursor.run(_WORD, pieces.append)
            if sink is not None and not word[0].isdigit():
                sink("".join(pieces))
            place = word.end()
        if not (yield from _literal(cursor, mark[place:])):
            return False
    return True


def _literal(cursor: Cursor, literal: str) -> Generator[None, None, bool]:
    return not literal or bool((yield from cursor.literal((literal,))))
