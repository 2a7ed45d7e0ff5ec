"""Answers on a screen: coloured code where it is safe, and no output of a model moves the cursor."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import Terminal, python

pytestmark = pytest.mark.exhaustive

# prints the pieces of its first argument; None: waits until the file of the second argument is removed
SPEAKS = """
import json, os, time
from hybrid.cli.terminal.answer_view import AnswerView
from hybrid.cli.terminal.terminal import quiet_keys
from hybrid.infer.answers.chat.reader import AnswerPart
with quiet_keys() as screen:
    view = AnswerView(screen)
    for piece in json.loads(sys.argv[1]):
        if piece is None:
            print("", end="", flush=True)
            open(sys.argv[2] + ".waits", "w").close()
            while os.path.exists(sys.argv[2]): time.sleep(0.01)
        elif isinstance(piece, list):
            view.show(AnswerPart(*piece), 3)
        else:
            view.show(AnswerPart("text", piece), 0)
    view.end()
print("done")
"""
CODE = 'def f(x):\n\treturn "a"  # why'
BLOCK = f"So:\n```python\n{CODE}\n```\nThat is it."


Speaks = Callable[..., Terminal]


@pytest.fixture
def speaks(program: Path) -> Speaks:
    """Print pieces in a terminal; with `hold`, in a process that gets signals directly."""

    def start(*pieces: object, columns: int = 40, rows: int = 12, hold: Path | None = None, **more: str) -> Terminal:
        command = python(SPEAKS) if hold else [program, *python(SPEAKS)[1:]]
        return Terminal([*command, json.dumps(pieces), hold or ""], columns, rows, **more)

    return start


def plain(speaks: Speaks, *pieces: object) -> tuple[list[str], list[str]]:
    """The lines above the screen and the screen, without colours."""
    with speaks(*pieces, NO_COLOR="1") as t:
        t.ends()
        assert b"\x1b[" not in t.raw
        return t.scrolled_off, t.lines


@pytest.mark.parametrize("pieces", [[BLOCK], list(BLOCK)])
def test_a_block_is_coloured_when_it_is_whole(speaks: Speaks, pieces: list[str]) -> None:
    with speaks(*pieces) as t:
        t.ends()
        assert (t.scrolled_off, t.lines) == plain(speaks, *pieces), "the text is the same, line by line"
        assert t.colours("def") == {"brightblue"} and t.colours('"a"') == {"brown"}
        assert t.colours("That is it.") == {"default"} == t.colours("```python")


def test_the_end_of_an_answer_may_be_the_end_of_a_block(speaks: Speaks) -> None:
    with speaks(BLOCK.removesuffix("\nThat is it.")) as t:
        t.ends()
        assert t.colours("def") == {"brightblue"} and t.lines[-1] == "done"
        assert t.lines == plain(speaks, BLOCK.removesuffix("\nThat is it."))[1]


def test_another_size_in_between_leaves_it_plain(speaks: Speaks, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    waits = Path(f"{hold}.waits")
    with speaks("above\n```python\ndef f(): pass\n", None, "```\nbelow\n", hold=hold) as t:
        t.until(waits.exists)
        t.resize(50, 12)
        hold.unlink()
        t.ends()
        assert t.colours("def") == {"default"}
        assert t.lines == ["above", "```python", "def f(): pass", "```", "below", "", "done"]


def test_other_programs_in_between_leave_it_plain(speaks: Speaks, tmp_path: Path) -> None:
    """Ctrl-Z and fg: the shell has written lines below."""
    import os
    import signal

    hold = tmp_path / "hold"
    hold.touch()
    with speaks("```python\ndef f(): pass\n", None, "```\n", hold=hold) as t:
        t.until(Path(f"{hold}.waits").exists)
        os.kill(t.process.pid, signal.SIGSTOP)
        os.kill(t.process.pid, signal.SIGCONT)
        hold.unlink()
        t.ends()
        assert t.colours("def") == {"default"}


def test_keys_are_not_echoed_into_an_answer(speaks: Speaks, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with speaks("above\n```python\ndef f(): pass\n", None, "```\nbelow\n", hold=hold) as t:
        t.until(Path(f"{hold}.waits").exists)
        t.type("n", "e", "x", "t", "\r")
        hold.unlink()
        t.ends()
        assert t.colours("def") == {"brightblue"} and "next" not in t.text


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_nobody_wants_them(speaks: Speaks, variables: dict[str, str]) -> None:
    with speaks(BLOCK, **variables) as t:
        t.ends()
        assert b"\x1b" not in t.raw and "def f(x):" in t.text


def test_what_a_model_says_cannot_steer_the_terminal(speaks: Speaks) -> None:
    text = "one\x1b[2J\x1b]0;title\x07 two\r\nthree\x9b5A\x08four\n"
    with speaks(text) as t:
        t.ends()
        assert t.lines == ["one?[2J?]0;title? two", "three?5A?four", "", "done"]


def test_a_line_of_status_does_not_write_over_the_text(speaks: Speaks) -> None:
    pieces = ["Let me see.", ["call", "weather", 0, "abc"], ["arguments", '{"city": "Rome"}']]
    with speaks(*pieces) as t:
        t.ends()
        assert t.lines == ["Let me see.", 'call weather(city="Rome")  abc', "", "done"]
    with speaks("First.", ["thought", "Hm."], "Then.") as t:
        t.ends()
        assert t.lines[0] == "First." and "thought for 3 tokens" in t.lines[1]


def test_thoughts_in_a_block_leave_it_plain(speaks: Speaks) -> None:
    with speaks("```python\ndef f(): pass\n", ["thought", "Hm."], "```\n") as t:
        t.ends()
        assert t.colours("def") == {"default"} and "def f(): pass" in t.text and "thought for" in t.text
