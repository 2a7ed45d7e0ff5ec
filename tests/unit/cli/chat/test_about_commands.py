"""Commands with which the chat reports about itself."""

import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from fake_chat import FakeModel, Template, talk

from hybrid.cli.chat.about_commands import statistics_text
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
