"""Names of saved chats."""

import os
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


def test_all_chats_together_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of any model goes first; the newest stays, however large it is."""
    monkeypatch.setattr(saved_chats, "folder", lambda: tmp_path)
    monkeypatch.setattr(saved_chats, "BUDGET", 100)
    mine: Any = SimpleNamespace(path=tmp_path / "mine.gguf")
    other: Any = SimpleNamespace(path=tmp_path / "other.gguf")

    def add(model: Any, size: int, when: int) -> Path:
        path = saved_chats.new(model)
        path.write_bytes(bytes(size))
        os.utime(path, (when, when))
        return path

    first, second = add(other, 40, 1), add(mine, 40, 2)
    saved_chats.make_room(mine)
    assert saved_chats.every() == [second, first]
    third = add(mine, 50, 3)
    saved_chats.make_room(mine)
    assert saved_chats.every() == [third, second], "of another model"
    large = add(mine, 500, 4)
    saved_chats.make_room(mine)
    assert saved_chats.every() == [large]
