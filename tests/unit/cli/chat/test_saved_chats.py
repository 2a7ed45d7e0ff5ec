"""Names of saved chats."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.cli.chat import saved_chats


def test_chats_of_one_second_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one model, another, and the first again: each part of the conversation is kept."""
    monkeypatch.setattr(time, "strftime", lambda form: "20261122-225000")
    model: Any = SimpleNamespace(path=tmp_path / "own.gguf")
    names = [saved_chats.new(model).name for _ in range(3)]
    assert len(set(names)) == 3 and all(name.endswith(saved_chats.SUFFIX) for name in names)
