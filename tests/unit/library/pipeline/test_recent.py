"""Recently run files."""

import json
import os
from pathlib import Path

import pytest

from hybrid import cache_paths
from hybrid.pipeline import models, recent


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache_paths, "state_dir", lambda: tmp_path / "state")
    monkeypatch.setattr(cache_paths, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "state"


def touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_the_newest_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    one, two = (touched(tmp_path / f"{name}.gguf") for name in ("one", "two"))
    for path in (one, two):
        now += 1
        assert models.resolve(path) == path
    assert list(recent.paths()) == [two, one]
    written = (state / "models.json").stat().st_mtime_ns
    models.resolve(one)
    assert (state / "models.json").stat().st_mtime_ns == written, "once an hour is enough"
    now += recent.EVERY
    models.resolve(one)
    assert list(recent.paths()) == [one, two]
    two.unlink()
    assert list(recent.paths()) == [one]


def test_what_is_in_our_cache_is_not_noted(tmp_path: Path) -> None:
    recent.note(touched(tmp_path / "cache" / "converted" / "m.gguf"))
    assert recent.paths() == {}


def test_no_more_than_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 3)
    for i in range(recent.MOST + 5):
        recent.note(touched(tmp_path / f"{i}.gguf"))
    assert len(recent.paths()) == recent.MOST


def test_what_is_no_model_is_not_noted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_bytes(b"GGU")
    for name in ("pipe", "text", "missing", "."):
        recent.note(tmp_path / name)
    assert recent.paths() == {}


@pytest.mark.parametrize("damaged", ["", "[]", "{", '{"a": "b"}', '{"a": null}', "3"])
def test_a_damaged_note(damaged: str, tmp_path: Path, state: Path) -> None:
    touched(state / "models.json").write_text(damaged)
    assert recent.paths() == {}
    recent.note(touched(tmp_path / "m.gguf"))
    assert json.loads((state / "models.json").read_text()).keys() == {str(tmp_path / "m.gguf")}


def test_nothing_can_be_written(tmp_path: Path, state: Path) -> None:
    state.write_bytes(b"a file in the way")
    path = touched(tmp_path / "m.gguf")
    assert models.resolve(path) == path and recent.paths() == {}
