"""A text that arrives in pieces is read like the whole text."""

import re
from collections.abc import Generator

from hypothesis import example, given
from hypothesis import strategies as st

from hybrid.infer.answers.chat.cursor import Cursor, Stops

LITERALS = st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3)


def steps(cursor: Cursor, stops: list[str], log: list[str]) -> Generator[None, None, None]:
    """Every operation of a cursor, in turn, up to the end."""
    while (yield from cursor.peek()):
        passed: list[str] = []
        cursor.keep()
        found = yield from cursor.until(Stops(stops), passed.append)
        log += ["until", "".join(passed), str(found), (yield from cursor.literal(stops))]
        log += ["run", str((yield from cursor.run(re.compile("b*"))))]
        log += ["white", str((yield from cursor.white()))]
        log += ["marks", str((yield from cursor.marks(stops[:2]))), cursor.kept()]
        if (yield from cursor.peek()):
            log.append(cursor.take(1))


def logged(pieces: list[str], stops: list[str]) -> list[str]:
    cursor, log = Cursor(), list[str]()
    reading = steps(cursor, stops, log)
    next(reading, None)
    for piece in pieces:
        cursor.feed(piece)
        next(reading, None)
    cursor.ended = True
    next(reading, None)
    return log


@given(st.text("ab ", max_size=12), LITERALS)
@example("xab", ["ab", "xabc"])  # one may have begun before the other, and does not go on
@example("xabd", ["ab", "xabc"])
@example("abc", ["ab", "abc"])  # one is the beginning of the other
def test_pieces_change_nothing(text: str, stops: list[str]) -> None:
    whole = logged([text], stops)
    assert logged(list(text), stops) == whole
    for i in range(1, len(text)):
        assert logged([text[:i], text[i:]], stops) == whole


@given(st.text("ab ", max_size=12), LITERALS)
def test_until_finds_the_first(text: str, stops: list[str]) -> None:
    cursor = Cursor()
    cursor.feed(text)
    cursor.ended = True
    passed: list[str] = []
    reading = cursor.until(Stops(stops), passed.append)
    first = min((text.find(stop) for stop in stops if stop in text), default=-1)
    try:
        next(reading)
    except StopIteration as end:
        assert end.value is (first >= 0)
    assert "".join(passed) == (text if first < 0 else text[:first])


def test_the_longest_literal_is_taken() -> None:
    for pieces in (["abcd"], list("abcd")):
        cursor, log = Cursor(), list[str]()

        def reader(cursor: Cursor = cursor, log: list[str] = log) -> Generator[None, None, None]:
            log.append((yield from cursor.ahead(("ab", "abc", "abx"))))
            log.append((yield from cursor.literal(("ab", "abc", "abx"))))
            log.append((yield from cursor.peek()))

        reading = reader()
        for piece in pieces:
            cursor.feed(piece)
            next(reading, None)
        assert log == ["abc", "abc", "d"]
