"""The chat in the terminal: its loop, its commands, and its file."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_chat import FakeModel, Template, talk

from hybrid.cli import console
from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.saved_chats import Keeper
from hybrid.cli.chat.session import ChatSession
from hybrid.cli.terminal.line_editing import joined, unfinished
from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.quant.ggml.errors import StateError


def session(model: FakeModel, *lines: str | type[BaseException]) -> ChatSession:
    rest = [*lines, EOFError]

    def read(prompt: str) -> str:
        item = rest.pop(0)
        if not isinstance(item, str):
            raise item
        return item

    return ChatSession(talk(model, Template()), read, COMMANDS)


def test_the_loop_answers_and_obeys_commands(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("Hello.", "Hi.")
    chat = session(model, "hi", "", KeyboardInterrupt, "/regen", "/save", "/nonsense", "/?", "/exit", "never")
    chat.loop()
    out, err = capsys.readouterr()
    assert out == "Hello.\n\nHi.\n\n"
    assert "error: /save needs a file name" in err
    assert "error: there is no command /nonsense" in err
    assert "/regen" in err and "Ctrl-D" in err
    assert "Traceback" not in err


def test_a_second_interrupt_leaves_wherever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = session(FakeModel("Hello."), KeyboardInterrupt, "never")

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "note", interrupted)
    chat.loop()  # while the first one is told

    def read(prompt: str) -> str:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as first:
            raise KeyboardInterrupt from first

    chat.read = read
    chat.loop()  # while the prompt is being put away


def test_commands_of_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(
        FakeModel("one", "two", "three"),
        "a",
        "/undo",
        "/undo",
        "b",
        "/fork x",
        "/fork",
        "/edit 1 c",
        "/edit c",
        "/tree",
        "/switch main",
        "/switch 9",
        "/stats",
    )
    chat.conversation.model.memory = SimpleNamespace(bytes_state_per_seq=1, bytes_kv_per_token=1)  # type: ignore
    chat.conversation.model.cache = None
    chat.loop()
    out, err = capsys.readouterr()
    assert out.startswith("one\n\ntwo\n\nthree\n\n")
    for says in (
        "taken back: a (/switch 1 goes there again)",
        "error: there is nothing to take back.",
        "on branch x",
        "error: there is no branch 9. There are: main, x. /fork 9 makes one.",
        "error: /fork needs a name: /fork NAME",
        "error: /edit needs the number of a turn, as /tree shows it",
        "> 3 c -> three  [*x]",
        "on branch main, after turn 2",
        "nothing (--checkpoint-budget 0)",
    ):
        assert says in err, says


def test_ctrl_c_stops_the_answer_and_not_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("abcdef", "next")
    chat = session(model, "one", "two")
    read = model.seq.read

    def interrupted(ids: list[int], is_whole: bool) -> np.ndarray | None:
        if ids == [ord("c")]:
            os.kill(os.getpid(), signal.SIGINT)
        return read(ids, is_whole)

    model.seq.read = interrupted  # type: ignore[assignment,method-assign]
    chat.loop()
    out, err = capsys.readouterr()
    assert [stop.is_set for stop in model.stops] == [True, False]
    assert out.splitlines()[0].startswith("abc")
    assert out.splitlines()[0] != "abcdef"
    assert out.splitlines()[2] == "next"
    assert "stopped" in err


def test_ctrl_c_behind_an_answer_does_not_stop_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C comes after the last token was computed, while the answer is still being printed."""
    model = FakeModel("abc", "next")
    chat = session(model, "one", "two")
    speak = chat.conversation.answer

    def answer(text: str, progress: object = None, pictures: object = ()) -> Iterator[AnswerPart]:
        yield from speak(text)
        if text == "one":
            signal.raise_signal(signal.SIGINT)

    chat.conversation.answer = answer  # type: ignore[method-assign,assignment]
    chat.loop()
    assert capsys.readouterr().out == "abc\n\nnext\n\n"
    assert [stop.is_set for stop in model.stops] == [True, False]
    assert model.stop is None


def test_several_lines() -> None:
    assert unfinished("a\\") and unfinished('"""a') and unfinished('"""a\nb')
    assert not unfinished("a") and not unfinished('"""a"""') and not unfinished('say """')
    assert joined("a\\\nb") == "a\nb"
    assert joined('"""\na\nb\n"""') == "a\nb"
    assert joined('""') == '""'


def kept(model: FakeModel, path: Path, *lines: str, among_chats: bool = False) -> Keeper:
    """An unfinished chat of these lines, saved in `path` after each."""
    chat = session(model, *lines)
    keeper = Keeper(chat.conversation, path, among_chats)
    chat.keeper = keeper
    chat.loop()
    return keeper


def questions(model: FakeModel, path: Path) -> list[str]:
    return [turn["user"] for turn in model.files[path][1]["chat"]["turns"]]


def test_every_turn_is_kept_before_the_next_question(tmp_path: Path) -> None:
    model, path = FakeModel("one", "two", "three"), tmp_path / "s"
    seen: list[list[str]] = []
    read = model.seq.read

    def looking(ids: list[int], is_whole: bool) -> np.ndarray | None:
        if not model.seq.said and is_whole:
            seen.append(questions(model, path) if path in model.files else [])
        return read(ids, is_whole)

    model.seq.read = looking  # type: ignore[assignment,method-assign]
    kept(model, path, "a", "b", "/tree", "c")
    assert seen == [[], ["a"], ["a", "b"]] and questions(model, path) == ["a", "b", "c"]
    assert model.n_saved == 3, "nothing new after /tree"
    # the state from which a killed chat now continues
    again = talk(FakeModel("four"), Template())
    again.model.files = model.files  # type: ignore[attr-defined]
    again.load(path)
    assert [m["content"] for m in again.messages] == ["a", "one", "b", "two", "c", "three"]


def test_branches_are_kept_too_and_the_end_writes_all(tmp_path: Path) -> None:
    model, path = FakeModel("one", "two"), tmp_path / "s"
    keeper = kept(model, path, "a", "/undo", "/fork x", "b", "/switch main")
    assert model.files[path][1]["chat"]["branches"] == {"main": 0, "x": 2}
    assert model.files[path][1]["chat"]["branch"] == "main"
    assert keeper.at_end() == 7 and model.n_saved == 6
    untouched = Keeper(keeper.conversation, path, False)
    assert untouched.at_end() is None and model.n_saved == 6, "nothing was said"


def test_a_chat_that_was_forgotten_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.cli.chat.saved_chats.make_room", lambda model: None)
    model, path = FakeModel("one"), tmp_path / "chats" / "s"
    keeper = kept(model, path, "a", among_chats=True)
    path.write_text("stands for the state")
    keeper.conversation.clear()
    assert keeper.at_end() is None and not path.exists()
    assert Keeper(keeper.conversation, path, True).at_end() is None, "nothing begun, nothing there"


def test_a_full_disk_costs_neither_the_chat_nor_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("one", "two", "three")
    save, fails = model.seq.save, [False, True, False]

    def full(*given: object, **more: object) -> int:
        if fails.pop(0):
            raise StateError(f"{given[0]}: cannot be written: No space left on device.")
        return save(*given, **more)  # type: ignore[arg-type]

    model.seq.save = full  # type: ignore[method-assign]
    kept(model, tmp_path / "s", "a", "b", "c")
    out, err = capsys.readouterr()
    assert out == "one\n\ntwo\n\nthree\n\n"
    assert err.count("No space left on device") == 1
    assert questions(model, tmp_path / "s") == ["a", "b", "c"]


def test_every_new_conversation_has_another_example() -> None:
    chat = session(FakeModel("one", "two", "three"), "a", "b", "/clear", "c")
    chat.examples = ("first?", "second?", "third?")
    shown: list[str] = []
    chat.read, read = lambda prompt: (shown.append(chat.example), read(prompt))[1], chat.read
    chat.loop()
    assert shown == ["first?", "", "", "second?", ""]
