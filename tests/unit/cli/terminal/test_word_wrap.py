"""Lines break between words, as a terminal shows them; the words are those of the text."""

import random
from itertools import pairwise

import pyte
import pytest

from hybrid.cli.terminal.word_wrap import WordWrap, columns_of

COLUMNS = 24


def shown(text: str, sizes: list[int], width: int = COLUMNS) -> list[str]:
    """The lines on a screen after the text came in pieces of these sizes."""
    screen = pyte.HistoryScreen(width, 200)
    stream, wrap, at = pyte.Stream(screen), WordWrap(lambda: width), 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        stream.feed(wrap.push(text[at : at + size]).replace("\n", "\r\n"))
        at += size
    return [line.rstrip() for line in screen.display[: screen.cursor.y + 1]]


@pytest.mark.parametrize("sizes", [[1], [3, 1, 7], [1000]])
def test_words_stay_whole(sizes: list[int]) -> None:
    """Whatever the pieces are; a line that is exactly full does not add an empty one."""
    draw = random.Random(1)
    words = ["a" * draw.randrange(1, 12) for _ in range(150)] + ["x" * 12, "y" * 11, "z" * 24, "b"]
    lines = shown(" ".join(words), sizes)
    assert " ".join(lines).split() == words and all(lines)
    assert all(len(a) + 1 + len(b.split()[0]) > COLUMNS for a, b in pairwise(lines))


def test_line_feeds_and_long_words() -> None:
    assert shown("one\ntwo\n\nthree", [2]) == ["one", "two", "", "three"]
    long = "w" * 60
    assert "".join(shown(f"see {long} end", [1])).replace(" ", "") == f"see{long}end"


def test_wide_and_combining_characters() -> None:
    text = "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0" * 5
    lines = shown(text, [1])
    assert [len(line) for line in lines] == [12, 12, 6] and "".join(lines) == text
    assert [columns_of(c) for c in "a\u0301\u65e5\u00e9"] == [1, 0, 2, 1]
    assert shown("a \u65e5\u672c " * 4, [1], width=23)[0].startswith("a ")


def test_a_new_width_and_none() -> None:
    """A resized terminal counts from the next piece on; without a size the text is unchanged."""
    width = 40
    wrap = WordWrap(lambda: width)
    assert wrap.push("word " * 5) == "word " * 5
    width = 26
    assert wrap.push("word") == "w\x1b[26G\x1b[K\nword" and wrap.push(" more") == " more"
    width = 10
    assert wrap.push("word " * 9) == "word " * 9
