"""A tokenizer is made once for a file, and again when the file has changed."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.cli.serve.models import kept_tokenizer
from hybrid.cli.serve.models.kept_tokenizer import KeptTokenizer


def model(path: Path, n_vocab: int = 100) -> Any:
    file = SimpleNamespace()
    return SimpleNamespace(path=path, n_vocab=n_vocab, file=file, tokenizer=object())


def test_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"a")
    kept, first, second, third = KeptTokenizer(), model(path), model(path), model(path)
    kept.lend(first)
    assert vars(first.file) == {}
    kept.keep(first)
    kept.lend(second)
    assert second.file.tokenizer is first.tokenizer
    os.utime(path, (1, 1))
    kept.lend(third)
    assert vars(third.file) == {}
    monkeypatch.setattr(kept_tokenizer, "MOST_TOKENS", 50)
    fresh = KeptTokenizer()
    fresh.keep(first)
    fresh.lend(third)
    assert vars(third.file) == {}
