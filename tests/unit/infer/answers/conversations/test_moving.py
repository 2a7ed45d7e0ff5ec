"""A conversation continues with another model or other samplers."""

import pytest
from fake_chat import TOOLS, FakeModel, Template, said, talk, thinking_template

from hybrid.infer.answers.chat.dialect import NOTHING, ChatOptions
from hybrid.infer.answers.conversations.moving import moved
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.quant.ggml.errors import UsageError

PARAMS = SamplingParams(temp=0)


@pytest.fixture(autouse=True)
def unconstrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the fake model say its script whatever the grammar."""
    monkeypatch.setattr("hybrid.infer.answers.chat.call_grammar.answer_grammar", lambda *given, **more: None)


def test_all_of_it_is_read_once_by_the_other_model() -> None:
    chat = talk(FakeModel("one", "two", "three"), Template(), system="told")
    said(chat.answer("a"))
    chat.turns.fork("side")
    said(chat.answer("b"))
    before = [m["content"] for m in chat.messages]
    model = FakeModel("four", "five", "six")
    other = moved(chat, model, PARAMS, Template())  # type: ignore[arg-type]
    assert [m["content"] for m in other.messages] == before and other.system == "told"
    assert list(other.turns.branches) == ["main", "side"] and other.turns.branch == "side"
    assert said(other.answer("c")) == "four"
    whole = "<s><sys>told</s><user>a</s><bot>one</s><user>b</s><bot>two</s><user>c</s><bot>"
    assert model.seq.prefills == [whole]
    assert said(other.answer("d")) == "five" and model.seq.prefills[1] == "</s><user>d</s><bot>", "what is read is read"
    other.turns.switch("main")
    assert said(other.answer("e")) == "six" and len(other.turns.all) == 5
    assert [m["content"] for m in chat.messages] == before, "the conversation that was left is as it was"
    assert chat.turns.all[0].added and other.turns.all[0].added == []


def test_it_is_saved_and_loaded_with_the_other_model() -> None:
    from pathlib import Path

    chat = talk(FakeModel("one"), Template())
    said(chat.answer("a"))
    model = FakeModel("two")
    other = moved(chat, model, PARAMS, Template())  # type: ignore[arg-type]
    said(other.answer("b"))
    other.save(Path("f"))
    again = talk(FakeModel("three"), Template())
    again.model.files = model.files  # type: ignore[attr-defined]
    again.load(Path("f"))
    assert [m["content"] for m in again.messages] == ["a", "one", "b", "two"]
    assert said(again.answer("c")) == "three"


def test_another_answer_to_a_question_that_the_first_model_answered() -> None:
    chat = talk(FakeModel("one"), Template())
    said(chat.answer("a"))
    other = moved(chat, FakeModel("uno"), PARAMS, Template())  # type: ignore[arg-type]
    assert said(other.regenerate()) == "uno" and len(other.turns.all) == 2


def test_what_the_other_template_does_not_know_is_left_out() -> None:
    call = 'Hm.</think>Let me.<call>{"name": "clock", "arguments": {}}</call>'
    asked = ChatOptions(tuple(TOOLS), think=True, budget=9)
    chat = talk(FakeModel(call), thinking_template(), asked=ChatOptions(tuple(TOOLS)))
    said(chat.answer("Time?"))
    assert chat.calls
    chat.ask(asked)
    plain = moved(chat, FakeModel("x"), PARAMS, None)  # type: ignore[arg-type]
    assert plain.asked == NOTHING and said(plain.answer_calls(["noon"])) == "x"
    other = moved(chat, FakeModel("y"), PARAMS, Template())  # type: ignore[arg-type]
    assert other.asked == ChatOptions(tuple(TOOLS)), "its template has no thoughts"
    same = moved(chat, FakeModel("z"), PARAMS, thinking_template())  # type: ignore[arg-type]
    assert same.asked == asked


def test_an_answer_that_is_only_calls_is_no_text() -> None:
    chat = talk(
        FakeModel('Hm.</think><call>{"name": "clock", "arguments": {}}</call>'),
        thinking_template(),
        asked=ChatOptions(tuple(TOOLS)),
    )
    said(chat.answer("Time?"))
    model = FakeModel("x")
    plain = moved(chat, model, PARAMS, None)  # type: ignore[arg-type]
    assert said(plain.answer_calls(["noon"])) == "x" and model.seq.prefills == ["<s>Time?noon"]


def test_other_settings_go_on_with_the_same_generator() -> None:
    chat = talk(FakeModel("one"), Template())
    chat.draw_by(SamplingParams(seed=5))
    chat.sampler.accept_all([7, 8])
    drawn = [chat.sampler.state()["state"]]
    chat.draw_by(SamplingParams(seed=5, temp=0.2, dry_multiplier=1.0, dry_breakers=()))
    assert chat.params.temp == 0.2 and chat.sampler.params is chat.params
    assert chat.sampler.state()["state"] == drawn[0] and chat.sampler.state()["recent"] == [7, 8]
    assert chat.sampler.state()["said"] == [7, 8]
    chat.draw_by(SamplingParams(seed=6))
    assert chat.sampler.state()["state"] != drawn[0] and chat.sampler.seed == 6
    assert chat.sampler.state()["recent"] == [7, 8]


def test_settings_that_cannot_be_change_nothing() -> None:
    chat = talk(FakeModel("one"), Template())
    before = chat.params, chat.sampler
    with pytest.raises(UsageError, match="the vocabulary has 300"):
        chat.draw_by(SamplingParams(logit_bias={300: 1.0}))
    assert (chat.params, chat.sampler) == before
