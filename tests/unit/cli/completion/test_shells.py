"""Where scripts are installed, and for which shell."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hybrid.cli.completion import shells
from hybrid.cli.main import run
from hybrid.quant.ggml.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_what_is_in_a_start_file_stays(home: Path) -> None:
    start = home / ".bashrc"
    start.write_bytes(b"alias a=b")
    said = shells.install("bash")
    assert str(start) in said and "next bash" in said
    text = start.read_text()
    assert text.startswith("alias a=b\n[ -f ") and text.endswith("\n")
    shells.install("bash")
    assert start.read_text() == text


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_home_whose_name_a_shell_would_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = home / "a $(touch ran) `touch ran` \" '"
    strange.mkdir()
    monkeypatch.setenv("HOME", str(strange))
    shells.install("bash")
    script = '. "$HOME/.bashrc"; complete -p hybrid; ls'
    result = subprocess.run(["bash", "-c", script], cwd=home, capture_output=True, text=True, check=True)
    assert "_hybrid_complete" in result.stdout and "\nran" not in result.stdout


def test_the_shell_that_runs_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shells, "_parent", lambda: "make")
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run(["--show-completion"]) == 0
    assert capsys.readouterr().out.startswith("# completion of hybrid for fish")
    monkeypatch.setattr(shells, "_parent", lambda: "zsh")
    assert run(["--show-completion"]) == 0
    assert capsys.readouterr().out.startswith("# completion of hybrid for zsh")
    assert run(["--show-completion", "tcsh"]) == 2
    assert "tcsh: there is completion for bash, zsh, fish." in capsys.readouterr().err
    monkeypatch.setenv("SHELL", "")
    monkeypatch.setattr(shells, "_parent", lambda: "")
    with pytest.raises(UsageError, match="Name it"):
        shells.running()


def test_a_home_that_cannot_be_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".local").write_bytes(b"")
    assert run(["--install-completion", "bash"]) == 1
    assert "--show-completion bash` prints the script" in capsys.readouterr().err
