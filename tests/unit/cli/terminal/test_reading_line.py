"""The line about reading a prompt and its pictures."""

import io

import pytest

from hybrid.cli.terminal.reading_line import ReadingLine, picture_text, reading_text


def test_texts() -> None:
    assert reading_text(0, 900, 0.0) == "reading 900 tokens"
    assert reading_text(300, 900, 1.5) == "reading 300 of 900 tokens, 200 per second, 3.0 s left"
    assert reading_text(300, 900, 1.5, since=2.5) == "reading 300 of 900 tokens, 200 per second, 1.0 s left"
    assert picture_text("a.png", 0, 0, 0.0) == picture_text("a.png", 0, 40, 2.0) == "reading a.png"
    assert picture_text("a.png", 10, 40, 2.0) == "reading a.png, 25 %, 6.0 s left"


class Screen(io.StringIO):
    """A terminal. is_screen: whether it is one."""

    def __init__(self, is_screen: bool) -> None:
        super().__init__()
        self.is_screen = is_screen

    def isatty(self) -> bool:
        return self.is_screen


@pytest.mark.parametrize("is_screen", [True, False])
def test_only_a_terminal_shows_it(is_screen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(ReadingLine, "DELAY", 0.0)
    with ReadingLine() as line:
        line.picture("a\x1b.png", 0, 0)
        while is_screen and "reading" not in screen.getvalue():
            pass
    assert screen.getvalue() == ("\r\x1b[Kreading a?.png\r\x1b[K" if is_screen else "")


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_screen=True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(ReadingLine, "DELAY", 60.0)
    with ReadingLine() as line:
        line.picture("a.png", 0, 0)
        line.step(5, 9)
    assert screen.getvalue() == ""
