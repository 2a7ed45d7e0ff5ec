"""Calls and thoughts in a conversation are read, kept and gone back to; none is processed twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_chat import TOLD, TOOLS, FakeModel, said, talk, thinking_template
from test_conversation import GOOD, TURN

from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.chat.tools import ToolChoice
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.quant.ggml.errors import StateError, UsageError

TEMPLATE = thinking_template()
ASKED = ChatOptions(tuple(TOOLS))
CALL = '<call>{"name":"weather",  "arguments":{"city":"Rome"}}</call>'  # spaces unlike the template's
TWO = CALL + '<call>{"name": "clock", "arguments": {}}</call>'
THINK = "<bot><think>\n"


@pytest.fixture(autouse=True)
def unconstrained(monkeypatch: pytest.MonkeyPatch) -> list[ToolChoice]:
    """Makes the fake model say its script whatever the grammar; returns the tool choices made into grammars."""
    choices: list[ToolChoice] = []

    def grammar(format: Any, tokenizer: Any, tools: Any, choice: ToolChoice, **more: Any) -> None:
        choices.append(choice)

    monkeypatch.setattr("hybrid.infer.answers.chat.call_grammar.answer_grammar", grammar)
    return choices


def chat_of(*script: str, n_ctx: int = 2000, **more: Any) -> tuple[FakeModel, Conversation]:
    model = FakeModel(*script, n_ctx=n_ctx)
    return model, talk(model, TEMPLATE, **{"asked": ASKED, **more})


def test_calls_and_results_are_turns_that_cost_what_is_new() -> None:
    model, chat = chat_of("I look.\n</think>\n\n" + CALL, "So.</think>It rains.", "Then</think>Yes.")
    parts = list(chat.answer("Rain?"))
    assert said(iter(parts)) == "" and "".join(p.text for p in parts if p.kind == "thought") == "I look."
    assert "".join(p.text for p in parts if p.kind == "arguments") == '{"city":"Rome"}'
    (call,) = chat.calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
    assert said(chat.answer_calls(["rain"])) == "It rains." and chat.calls == ()
    assert chat.messages[1:] == [
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I look.",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": "rain"},
        {"role": "assistant", "content": "It rains.", "reasoning_content": "So."},
    ]
    said(chat.answer("Tomorrow?"))
    assert model.seq.prefills == [
        f"<s>{TOLD}<user>Rain?</s>{THINK}",
        f"</s><tool>rain</s>{THINK}",
        # the history lost the thoughts of both answers: from the end of the first question on
        '<bot><call>{"name": "weather", "arguments": {"city": "Rome"}}</call></s><tool>rain</s><bot>It rains.</s>'
        f"<user>Tomorrow?</s>{THINK}",
    ]
    assert chat.turns.lines() == [
        "> 1 Rain? -> weather(...)",
        "> 2 weather: rain -> It rains.",
        "> 3 Tomorrow? -> Yes.  [*main]",
    ]
    assert (chat.stats.n_calls, chat.stats.n_thought) == (1, len("I look.\n</think>So.</think>Then</think>"))


def test_thoughts_that_leave_the_history_cost_the_tail() -> None:
    model, chat = chat_of(*(f"{'thinking ' * 20}</think>\n\n{text}" for text in ("one", "two", "three")))
    for question in "abc":
        said(chat.answer(question))
    assert model.seq.prefills == [
        f"<s>{TOLD}<user>a</s>{THINK}",
        f"<bot>one</s><user>b</s>{THINK}",
        f"<bot>two</s><user>c</s>{THINK}",
    ]
    assert [turn.answer.n_thought for turn in chat.turns.path] == [len("thinking " * 20 + "</think>")] * 3


def test_a_branch_with_other_results_and_going_back_to_it() -> None:
    model, chat = chat_of("Hm</think>" + TWO, "</think>one", "</think>two", "</think>three", "</think>four")
    said(chat.answer("q"))
    assert [call.name for call in chat.calls] == ["weather", "clock"]
    with pytest.raises(UsageError, match="1 results for 2 calls"):
        said(chat.answer_calls(["rain"]))
    assert said(chat.answer_calls(["rain", "noon"])) == "one"
    chat.undo()
    chat.turns.fork("side")
    assert said(chat.answer_calls(["sun", "noon"])) == "two"
    assert said(chat.regenerate()) == "three"
    assert model.seq.prefills[1:] == [
        f"</s><tool>rain</s><tool>noon</s>{THINK}",
        f"<tool>sun</s><tool>noon</s>{THINK}",
        THINK,
    ]
    with pytest.raises(UsageError, match="turn 2 has the results of 2 calls"):
        said(chat.edit(2, "x"))
    chat.turns.switch("1")
    assert said(chat.answer("Never mind.")) == "four", "calls that nobody answered"
    assert [m["role"] for m in chat.messages] == ["user", "assistant", "user", "assistant"]


def test_another_result_by_editing() -> None:
    model, chat = chat_of("Hm</think>" + CALL, "</think>one", "</think>two")
    said(chat.answer("q"))
    said(chat.answer_calls(["rain"]))
    assert said(chat.edit(2, "sun")) == "two"
    assert [m["content"] for m in chat.messages] == ["q", None, "sun", "two"]
    assert model.seq.prefills[-1] == f"<tool>sun</s>{THINK}"


def test_saved_with_its_tools_and_gone_on_with() -> None:
    model, chat = chat_of("Hm</think>" + TWO, "</think>one", asked=ChatOptions(tuple(TOOLS), think=True))
    said(chat.answer("q"))
    chat.save(Path("f"))
    _, other = chat_of(asked=ChatOptions())
    other.model.files, other.seq.model = model.files, other.model  # type: ignore[attr-defined]
    other.load(Path("f"))
    assert other.asked == ChatOptions(tuple(TOOLS), think=True)
    assert other.messages == chat.messages and other.calls == chat.calls
    other.model.script = ["</think>one", "</think>two"]  # type: ignore[attr-defined]
    said(other.answer_calls(["rain", "noon"]))
    assert other.seq.prefills == [f"</s><tool>rain</s><tool>noon</s>{THINK}"], "known as it was drawn"  # type: ignore
    other.save(Path("f"))
    chat.load(Path("f"))
    assert chat.turns.path[1].results == list(zip(other.turns.path[0].answer.calls, ("rain", "noon"), strict=True))


CALLED = {**TURN, "calls": [{"id": "1", "name": "weather", "arguments": "{}"}], "thoughts": ["hm", 3], "written": "w"}
RESULT = {**TURN, "parent": 1, "user": "", "results": ["rain"]}


@pytest.mark.parametrize(
    "turns",
    [
        [{**CALLED, "calls": [{"id": 1, "name": "weather", "arguments": "{}"}]}],
        [{**CALLED, "calls": [{"id": "1", "name": "weather"}]}],
        [{**CALLED, "calls": 5}],
        [{**CALLED, "thoughts": ["hm", -1]}],
        [{**CALLED, "thoughts": "hm"}],
        [{**CALLED, "written": 5}],
        [CALLED, {**RESULT, "results": ["rain", "noon"]}],
        [CALLED, {**RESULT, "results": [5]}],
        [CALLED, {**RESULT, "results": []}],
        [{**RESULT, "parent": 0}],
    ],
)
@pytest.mark.parametrize("damaged", [True, False])
def test_damaged_turns(turns: list[Any], damaged: bool) -> None:
    model, chat = chat_of()
    model.files[Path("f")] = ([5], {"chat": {**GOOD, "turns": turns if damaged else [CALLED, RESULT]}})
    if damaged:
        with pytest.raises(StateError, match="its chat has no turns"):
            chat.load(Path("f"))
    else:
        chat.load(Path("f"))
        assert chat.turns.all[1].results[0][1] == "rain" and chat.turns.all[0].answer.n_thought == 3


@pytest.mark.parametrize("more", [{"tools": 5}, {"tools": [{}]}, {"think": "yes"}])
def test_damaged_settings(more: dict[str, Any]) -> None:
    model, chat = chat_of()
    model.files[Path("f")] = ([5], {"chat": {**GOOD, **more}})
    with pytest.raises(StateError, match="its chat has no turns"):
        chat.load(Path("f"))


def test_a_chat_from_before_there_were_calls() -> None:
    model, chat = chat_of("x")
    model.files[Path("f")] = ([5], {"chat": GOOD})
    chat.load(Path("f"))
    assert chat.messages == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert chat.asked.tools == (), "it had none"


def test_a_call_is_required_of_answers_to_questions(unconstrained: list[ToolChoice]) -> None:
    """Required calls after every message would leave no answer about their results."""
    required = ToolChoice("required", "weather")
    _, chat = chat_of("Hm</think>" + CALL, "</think>one", "</think>two", asked=ChatOptions(tuple(TOOLS), required))
    said(chat.answer("q"))
    said(chat.answer_calls(["rain"]))
    assert unconstrained == [required, ToolChoice("auto")]


def test_thoughts_can_be_switched() -> None:
    model, chat = chat_of("one", "hm</think>two", asked=ChatOptions(think=False))
    said(chat.answer("a"))
    chat.ask(ChatOptions())
    said(chat.answer("b"))
    assert model.seq.prefills == ["<s><user>a</s><bot>", f"</s><user>b</s>{THINK}"]
    assert [turn.answer.thoughts for turn in chat.turns.path] == ["", "hm"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (ChatOptions(choice=ToolChoice("required")), "a call is required and there are no tools"),
        (ChatOptions(tuple(TOOLS), ToolChoice("required", "x")), "no tool x to call. There are: weather, clock"),
    ],
)
def test_what_cannot_be_asked_for(asked: ChatOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        chat_of(asked=asked)


def test_without_a_template_there_are_neither(unconstrained: list[ToolChoice]) -> None:
    with pytest.raises(UsageError, match="need a chat template, and the model has none"):
        talk(FakeModel(), None, asked=ASKED)


def test_a_call_that_was_cut_off_is_none() -> None:
    """No template takes a cut call back, and nobody could carry it out."""
    cut = "Hm</think>" + CALL + '<call>{"name": "clock", "arguments": {"zo'
    model, chat = chat_of(cut, "Hm</think>x", max_tokens=len(cut))
    said(chat.answer("q"))
    assert chat.result is not None and chat.result.reason == "length" and chat.reading is not None
    assert [call.arguments for call in chat.reading.answer(chat.result).cut] == ['{"zo']
    turn = chat.turns.path[0]
    assert [call.name for call in chat.calls] == ["weather"] and (turn.answer.thoughts, turn.written) == ("Hm", "")
    said(chat.answer_calls(["rain"]))
    assert model.seq.prefills[1].endswith(f"</call></s><tool>rain</s>{THINK}")


def test_an_answer_that_nobody_waits_for_is_read_to_its_end() -> None:
    _, chat = chat_of("Some thoughts</think>text")
    parts = chat.answer("q")
    for _ in range(6):
        next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert chat.turns.path[0].answer.thoughts == "Some t" and chat.stats.n_thought == 6
