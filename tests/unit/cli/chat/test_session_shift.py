"""A chat that outgrows its context goes on (--context-shift); only other branches are processed again."""

from pathlib import Path
from typing import Any

import pytest
from fake_chat import N_VOCAB, FakeModel, Template, said, talk
from test_conversation import GOOD

from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.quant.ggml.errors import Remedy, StateError, UsageError


def grown(keep: int = 0, system: str = "", n_ctx: int = 60) -> tuple[FakeModel, Conversation]:
    """Two turns, the second one too long."""
    model = FakeModel("a" * 30, "b" * 40, "three", "four", n_ctx=n_ctx)
    chat = talk(model, Template(), keep=keep, system=system)
    assert said(chat.answer("q")) == "a" * 30
    assert model.shifts == [] and chat.held is None
    assert said(chat.answer("r")) == "b" * 40
    return model, chat


def test_it_goes_on_where_it_was() -> None:
    model, chat = grown()
    # <s><user>q</s><bot> a... </s><user>r</s><bot> b...: BOS stays, half of the other 58 leaves, twice
    assert model.shifts == [(1, 29)] and chat.held is chat.turns.head
    assert chat.result is not None and chat.result.discarded == 29
    assert said(chat.answer("s")) == "three"
    assert model.seq.prefills == ["<s><user>q</s><bot>", "</s><user>r</s><bot>", "</s><user>s</s><bot>"]
    assert [m["content"] for m in chat.messages] == ["q", "a" * 30, "r", "b" * 40, "s", "three"]
    head = chat.turns.head
    assert head is not None and len(head.ids) > 80 > 60 > len(model.seq.tokens)
    assert head.ids[-len(model.seq.tokens) + 1 :] == model.seq.tokens[1:], "it holds the end of the conversation"


@pytest.mark.parametrize(("keep", "kept"), [(0, 1), (2, 3), (100, 7), (-1, 7)])
def test_of_the_system_message_something_stays(keep: int, kept: int) -> None:
    model, _ = grown(keep, system="told")
    assert {k for k, _ in model.shifts} == {kept}, "<s><sys>told</s> are seven"


def test_without_a_system_message_there_is_nothing_to_keep() -> None:
    model, _ = grown(-1)
    assert {k for k, _ in model.shifts} == {1}


def test_another_answer_is_one_to_the_whole_question() -> None:
    model, chat = grown()
    assert said(chat.regenerate()) == "three"
    assert model.seq.prefills[-1] == "</s><user>r</s><bot>" and chat.held is None
    assert len(model.seq.tokens) == 6 + 29 + 5 + 5, "all of the first turn is there again"
    assert said(chat.answer("s")) == "four"
    assert model.seq.prefills[-1] == "</s><user>s</s><bot>"


def test_a_branch_that_has_outgrown_the_context_is_processed_again_as_far_as_it_fits() -> None:
    model, chat = grown()
    said(chat.answer("s"))
    chat.undo()
    assert said(chat.answer("t")) == "four"
    prompt = model.seq.prefills[-1]
    assert prompt.endswith("b</s><user>t</s><bot>") and len(prompt) < 120
    assert len(model.seq.tokens) < 60 and chat.held is chat.turns.head
    model.script = ["five"]
    assert said(chat.answer("u")) == "five"
    assert model.seq.prefills[-1] == "</s><user>u</s><bot>", "and gone on with"


def test_an_interrupted_prompt_does_not_count_as_seen() -> None:
    model, chat = grown()
    model.interrupt_prefill = True
    assert said(chat.answer("s")) == ""
    assert len(chat.turns.all) == 2 and chat.held is None
    model.interrupt_prefill = False
    assert said(chat.answer("s")) == "three"
    assert model.seq.prefills[-1].endswith("b</s><user>s</s><bot>"), "the end of the conversation, once"
    assert model.seq.tokens.count(ord("s")) == 1


def test_save_and_load() -> None:
    model, chat = grown()
    chat.save(Path("f"))
    saved = model.files[Path("f")][1]["chat"]
    assert (saved["held"], saved["unseen"]) == (2, [])
    other = FakeModel("three", n_ctx=60)
    other.files = model.files
    again = talk(other, Template(), keep=0)
    again.load(Path("f"))
    assert again.held is again.turns.head
    assert said(again.answer("s")) == "three"
    assert other.seq.prefills == ["</s><user>s</s><bot>"]
    again.clear()
    assert again.held is None


def test_a_token_that_was_drawn_and_not_seen_comes_first() -> None:
    model = FakeModel("a" * 90, "two", n_ctx=60)
    chat = talk(model, Template(), keep=0, max_tokens=80)
    said(chat.answer("q"))
    assert chat.held is not None and chat.unseen == [ord("a")]
    said(chat.answer("r"))
    assert model.seq.prefills[-1] == "a</s><user>r</s><bot>"


@pytest.mark.parametrize("more", [{"held": 2}, {"held": -1}, {"held": "1"}, {"held": 1, "unseen": [N_VOCAB]}])
def test_damage(more: dict[str, Any]) -> None:
    model = FakeModel("one")
    model.files[Path("f")] = ([5], {"chat": {**GOOD, **more}})
    chat = talk(model, Template(), keep=0)
    with pytest.raises(StateError, match="its chat has no turns"):
        chat.load(Path("f"))
    assert chat.messages == [] and chat.held is None


def test_what_cannot_fit_is_refused_and_nothing_leaves() -> None:
    model, chat = grown()
    before = list(model.seq.tokens)
    with pytest.raises(UsageError, match=r"conversation has 139 tokens, the context 60\.$") as refused:
        chat.undo()
        said(chat.answer("x" * 100))
    assert refused.value.remedy is Remedy.SHORTER_CONVERSATION
    assert model.seq.tokens == before and len(model.shifts) == 1
    plain = talk(FakeModel("a" * 30, "b" * 40, n_ctx=60), Template())
    said(plain.answer("q"))
    said(plain.answer("r"))
    assert plain.result is not None and plain.result.reason == "context"
    with pytest.raises(UsageError, match=r"the context 60\.$") as refused:
        said(plain.answer("s"))
    assert refused.value.remedy is Remedy.CONTEXT_SHIFT


def test_it_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("a" * 70, "b" * 70, n_ctx=60)
    lines = iter(["q", "r"])

    def read(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    model.memory.attention = type("Attention", (), {"specs": [1]})
    ChatSession(talk(model, Template(), keep=0), read, COMMANDS).loop()
    err = capsys.readouterr().err
    assert err.count("the context of 60 was full: ") == 1 and len(model.shifts) > 2
