"""Output for people: numbers, names, and the progress bar in a terminal."""

import re
import time
from types import SimpleNamespace

import pytest

from hybrid.display.lines import count, one_line
from hybrid.display.screen import ProgressBar


@pytest.mark.parametrize(("n", "text"), [(12, "12"), (1_234, "1.2 K"), (11_400_000, "11.4 M"), (3.03e9, "3.03 B")])
def test_counts(n: float, text: str) -> None:
    assert count(n) == text


def test_one_line() -> None:
    assert one_line("a\nb\x1b[0m\tc") == "a b?[0m c"


def test_progress_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Short work is silent; long work writes a line now and then, with the time left, whatever its steps are called."""
    now = 100.0
    monkeypatch.setattr("hybrid.display.screen.time", SimpleNamespace(monotonic=lambda: now))
    with ProgressBar("work", "tokens", delay=0) as progress:
        progress.step(1, 10)
        assert capsys.readouterr() == ("", "")
        for now in (109.0, 110.5, 112.0, 121.0, 125.0):
            progress.step(int(now - 100), 100)
        progress("next", (now := 142) - 100, 100)
        progress("other work", 1, 2)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == [
        "work: 10 of 100 tokens",
        "work: 21 of 100 tokens, about 39.5 s left",
        "next: 42 of 100 tokens, about 43.5 s left",
    ]


def test_progress_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("work", "bytes", delay=0) as progress:
        progress.step(1 << 20, 8 << 20)
        progress.step(4 << 20, 8 << 20)
        progress("second part", 1 << 20, 2 << 20)
    out, err = capsys.readouterr()
    assert out == ""
    assert "of 8.0 MiB" in err or "of 2.0 MiB" in err


def test_the_rate_is_of_what_came_since_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that an earlier download left do not count for a resumed one's rate."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressBar("work", "bytes", delay=0) as progress:
        for i in range(4):
            progress.step((1 << 40) + (i << 20), 2 << 40)
            time.sleep(0.05)
    rates = re.findall(r"([\d.]+) (\w+)/s", capsys.readouterr().err)
    assert rates and {unit for _, unit in rates} <= {"B", "KiB", "MiB"}


@pytest.mark.parametrize("name", ["[/red]x", "[bold]x[/bold]", "blk.0\x1b[31m.x"])
def test_progress_shows_names_of_tensors_as_they_are(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file may give tensors any name: rich's markup and terminal escapes must have no effect."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("work", "bytes", delay=0) as progress:
        progress(name, 1, 10)
        progress(name, 5, 10)
    text = capsys.readouterr().err
    assert one_line(name) in text
    assert "\x1b[31m" not in text
