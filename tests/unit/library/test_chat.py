"""Conversations: turns, branches, files, and functions that the model calls."""

import asyncio
from pathlib import Path

import pytest
from scripted_chat import CALL, SECOND, Script

import hybrid
from hybrid.chat import MOST_CALLS
from hybrid.infer import LoadedModel as Inner
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.quant.ggml.errors import HybridError


def test_turns_are_read_once(model: hybrid.Model, script: Script) -> None:
    chat = model.chat(system="You are brief.", temperature=0)
    script.say("Hi.", "Fine.")
    assert str(chat.say("Hello")) == "Hi."
    before = chat.turns[0].ids
    answer = chat.say("How are you?")
    assert answer.timings.reused_tokens >= len(before) - 1
    assert [(turn.question, turn.answer.text) for turn in chat.turns] == [("Hello", "Hi."), ("How are you?", "Fine.")]
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_chats_share_what_begins_alike(model: hybrid.Model) -> None:
    system = "You are brief, and you answer in one word. " * 8
    model.chat(system=system).say("One", tokens=3)
    assert model.chat(system=system).say("Two", tokens=3).timings.reused_tokens > 60


def test_branches(model: hybrid.Model, script: Script) -> None:
    chat = model.chat()
    script.say("A.", "B.", "C.", "D.")
    chat.say("1")
    chat.say("2")
    other = chat.branch(1)
    other.say("3")
    chat.say("4")
    assert [turn.question for turn in chat.turns] == ["1", "2", "4"]
    assert [turn.question for turn in other.turns] == ["1", "3"]
    assert [turn.question for turn in other.branch(-1).turns] == ["1"] and other.branch(0).turns == []


def test_seeds(model: hybrid.Model) -> None:
    said = [str(chat.say("Hello", tokens=8)) + str(chat.say("Hello", tokens=8)) for chat in _two(model)]
    assert said[0] == said[1]
    first, second = model.chat(seed=5), model.chat(seed=5)
    assert first.say("a", tokens=8).tokens == second.say("a", tokens=8).tokens
    assert second.branch(0).say("a", tokens=8).seed == 6, "asked again, it may say something else"


def _two(model: hybrid.Model) -> list[hybrid.Chat]:
    return [model.chat(seed=1), model.chat(seed=1)]


def test_an_answer_that_was_left_stays_as_far_as_it_came(model: hybrid.Model) -> None:
    chat = model.chat(temperature=0)
    for _ in chat.say("Tell me", stream=True, tokens=900):
        break
    (turn,) = chat.turns
    assert turn.question == "Tell me" and 0 < len(turn.added) < 800
    chat.say("More", tokens=3)
    assert len(chat.turns) == 2


def test_a_question_that_cannot_be_asked_leaves_nothing(model: hybrid.Model) -> None:
    chat = model.chat()
    with pytest.raises(HybridError, match="the context 1024"):
        chat.say("a " * 3000)
    assert chat.turns == [] and chat.say("a", tokens=2).finish == "length"


# --- files ---
def test_files(model: hybrid.Model, tmp_path: Path) -> None:
    chat = model.chat(system="Brief.", temperature=0)
    chat.say("One", tokens=6)
    chat.say("Two", tokens=6)
    chat.save(tmp_path / "a.state")
    again = model.load_chat(tmp_path / "a.state")
    assert again.messages == chat.messages
    one, two = chat.say("Three", tokens=6, temperature=0), again.say("Three", tokens=6, temperature=0)
    assert one.tokens == two.tokens
    model.chat().save(tmp_path / "empty.state")
    assert model.load_chat(tmp_path / "empty.state").turns == []


def test_a_file_is_that_of_hybrid_run(model: hybrid.Model, gguf: Path, tmp_path: Path) -> None:
    """In both directions, and nothing is read again."""
    chat = model.chat(system="Brief.")
    chat.say("One", tokens=6, temperature=0)
    chat.save(tmp_path / "a.state")
    with Inner.load(gguf, n_ctx=1024, n_threads=1, checkpoint_budget=64 << 20) as inner:
        theirs = Conversation(inner, SamplingParams(temp=0), inner.chat_template, max_tokens=6)
        theirs.load(tmp_path / "a.state")
        assert theirs.messages == chat.messages and theirs.seq.tokens == chat.turns[0].ids
        list(theirs.answer("Two"))
        assert theirs.stats.n_reused >= len(chat.turns[0].ids) - 1
        theirs.settings["temp"] = "0.5"
        theirs.save(tmp_path / "b.state")
    with hybrid.load(gguf, context=1024, threads=1) as fresh:
        again = fresh.load_chat(tmp_path / "b.state")
        answer = again.say("Three", tokens=6)
        again.save(tmp_path / "c.state")
        assert fresh.load_chat(tmp_path / "c.state")._set_in_terminal == {"temp": "0.5"}, "kept for `hybrid run`"
    assert [turn.question for turn in again.turns] == ["One", "Two", "Three"]
    assert answer.timings.reused_tokens >= len(theirs.turns.path[1].ids) - 1


def test_a_file_that_is_no_chat(model: hybrid.Model, gguf: Path, tmp_path: Path) -> None:
    with Inner.load(gguf, n_threads=1) as inner:
        seq = inner.sequence()
        seq.prefill([1, 2, 3])
        seq.save(tmp_path / "a.state")
        seq.save(tmp_path / "b.state", {"chat": {"turns": 3}})
    with pytest.raises(HybridError, match="holds a completion, not a chat"):
        model.load_chat(tmp_path / "a.state")
    with pytest.raises(HybridError, match="is damaged: its chat has no turns"):
        model.load_chat(tmp_path / "b.state")
    with pytest.raises(HybridError):
        model.load_chat(gguf)


# --- functions ---
def add(a: int, b: bool = False) -> dict[str, int]:
    """Adds."""
    return {"sum": a + b}


def look(what: str) -> str:
    """Looks."""
    raise LookupError(f"nothing {what}")


def test_functions_are_called_until_there_is_an_answer(tooled: hybrid.Model, script: Script) -> None:
    chat = tooled.chat(tools=[add, look])
    script.say(f"I add. {CALL}", SECOND, "It is 6.")
    answer = chat.say("5 and one?")
    assert str(answer) == "It is 6." and answer.finish == "stop" and answer.tool_calls == ()
    assert [(call.name, result) for call, result in answer.called] == [
        ("add", '{"sum":6}'),
        ("look", "error: LookupError: nothing there"),
    ]
    assert [turn.question for turn in chat.turns] == [
        "5 and one?",
        ('{"sum":6}',),
        ("error: LookupError: nothing there",),
    ]
    assert answer.timings.tokens > len(answer.tokens), "of all rounds"


def test_streams_tell_all_rounds(tooled: hybrid.Model, script: Script) -> None:
    script.say(f"I add. {CALL}", "It is 6.")
    answer = tooled.chat(tools=[add]).say("?", stream=True)
    assert "".join(answer) == "I add.It is 6." and answer.text == "It is 6."
    assert [part.text for part in answer.parts() if part.kind == "call"] == ["add"]


def test_functions_in_an_event_loop(tooled: hybrid.Model, script: Script) -> None:
    script.say(CALL, "It is 6.")

    async def written() -> str:
        return "".join([piece async for piece in tooled.chat(tools=[add]).say("?", stream=True)])

    assert asyncio.run(written()) == "It is 6."


def test_calls_have_a_bound(tooled: hybrid.Model, script: Script) -> None:
    chat = tooled.chat(tools=[add])
    script.say(*[CALL] * (MOST_CALLS + 1))
    answer = chat.say("?")
    assert len(answer.called) == MOST_CALLS and answer.finish == "tool_calls" and len(answer.tool_calls) == 1
    script.say("Well.")
    assert str(chat.tell(["6"])) == "Well."


def test_descriptions_of_tools_are_not_called(tooled: hybrid.Model, script: Script) -> None:
    described = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    chat = tooled.chat(tools=[described])
    script.say(CALL, "Six.")
    answer = chat.say("?")
    assert answer.finish == "tool_calls" and answer.tool_calls[0].name == "add" and answer.called == []
    assert str(chat.tell(["6"])) == "Six."


def test_a_saved_chat_has_its_tools(tooled: hybrid.Model, script: Script, tmp_path: Path) -> None:
    chat = tooled.chat(tools=[add])
    script.say("Hm.", CALL, "Six.", CALL)
    chat.say("?")
    chat.save(tmp_path / "a.state")
    again = tooled.load_chat(tmp_path / "a.state", tools=[add])
    assert str(again.say("Do it")) == "Six."
    assert tooled.load_chat(tmp_path / "a.state").say("Do it").finish == "tool_calls"
    with pytest.raises(HybridError, match="has no tool look"):
        tooled.load_chat(tmp_path / "a.state", tools=[look])


def test_ctrl_c_in_a_function(tooled: hybrid.Model, script: Script) -> None:
    def wait(what: str) -> None:
        """Waits."""
        raise KeyboardInterrupt

    wait.__name__ = "look"
    chat = tooled.chat(tools=[wait])
    script.say(SECOND, "Yes?")
    with pytest.raises(KeyboardInterrupt):
        chat.say("?")
    assert len(chat.turns) == 1 and str(chat.say("Hello?")) == "Yes?"
