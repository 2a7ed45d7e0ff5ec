"""Writes an answer in a terminal: lines break between words, and code blocks are coloured once complete.

A complete block is written again over itself. That is safe only if the whole block is on the screen, nothing else has
written there, and the number of its rows is known; otherwise it stays plain. The text stays the same.
"""

import re
import sys
from dataclasses import dataclass, field

from .. import console
from .terminal import Screen
from .word_wrap import WordWrap

_OPENING = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
_LANGUAGE = re.compile(r"\{?\.?([\w+#.-]+)")
MOST_LINES, LONGEST = 500, 20_000  # limits of a block, in lines and characters: some lexers are slow
LEAST_COLUMNS = 8


@dataclass
class Block:
    """A code block that has begun. mark: its fence; n_disturbed: the screen's counter at its beginning."""

    mark: str
    language: str
    n_disturbed: int
    lines: list[str] = field(default_factory=list)

    def is_closed_by(self, line: str) -> bool:
        text = line.strip()
        return len(text) >= len(self.mark) and text == self.mark[0] * len(text)


class CodeText:
    """`write` takes every piece of an answer, which begins in the first column.

    screen: None: no colours. is_past: the text was written before; it is dim, and its code is not coloured.
    """

    def __init__(self, screen: Screen | None = None, *, is_past: bool = False) -> None:
        self._is_past = is_past
        self._screen = screen if console.has_colours(sys.stdout) else None
        self._is_terminal = sys.stdout.isatty()
        self._line = ""  # text since the last line feed
        self._block: Block | None = None
        self._wrap = WordWrap(self._columns)

    def write(self, text: str, *, ours: bool = False) -> None:
        """Writes to stdout. On a terminal, control characters are removed unless the text is `ours`."""
        text = console.harmless(text) if self._is_terminal and not ours else text
        if self._screen is None:
            console.out(text, end="")
            return
        ready = ""
        for part in re.findall(r"[^\n]*\n|[^\n]+", text):
            ready += part if ours or self._block is not None else self._wrap.push(part)
            self._line += part
            if not part.endswith("\n"):
                continue
            line, self._line = self._line[:-1], ""
            self._wrap.restart()
            again = self._ended(line)
            if again:
                # flush first: moving the cursor relies on it
                console.out(ready, end="")
                ready = again
        console.out(console.dim(ready) if self._is_past else ready, end="")

    def disturbed(self) -> None:
        """Call when something else was written to the screen, which ended its line."""
        self._wrap.restart()
        if self._block is not None:
            self._block.n_disturbed = -1

    def _columns(self) -> int | None:
        size = None if self._screen is None else self._screen.columns_and_rows
        return None if size is None else size[0]

    def _ended(self, line: str) -> str:
        """Handles a complete line; returns the text to write over the block that ends with it, usually ""."""
        assert self._screen is not None
        block = self._block
        if block is None:
            opened = _OPENING.match(line)
            if opened is not None:
                language = _LANGUAGE.match(opened["info"])
                size_is_known = self._screen.columns_and_rows is not None
                n = self._screen.n_disturbed if size_is_known else -1
                self._block = Block(opened["fence"], language[1] if language else "", n)
            return ""
        if not block.is_closed_by(line):
            block.lines.append(line)
            return ""
        self._block = None
        return "" if self._is_past else self._over(block, line)

    def _over(self, block: Block, closing: str) -> str:
        assert self._screen is not None
        size = self._screen.columns_and_rows
        if size is None or block.n_disturbed != self._screen.n_disturbed:
            return ""
        if not block.language or not block.lines or len(block.lines) > MOST_LINES:
            return ""
        columns, rows = size
        taken = [rows_taken(line, columns) for line in (*block.lines, closing)]
        n = sum(each or 0 for each in taken)
        code = "\n".join(block.lines)
        if None in taken or n >= rows or len(code) > LONGEST:  # the cursor needs a row also
            return ""
        coloured = console.coloured_code(code, block.language)
        return f"\r\x1b[{n}A\x1b[J{coloured}\n{closing}\n" if coloured else ""


def rows_taken(line: str, columns: int) -> int | None:
    """Terminal rows of a line; None: it depends on the terminal.

    Terminals give characters beyond ASCII zero, one or two columns, and never begin a two-column one in the last
    column.
    After a row that is exactly full, some terminals add an empty one.
    """
    if columns < LEAST_COLUMNS:
        return None
    plain = sum(" " <= char <= "~" for char in line)
    tabs = line.count("\t")
    others = len(line) - plain - tabs
    least, most = plain + tabs, plain + 8 * tabs + 2 * others
    fewest = max(1, -(-least // columns))
    return fewest if most // (columns - (others > 0)) + 1 == fewest else None
