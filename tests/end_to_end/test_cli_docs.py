"""What the documentation says about the code is what the code says."""

import re
from pathlib import Path

import generated_docs
import pytest

from hybrid.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", generated_docs.FILES)
def test_generated_parts_are_current(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- generated:" in text
    assert generated_docs.renewed(text) == text, f"{name} is behind the code: make docs"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_are_linked_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), f"{name} links to {target}"


def test_options_that_the_readme_uses_exist() -> None:
    """Every `hybrid COMMAND --option` in the README is one that the command knows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    seen = 0
    commands = "|".join(name for name in COMMANDS if name != "gguf")
    for command, rest in re.findall(rf"hybrid ({commands})\b([^`\n|#&]*)", text):
        known = set(re.findall(r"(?<![\w-])--?[\w-]+", generated_docs.help_text(command)))
        for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest):
            seen += 1
            assert option in known, f"README: hybrid {command} has no {option}"
    assert seen > 25
