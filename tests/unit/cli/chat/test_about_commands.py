"""Commands with which the chat reports about itself."""

import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from fake_chat import FakeModel, Template, talk

from hybrid.cli.chat.about_commands import facts_text, statistics_text
from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.infer.answers.conversations.conversation import Conversation


def answered() -> Conversation:
    """A conversation of one turn."""
    chat = talk(FakeModel("one two"), Template())
    chat.model.memory = SimpleNamespace(bytes_state_per_seq=3 << 20, bytes_kv_per_token=1 << 18)  # type: ignore
    chat.model.cache = SimpleNamespace(n_tokens=7, n_checkpoints=2, nbytes=5 << 20)  # type: ignore
    list(chat.answer("hi"))
    return chat


def test_the_context_takes_its_states_and_the_keys_and_values_of_its_tokens() -> None:
    chat = answered()
    model = chat.model
    held = len(chat.seq.tokens)
    assert held > 1
    context, _, kept, *_ = statistics_text(chat).splitlines()
    assert context == f"context     {held} of {model.n_ctx} tokens, {3 + held / 4:.1f} MiB"
    assert kept == "kept        7 tokens, 2 checkpoints, 5.0 MiB"


def test_a_narrow_terminal_breaks_lines_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((36, 24)))
    lines = statistics_text(answered()).splitlines()
    assert max(map(len, lines)) <= 36
    assert {line[:12] for line in lines if line[0] == " "} == {" " * 12}, "a value goes on below its beginning"


def of_a_file(chat: Conversation) -> Conversation:
    """The conversation with facts of its model."""
    facts = {"name": "tiny \x1b[1m", "n_bytes": 3 << 20, "n_params": 1_500_000, "file_type": "Q8_0", "n_ctx_train": 64}
    metadata = {"general.architecture": "jamba", "general.license": "mit"}
    for name, value in {**facts, "path": "m.gguf", "gguf": SimpleNamespace(metadata=metadata)}.items():
        setattr(chat.model, name, value)
    return chat


def test_facts_of_the_model() -> None:
    lines = facts_text(of_a_file(answered())).splitlines()
    assert lines[0].startswith("model       tiny ") and "\x1b" not in lines[0]
    assert lines[1:3] == ["file        m.gguf, 3.0 MiB", "family      jamba, 1.50 M weights, Q8_0"]
    assert lines[3].endswith(" tokens, trained for 64") and lines[-1] == "license     mit"
    assert lines[4].startswith("can         answers messages")
    continuing = of_a_file(talk(FakeModel("one"), None))
    assert "can         continues text" in facts_text(continuing)


def test_show_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """ollama's words; `/help NAME`, with or without a slash and also by another name of the command."""
    conversation = of_a_file(answered())
    conversation.draw_by(ChatSession(conversation, lambda prompt: "", COMMANDS).sampling.params({}))

    def told(line: str) -> str:
        lines = [line]
        ChatSession(conversation, lambda prompt: lines.pop() if lines else "/exit", COMMANDS).loop()
        captured = capsys.readouterr()
        return captured.out + captured.err

    assert told("/show") == told("/info") == told("/show info") == facts_text(conversation) + "\n"
    assert "no system message" in told("/show system")
    assert told("/set system Be brief.") == told("/system") == told("/show system") == "Be brief.\n"
    assert "top-k" in told("/show parameters")
    assert "expected info, parameters, system or template" in told("/show weights")
    for line in ("/help set", "/? /set"):
        assert told(line).startswith("/set [NAME [VALUE]]") and "top-k" in told(line)
    assert told("/help bye").startswith("/exit") and "\n/" not in told("/help bye")
    assert "there is no command /nothing" in told("/help nothing")
    assert told("/set think") == told("/think on") and told("/set nothink") == told("/think off")
