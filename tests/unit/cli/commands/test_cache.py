"""`hybrid cache` lists, clears, and reports."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hybrid import cache_paths
from hybrid.cli.main import run
from hybrid.infer.kernels.build import cache_folders
from hybrid.pipeline import cached_models, models


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(cache_folders, "roots", lambda: [tmp_path / "kernels"])
    monkeypatch.setattr(cache_folders, "former_roots", list)
    monkeypatch.setattr(cache_paths, "cache_dir", lambda: tmp_path / "cache")
    cache_folders.folder.cache_clear()
    yield tmp_path / "kernels"
    cache_folders.folder.cache_clear()


@pytest.fixture
def filled(root: Path) -> tuple[Path, Path]:
    """The folder in use, and another."""
    mine, other = cache_folders.folder(), root / "0123456789abcdef"
    assert mine is not None
    other.mkdir()
    (mine / "a.bin").write_bytes(bytes(2048))
    (other / "b.bin").write_bytes(bytes(100))
    return mine, other


def test_nothing_there_and_nothing_made(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache"]) == 0
    assert capsys.readouterr().out == "nothing is cached\n"
    assert list(root.iterdir()) == []


def test_the_list(filled: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["folder", "kernels", "size", "last", "used", "(UTC)", "made", "for"]
    by_path = {line.split()[0]: line for line in lines}
    assert by_path[str(filled[0])].endswith("in use")
    assert cache_folders.owner().cpu in by_path[str(filled[0])]
    assert by_path[str(filled[1])].split()[1:4] == ["1", "100", "B"]
    assert by_path[str(filled[1])].endswith("an earlier version")


def test_the_list_as_json(filled: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "list", "--json"]) == 0
    listed = {Path(f["path"]): f for f in json.loads(capsys.readouterr().out)}
    assert listed.keys() == set(filled)
    assert listed[filled[0]]["in_use"]
    assert listed[filled[0]]["features"] == list(cache_folders.owner().features)
    assert listed[filled[1]]["n_kernels"] == 1


def test_the_path(filled: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{filled[0]}\n"


def test_no_place_for_a_cache(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cache_folders, "roots", lambda: [Path("/dev/null/x")])
    cache_folders.folder.cache_clear()
    assert run(["cache", "path"]) == 1
    expected = "no folder for kernels can be written (tried /dev/null/x): each start compiles them."
    assert expected in capsys.readouterr().err
    cache_folders.folder.cache_clear()


@pytest.mark.parametrize(("option", "gone"), [([], (0,)), (["--old"], (1,)), (["--all"], (0, 1))])
def test_clearing(
    option: list[str], gone: tuple[int, ...], filled: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", "clear", *option]) == 0
    assert [i for i, path in enumerate(filled) if not path.exists()] == list(gone)
    assert capsys.readouterr().out.startswith(
        f"{len(gone)} folder{'s' * (len(gone) > 1)} of kernels and 0 models removed, "
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--all"], "--all belongs to `hybrid cache clear`."),
        (["clear", "--all", "--old"], "--old and --all contradict each other."),
        (["path", "--models"], "--models belongs to `hybrid cache list` and `clear`."),
        (["remove"], "'remove' is not one of"),
    ],
)
def test_misuse(arguments: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", *arguments]) == 2
    assert message in capsys.readouterr().err


# --- models --------------------------------------------------------------------------------------


def _checkpoint(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def conversions(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Conversions of a folder that is there, one that changed, one that is gone, one unrecorded; and one of demo's."""

    def convert(folder: Path, target: Path, **_: object) -> SimpleNamespace:
        target.write_bytes(bytes(1000))
        return SimpleNamespace(all_notes=())

    monkeypatch.setattr("hybrid.convert.convert", convert)
    paths = {}
    for name in ("here", "changed", "gone", "unknown"):
        paths[name] = models.converted(_checkpoint(tmp_path / name))
    (tmp_path / "changed" / "config.json").write_text('{"other": 1}')
    shutil.rmtree(tmp_path / "gone")
    cache_paths.about(paths["unknown"]).unlink()
    paths["demo"] = tmp_path / "cache" / "demo" / "d.gguf"
    paths["demo"].parent.mkdir()
    paths["demo"].write_bytes(bytes(500))
    return paths


def test_models_are_listed(
    conversions: dict[str, Path], filled: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["cache", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {f["kind"] for f in listed} == {"kernels", "model"}
    by_path = {Path(f["path"]): f for f in listed}
    said = {name: (by_path[path]["in_use"], by_path[path]["trouble"]) for name, path in conversions.items()}
    assert said == {
        "here": (True, None),
        "changed": (False, "its folder has changed"),
        "gone": (False, "its folder is gone"),
        "unknown": (False, "of an unknown folder"),
        "demo": (True, None),
    }
    assert by_path[conversions["gone"]]["made_of"] == str(tmp_path / "gone")
    assert by_path[conversions["demo"]]["made_of"] == "hybrid demo"
    assert run(["cache", "--models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and sum("its folder is gone" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("options", "gone", "n_folders"),
    [
        (["--old"], {"changed", "gone", "unknown"}, 1),
        (["--all"], {"here", "changed", "gone", "unknown", "demo"}, 2),
        ([], {"here", "demo"}, 1),
        (["--models"], {"here", "demo"}, 0),
        (["--kernels"], set(), 1),
        (["--all", "--models"], {"here", "changed", "gone", "unknown", "demo"}, 0),
    ],
)
def test_models_are_cleared(
    options: list[str],
    gone: set[str],
    n_folders: int,
    conversions: dict[str, Path],
    filled: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(["cache", "clear", *options]) == 0
    assert {name for name, path in conversions.items() if not path.exists()} == gone
    assert {name for name, path in conversions.items() if cache_paths.about(path).exists()} == (
        {"here", "changed", "gone"} - gone
    )
    assert f"{n_folders} folder" in (said := capsys.readouterr().out) and f"{len(gone)} model" in said


def test_who_uses_it_again_writes_down_what_it_is(conversions: dict[str, Path], tmp_path: Path) -> None:
    assert models.converted(tmp_path / "unknown") == conversions["unknown"]
    assert {m.path for m in cached_models.every() if m.in_use} == {conversions[n] for n in ("here", "unknown", "demo")}


def test_what_is_long_unused_goes_when_another_is_made(conversions: dict[str, Path], tmp_path: Path) -> None:
    long_ago = time.time() - (cached_models.KEEP_DAYS + 1) * 86400
    for name in ("here", "gone"):
        for path in (conversions[name], cache_paths.about(conversions[name])):
            os.utime(path, (long_ago, long_ago))
    unfinished = tmp_path / "cache" / "converted" / ".x-1-2.gguf.0123abcd.tmp"
    unfinished.write_bytes(b"of a conversion that was killed")
    models.converted(_checkpoint(tmp_path / "another"))
    assert {name for name, path in conversions.items() if not path.exists()} == {"gone"}
    assert not unfinished.exists()


def test_a_changed_folder_takes_its_note_along(conversions: dict[str, Path], tmp_path: Path) -> None:
    models.converted(tmp_path / "changed")
    assert not conversions["changed"].exists() and not cache_paths.about(conversions["changed"]).exists()


def test_all_is_in_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folders.roots()[0].parent == cache_paths.cache_dir()
    assert cache_paths.cache_dir().name == cache_paths.state_dir().name == "hybrid"
