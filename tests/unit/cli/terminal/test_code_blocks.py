"""Which code blocks are rewritten in colours, with the same text on the screen."""

import io
from collections.abc import Callable
from typing import Any

import pyte
import pytest

from hybrid.cli.terminal import code_blocks, terminal
from hybrid.cli.terminal.code_blocks import CodeText, rows_taken
from hybrid.cli.terminal.terminal import Screen

ROWS, COLUMNS = 12, 40
Show = Callable[..., "Shown"]


class Shown:
    """A screen after an answer was written."""

    def __init__(self, columns: int) -> None:
        self.screen = pyte.HistoryScreen(columns, ROWS, history=1000)

    def write(self, text: str) -> None:
        pyte.Stream(self.screen).feed(text.replace("\n", "\r\n"))

    @property
    def lines(self) -> list[str]:
        """All lines, including those scrolled above the screen."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return [line.rstrip() for line in [*above, *self.screen.display]]

    def colours(self, text: str) -> set[str]:
        ((y, x),) = [(y, line.index(text)) for y, line in enumerate(self.screen.display) if text in line]
        return {self.screen.buffer[y][x + i].fg for i in range(len(text))}


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Writes an answer."""

    class Stdout(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(*pieces: str, columns: int = COLUMNS, coloured: bool = True) -> Shown:
        out = Stdout()
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.delenv("NO_COLOR", raising=False)
            patch.setattr(terminal, "_size", lambda: (columns, ROWS))
            patch.setattr("sys.stdout", out)
            text = CodeText(Screen() if coloured else None)
            for piece in pieces:
                text.write(piece)
        on = Shown(columns)
        on.write(out.getvalue())
        return on

    return shown


@pytest.mark.parametrize(
    ("text", "coloured"),
    [
        ("```\ndef f(): pass\n```\n", False),  # without a language
        ("```nosuchlanguage\ndef f(): pass\n```\n", False),
        ("~~~python\ndef f(): pass\n~~~\n", True),
        ("- a list\n  ```python\n  def f(): pass\n  ```\n", True),
        ("````python\ndef f(): '''\n```\n'''\n````\n", True),  # a shorter fence is code
        ("```python title=a.py\ndef f(): pass\n```\n", True),
        ("```{.python}\ndef f(): pass\n```\n", True),
        ("```python\ndef f(): pass\n", False),  # not whole
        ("see ```python\ndef f(): pass\n```\n", False),  # no fence
        ("```python\n```\ndef f(): pass\n", False),
    ],
)
def test_which_blocks(text: str, coloured: bool, show: Show) -> None:
    t = show(text)
    assert t.lines == show(text, coloured=False).lines == show(*text).lines
    assert t.colours("def") == ({"brightblue"} if coloured else {"default"})


@pytest.mark.parametrize("n", range(5, 14))
def test_a_block_that_does_not_fit_stays_plain(n: int, show: Show) -> None:
    """Lines above the screen cannot be rewritten: of 12 rows, 10 of code and the fence fit."""
    text = "So:\n```python\n" + "".join(f"def f{i}(): pass\n" for i in range(n)) + "```\n"
    t = show(text)
    assert t.lines == show(text, coloured=False).lines
    assert t.colours(f"def f{n - 1}") == ({"brightblue", "default", "brightgreen"} if n <= 10 else {"default"})


@pytest.mark.parametrize("width", [30, 39, 40, 41, 79, 80, 81, 100, 120])
@pytest.mark.parametrize("char", ["a", "漢", "é", "e\u0301", "\u200b", "👩\u200d💻", "\t"])
def test_lines_of_any_width(width: int, char: str, show: Show) -> None:
    """However a terminal wraps them, the lines above and below the block stay."""
    text = f"above\n```python\nx = '{char * width}'\ny = 1\n```\nbelow\n"
    assert show(text).lines == show(text, coloured=False).lines


def test_a_line_over_several_rows_is_coloured(show: Show) -> None:
    text = f"above\n```python\nx = '{'a' * 85}'\n```\nbelow\n"
    t = show(text)
    assert t.colours("'aaa") == {"brown"} and t.colours("below") == {"default"}
    assert t.lines == show(text, coloured=False).lines


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("", 1), ("a" * 39, 1), ("a" * 40, None), ("a" * 41, 2), ("a" * 80, None), ("a" * 81, 3),
        ("漢" * 19, 1), ("漢" * 20, None), ("é" * 19, 1), ("é" * 30, None), ("a" * 41 + "漢" * 5, 2),
        ("\t" * 4 + "a" * 3, 1), ("\t" * 5, None), ("\t" + "a" * 33, None),
    ],
)  # fmt: skip
def test_rows(line: str, rows: int | None) -> None:
    assert rows_taken(line, 40) == rows


def test_terminals_without_room() -> None:
    assert rows_taken("a", 4) is None


def test_long_blocks_are_left_alone(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """Highlighting long code takes long in some languages."""
    asked: list[Any] = []
    monkeypatch.setattr(code_blocks, "LONGEST", 20)
    monkeypatch.setattr("hybrid.cli.console.coloured_code", lambda *given: asked.append(given))
    show("```python\n" + "a" * 21 + "\n```\n")
    assert asked == []
    show("```python\n" + "a" * 20 + "\n```\n")
    assert asked == [("a" * 20, "python")]
