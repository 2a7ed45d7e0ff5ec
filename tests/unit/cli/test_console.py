"""Output for people and for scripts."""

import dataclasses
import json
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from hybrid.cli import console


class Kind(IntEnum):
    Q8_0 = 8


@dataclasses.dataclass
class Row:
    name: str
    kind: Kind
    shape: tuple[int, ...]
    error: float
    hidden: int = dataclasses.field(default=3, repr=False)


def test_json_of_a_dataclass(capsys: pytest.CaptureFixture[str]) -> None:
    console.out_json({"rows": [Row("é", Kind.Q8_0, (3, 5), float("nan"))], "path": Path("a"), "n": np.int64(7)})
    assert json.loads(capsys.readouterr().out) == {
        "rows": [{"name": "é", "kind": "Q8_0", "shape": [3, 5], "error": None}],
        "path": "a",
        "n": 7,
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (1.26, "1.3 s"), (119.9, "119.9 s"), (3_661, "61 min 1 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text


def test_table_aligns() -> None:
    assert console.table(("a", "n"), [("long", 1), ("x", 100)], "lr") == "a       n\nlong    1\nx     100"


def test_notes_are_broken_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert console.folded("a b " * 40) == "a b " * 40, "a file has lines as they are"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "24")
    assert console.folded("/a  one two-three four five six", 4) == "/a  one two-three four\n    five six"


def test_a_status_line_is_written_again_and_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = console.StatusLine()
    silent.show("one")
    silent.clear()
    assert capsys.readouterr().err == "", "no terminal"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "10")
    line = console.StatusLine()
    line.show("one\x1b[31m and more than fits")
    line.show("two, at once")
    line.clear()
    line.clear()
    assert capsys.readouterr() == ("", "\r\x1b[Kone?[31m \r\x1b[K")


def test_a_row_takes_several_lines_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    headers, rows = ("name", "bytes", "what", ""), [("a" * 20, 5, "first", "in use"), ("b", 12, "", "")]
    whole = "name                  bytes  what\naaaaaaaaaaaaaaaaaaaa      5  first  in use\nb                        12"
    assert console.table(headers, rows, "lr") == whole, "no terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    for columns, shown in {
        42: whole,
        30: "name                  bytes\n    what\n"
        "aaaaaaaaaaaaaaaaaaaa      5\n    first  in use\nb                        12",
        5: "name\n    bytes\n    what\naaaaaaaaaaaaaaaaaaaa\n        5\n    first\n    in use\nb\n       12",
    }.items():
        monkeypatch.setenv("COLUMNS", str(columns))
        assert console.table(headers, rows, "lr") == shown
