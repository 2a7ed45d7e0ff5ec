"""`hybrid cache`: lists, clears, and says what it did."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hybrid.cli.main import run
from hybrid.infer.kernels import cache_folders


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache_folders, "roots", lambda: [tmp_path])
    cache_folders.folder.cache_clear()
    yield tmp_path
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
    assert capsys.readouterr().out == "no compiled kernels\n"
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
    found = {Path(f["path"]): f for f in json.loads(capsys.readouterr().out)}
    assert found.keys() == set(filled)
    assert found[filled[0]]["in_use"]
    assert found[filled[0]]["features"] == list(cache_folders.owner().features)
    assert found[filled[1]]["n_kernels"] == 1


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
    assert capsys.readouterr().out.startswith(f"{len(gone)} folder{'s' * (len(gone) > 1)} removed, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--all"], "--all belongs to `hybrid cache clear`."),
        (["clear", "--all", "--old"], "--old and --all contradict each other."),
        (["remove"], "'remove' is not one of"),
    ],
)
def test_misuse(arguments: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", *arguments]) == 2
    assert message in capsys.readouterr().err
