"""Completion in a chat: commands and their arguments."""

from pathlib import Path

import pytest
from fake_chat import FakeModel, Template, talk
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from hybrid.cli.chat.commands import COMMANDS
from hybrid.cli.chat.session import ChatSession
from hybrid.cli.terminal import line_editing
from hybrid.infer.answers.asking.reading import SaidAnswer


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ChatSession:
    monkeypatch.setattr("hybrid.cache_paths.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("hybrid.cache_paths.state_dir", lambda: tmp_path / "state")
    conversation = talk(FakeModel(), Template(), system="Be brief.")
    conversation.model.path = tmp_path / "m.gguf"
    first = conversation.turns.add(None, "Why?", SaidAnswer("So."))
    conversation.turns.fork("side")
    conversation.turns.add(first, "And now?", SaidAnswer("No."))
    return ChatSession(conversation, lambda prompt: "", COMMANDS)


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("/th", {"/think"}),
        ("/t", {"/tree", "/tools", "/think"}),
        ("/s", {"/switch", "/system", "/set", "/skip", "/save", "/show", "/stats"}),
        ("/think o", {"on", "off"}),
        ("/tree x", set()),
        ("/nothing x", set()),
        ("hello /t", set()),
        ("/set te", {"temp"}),
        ("/set top", {"top-k", "top-p", "top-n-sigma"}),
        ("/set greedy o", {"on", "off"}),
        ("/set temp d", {"default"}),
        ("/switch ", {"main", "side", "1", "2"}),
        ("/edit 2", {"2 And now?"}),
        ("/system B", {"Be brief."}),
    ],
)
def test_completion(text: str, completed: set[str], chat: ChatSession) -> None:
    assert completions(text, chat) == completed


def test_names_of_files(tmp_path: Path, chat: ChatSession) -> None:
    for name in ("tools.json", "tools.txt", "model.gguf", "other.md"):
        (tmp_path / name).touch()
    (tmp_path / "toolshed").mkdir()
    assert completions(f"/tools {tmp_path}/to", chat) == {"ols.json", "olshed"}
    assert "off" in completions("/tools of", chat)
    assert completions(f"/model {tmp_path}/", chat) == {"model.gguf", "toolshed"}
    assert completions(f"/save {tmp_path}/o", chat) == {"ther.md"}


def test_models_that_were_converted(tmp_path: Path, chat: ChatSession) -> None:
    for kind in ("demo", "shapes"):
        made = tmp_path / "cache" / kind
        made.mkdir(parents=True)
        (made / f"{kind}.gguf").touch()
    found = {name for name in completions("/model ", chat) if name.startswith("/")}
    assert found == {str(tmp_path / "cache" / "demo" / "demo.gguf")}, (
        "random weights of a benchmark are no model to ask"
    )


def test_every_command_can_be_completed(chat: ChatSession) -> None:
    for name in COMMANDS:
        completions(f"{name} ", chat)


def completions(text: str, chat: ChatSession) -> set[str]:
    completer = line_editing.completer([name for name, c in COMMANDS.items() if c.help], chat.words)
    return {found.text for found in completer.get_completions(Document(text), CompleteEvent())}
