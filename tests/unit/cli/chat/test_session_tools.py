"""Tools and thoughts in the chat: calls and results, folding, and the commands for both."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_chat import TOOLS, FakeModel, Template, talk, thinking_template

from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.infer.answers.chat.dialect import ChatOptions

WEATHER = '<call>{"name": "weather", "arguments": {"city": "Rome"}}</call>'
CLOCK = '<call>{"name": "clock", "arguments": {}}</call>'


@pytest.fixture(autouse=True)
def unconstrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the fake model say its script whatever the grammar."""
    monkeypatch.setattr("hybrid.infer.answers.chat.call_grammar.answer_grammar", lambda *given, **more: None)


class Session:
    """A scripted chat: lines in, and the prompt shown before each."""

    def __init__(self, *script: str, tools: bool = True, **more: Any) -> None:
        self.model = FakeModel(*script, n_ctx=2000)
        self.model.memory = SimpleNamespace(bytes_state_per_seq=1, bytes_kv_per_token=1)
        self.model.cache = None  # type: ignore[attr-defined]
        asked = ChatOptions(tuple(TOOLS)) if tools else ChatOptions()
        self.conversation = talk(self.model, thinking_template(), **{"asked": asked, **more})
        self.prompts: list[str] = []

    def play(self, *lines: str) -> None:
        waiting = list(lines)

        def read(prompt: str) -> str:
            self.prompts.append(prompt)
            if not waiting:
                raise EOFError
            return waiting.pop(0)

        ChatSession(self.conversation, read, COMMANDS).loop()

    @property
    def questions(self) -> list[Any]:
        return [turn.question for turn in self.conversation.turns.path]


def test_calls_are_shown_and_their_results_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    chat = Session("Hm.</think>Let me see." + WEATHER + CLOCK, "So.</think>It rains.")
    chat.play("Rain?", "rain", "", "/stats", "/clocks/rome.txt")
    out, err = capsys.readouterr()
    first, second = (call.id for call in chat.conversation.turns.all[0].answer.calls)
    assert out.startswith(f'Let me see.\ncall weather(city="Rome")  {first}\ncall clock()  {second}\n\nIt rains.\n\n')
    weather, clock = "result of weather (1 of 2)> ", "result of clock (2 of 2)> "
    assert chat.prompts == ["> ", weather, clock, clock, clock, "> "]
    assert chat.questions[:2] == ["Rain?", ("rain", "/clocks/rome.txt")], "a path is no command"
    assert "thoughts    11 of these tokens" in err and "calls       2" in err


def test_thoughts_are_folded_and_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    chat = Session("What is it?\nHm.</think>Yes.", "No.", tools=False)
    chat.play("a", "/think", "/think off", "b", "/think", "/think maybe")
    out, err = capsys.readouterr()
    assert out == "Yes.\n\nWhat is it?\nHm.\nNo.\n\n"
    assert "thought for 23 tokens (/think shows it)" in err and "thoughts: off" in err
    assert "error: the last answer has no thoughts." in err
    assert "error: /think maybe: expected on, off or auto" in err
    assert chat.model.seq.prefills[1].endswith("<user>b</s><bot>")


def test_results_can_be_left_out_taken_back_and_changed(capsys: pytest.CaptureFixture[str]) -> None:
    chat = Session("Hm</think>" + WEATHER, "Hm</think>" + CLOCK, "Hm</think>one", "Hm</think>two")
    chat.play("/skip", "a", "/skip", "b", "noon", "/undo", "/tree", "night", "/switch 1")
    out, err = capsys.readouterr()
    weather, clock = "result of weather> ", "result of clock> "
    assert chat.prompts == ["> ", "> ", weather, "> ", clock, "> ", clock, clock, "> ", weather]
    assert "error: no call waits for a result." in err
    assert "taken back: clock: noon (/switch 3 goes there again)" in err and "> 2 b -> clock(...)  [*main]" in err
    assert out.endswith(
        '> a\n(thought for 10 tokens)\ncall weather(city="Rome")  ' + chat.conversation.calls[0].id + "\n"
    )


def test_other_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tools.json"
    parameters = {"type": "object", "properties": {"x": {}, "y": {}}}
    function = {"name": "add", "description": "Adds\n two numbers", "parameters": parameters}
    path.write_text(json.dumps([{"type": "function", "function": function}]))
    chat = Session("Hm</think>Yes.")
    chat.play("/tools", f"/tools {path}", "a", "/tools off", "/tools nowhere.json")
    err = capsys.readouterr().err
    for says in (
        "weather()\nclock()\n2 tools\n",
        "add(x, y)  Adds two numbers\n1 tool\n",
        "no tools (/tools FILE gives some)",
        "error: nowhere.json cannot be read",
    ):
        assert says in err, err
    assert '"add"' in chat.model.seq.prefills[0] and chat.conversation.asked.tools == ()


def test_what_was_cut_off_gets_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    cut = "Hm</think>" + '<call>{"name": "clock", "arguments": {"zo'
    chat = Session(cut, max_tokens=len(cut))
    chat.play("a")
    out, err = capsys.readouterr()
    assert 'call clock({"zo ...)' in out and "the last call was cut off" in err
    assert chat.prompts == ["> ", "> "] and chat.conversation.calls == ()


def test_a_model_without_thoughts(capsys: pytest.CaptureFixture[str]) -> None:
    conversation = talk(FakeModel(), Template())
    lines = ["/think on", "/think off"]

    def read(prompt: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    ChatSession(conversation, read, COMMANDS).loop()
    err = capsys.readouterr().err
    assert "error: the model has no thoughts: its chat template does not know any." in err and "thoughts: off" in err


def test_what_is_restored_shows_calls_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    chat = Session("Hm</think>" + CLOCK, "Hm</think>Noon.", system="Be brief.")
    chat.play("Time?", "12:00")
    capsys.readouterr()
    ChatSession(chat.conversation, lambda prompt: "", COMMANDS).replay()
    call = chat.conversation.turns.all[0].answer.calls[0]
    assert capsys.readouterr().out.splitlines() == [
        "Be brief.",
        "> Time?",
        "(thought for 10 tokens)",
        f"call clock()  {call.id}",
        "result of clock> 12:00",
        "(thought for 10 tokens)",
        "Noon.",
    ]
