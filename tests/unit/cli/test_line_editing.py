"""What is completed in a chat: commands, and what may follow them."""

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from hybrid.cli import line_editing
from hybrid.cli.commands.chat import ARGUMENTS, HELP


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("/th", {"/think"}),
        ("/t", {"/tree", "/tools", "/think"}),
        ("/think o", {"on", "off"}),
        ("/tree x", set()),
        ("hello /t", set()),
    ],
)
def test_completion(text: str, completed: set[str]) -> None:
    assert completions(text) == completed


def test_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "tools.json").touch()
    assert completions(f"/tools {tmp_path}/to") == {"ols.json"}
    assert "off" in completions("/tools of")


def test_arguments_are_those_of_commands() -> None:
    assert ARGUMENTS.keys() <= {name.split()[0] for name in HELP}


def completions(text: str) -> set[str]:
    completer = line_editing.completer([name.split()[0] for name in HELP], ARGUMENTS)
    return {found.text for found in completer.get_completions(Document(text), CompleteEvent())}
