"""What an error on the command line has to be."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hybrid.cli.main import run


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts[:1]}


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line that must fail: notes may come before, then one line; no file appears or goes. The line."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object, code: int) -> str:
        before = {path: path.stat().st_size for path in _files(tmp_path)}
        capsys.readouterr()
        given = run([str(a) for a in args])
        captured = capsys.readouterr()
        assert given == code, captured
        lines = captured.err.splitlines()
        assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True], captured.err
        assert "Traceback" not in captured.err and "Warning" not in captured.err, captured.err
        assert {path: path.stat().st_size for path in _files(tmp_path)} == before, "files appeared, changed or went"
        return lines[-1]

    return call
