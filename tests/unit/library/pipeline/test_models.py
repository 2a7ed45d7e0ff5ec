"""Accepted values of MODEL, and when a folder is converted again."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from hybrid import cache_paths
from hybrid.pipeline import models
from hybrid.quant.ggml.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_the_cache_name_follows_content_and_place(folder: Path) -> None:
    first = cache_paths.cache_path(folder)
    assert first == cache_paths.cache_path(folder)
    assert first.name.startswith("model-")
    (folder / "picture.png").write_bytes(b"x")
    assert cache_paths.cache_path(folder) == first, "a picture does not make another model"
    os.utime(folder / "model.safetensors", (1, 1))
    changed = cache_paths.cache_path(folder)
    assert changed != first
    assert changed.name.rpartition("-")[0] == first.name.rpartition("-")[0], "the old one would not be found"
    folder.rename(folder.with_name("other"))
    assert cache_paths.cache_path(folder.with_name("other")).name.split("-")[0] == "other"


def test_a_folder_is_converted_once_and_again_when_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def convert(source: Path, target: Path, **_: object) -> SimpleNamespace:
        calls.append(source)
        target.write_bytes(b"gguf")
        return SimpleNamespace(all_notes=())

    monkeypatch.setattr("hybrid.convert.convert", convert, raising=False)
    first = models.resolve(folder)
    assert models.resolve(folder) == first
    assert len(calls) == 1
    os.utime(folder / "config.json", (1, 1))
    second = models.resolve(folder)
    assert len(calls) == 2
    assert second.exists() and not first.exists(), "the file of the old content stays behind"


def test_a_folder_with_one_gguf_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert models.resolve(tmp_path) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    names = re.escape(f"{tmp_path / 'a.gguf'}, {tmp_path / 'b.gguf'}")
    with pytest.raises(UsageError, match=rf"holds 2 \.gguf files\. Name one of them: {names}"):
        models.resolve(tmp_path)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json and no \.gguf"):
        models.resolve(tmp_path)


def test_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert models.name_of(tmp_path / "a.gguf") == "a" and models.name_of(tmp_path) == tmp_path.name
    assert models.name_of(None) == "jamba-11m" and models.name_of(Path("org/name:Q8_0")) == "org/name:Q8_0"


def test_the_bundled_files_are_there() -> None:
    assert (models.bundled_checkpoint() / "config.json").is_file()
    text = models.bundled_prose().read_text(encoding="utf-8")
    assert len(text) > 10_000
