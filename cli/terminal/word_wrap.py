"""Breaks lines of a streamed answer between words, at the width that the terminal has at that moment."""

import unicodedata
from collections.abc import Callable

LEAST_COLUMNS = 20  # of a narrower terminal lines break anywhere
TAB = 8


class WordWrap:
    """`push` takes text that begins in the first column, and returns the text to write.

    The beginning of a word is written at once. If the word does not fit, it is erased and written on the next line.
    columns: the width of the terminal, None where it is unknown
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._columns = columns
        self.restart()

    def restart(self) -> None:
        """The cursor is in the first column."""
        self._column = 0
        self._word = ""  # the part of the word that has been written
        self._start = 0  # its column

    def push(self, text: str) -> str:
        """The text to write for `text`."""
        columns = self._columns()
        if columns is None or columns < LEAST_COLUMNS:
            self._pass(text)
            return text
        return "".join([self._written(character, columns) for character in text])

    def _pass(self, text: str) -> None:
        """Counts text that is written unchanged."""
        if "\n" in text:
            self.restart()
        self._column += sum(map(columns_of, text.rpartition("\n")[2]))
        self._word, self._start = "", self._column

    def _written(self, character: str, columns: int) -> str:
        if character == "\n":
            self.restart()
            return character
        width = columns_of(character) if character != "\t" else TAB - self._column % TAB
        fits = self._column + width <= columns
        if character in " \t":
            if not fits:  # the line feed takes its place
                self.restart()
                return "\n"
            self._advance(width)
            return character
        if width > 1:  # Chinese, Japanese and Korean lines break anywhere
            if not fits:
                self.restart()
            self._advance(width)
            return character if fits else "\n" + character
        if fits:
            self._word += character
            self._column += width
            return character
        word, start = self._word, self._start
        self.restart()
        if not start:  # the word is longer than a line, and the terminal breaks it
            self._advance(width)
            return character
        self._word = word + character
        self._column = sum(map(columns_of, self._word))
        return f"\x1b[{start + 1}G\x1b[K\n{self._word}"

    def _advance(self, width: int) -> None:
        self._column += width
        self._word, self._start = "", self._column


def columns_of(character: str) -> int:
    """Columns of a character in a terminal: 0, 1 or 2."""
    if " " <= character <= "~":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
