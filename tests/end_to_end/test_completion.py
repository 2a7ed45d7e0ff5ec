"""Completion in real shells, typed at a terminal."""

import os
import pty
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli

pytestmark = pytest.mark.exhaustive

HERE = Path(sys.executable).parent
STARTS = {
    "bash": ["--noprofile", "--rcfile", "{home}/.bashrc", "-i"],
    "zsh": ["-d", "-i"],  # skips the system's startup files
    "fish": ["--no-config", "--interactive", "--init-command", "source {home}/.config/fish/completions/hybrid.fish"],
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with a model in the hub's cache, and a working folder."""
    home = tmp_path / "home"
    snapshot = home / "hub" / "models--org--tiny-GGUF" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    for name in ("tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf"):
        (snapshot / name).write_bytes(b"GGUF")
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("a" * 40)
    for name in ("here/one.gguf", "here/notes.txt", "here/sub/two.gguf"):
        (home / name).parent.mkdir(exist_ok=True, parents=True)
        (home / name).touch()
    return home


@contextmanager
def shell(name: str, home: Path, program: Path) -> Iterator[int]:
    """A shell in a terminal of its own, with the program `hybrid`; yields the file descriptor for its input."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8",
        "HF_HUB_CACHE": str(home / "hub"), "XDG_CACHE_HOME": str(home / ".cache"), "PS1": "> ", "ZDOTDIR": str(home),
        "XDG_STATE_HOME": str(home / ".state"), "XDG_DATA_HOME": str(home / ".local" / "share"), "HISTFILE": "",
    }  # fmt: skip
    arguments = [name, *(word.format(home=home) for word in STARTS[name])]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(home / "here")
        os.execve(path, arguments, environment)
    try:
        yield fd
    finally:
        with suppress(OSError):
            os.close(fd)
        with suppress(OSError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)


def read(fd: int, until: str, patience: float = 60) -> str:
    """Output of the terminal until it matches `until`."""
    text, end = "", time.monotonic() + patience
    while not re.search(until, text):
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            pytest.fail(f"{until} did not come: {text!r}")
        try:
            text += os.read(fd, 65536).decode("utf-8", "replace")
        except OSError:
            pytest.fail(f"the shell has ended: {text!r}")
    return text


def completed(fd: int, line: str, number: int) -> str:
    """The command line after the Tab key, printed instead of run."""
    # typed at once, as the shell reads on after completing: Tab, go to the line's start, insert echo, go to its end
    os.write(fd, line.encode() + b"\t\x01echo 'line " + str(number).encode() + b":' \x05\r")
    shown = read(fd, rf"\r?\nline {number}: [^\r\n]*\r?\n")
    found = re.findall(rf"\nline {number}: ([^\r\n]*)", shown)
    assert "rror" not in shown and "Traceback" not in shown, shown
    return found[-1].strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STARTS))
def test_a_line_is_completed(name: str, home: Path, program: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert cli("--install-completion", name)[0] == 0
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert cli("--install-completion", name)[0] == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before, "installed twice"
    with shell(name, home, program) as fd:
        os.write(fd, b"echo begun\r")
        read(fd, r"\nbegun")
        lines = {
            "hybrid perpl": "hybrid perplexity",
            "hybrid gguf merge-l": "hybrid gguf merge-lora",
            "hybrid run --json-s": "hybrid run --json-schema",
            "hybrid run --spec ngr": "hybrid run --spec ngram",
            "hybrid run org/tiny-GGUF:Q8": "hybrid run org/tiny-GGUF:Q8_0",
            "hybrid run org/tiny-GGUF:": "hybrid run org/tiny-GGUF:Q",
            "hybrid run one": "hybrid run one.gguf",
            "hybrid run su": "hybrid run sub/",
            "hybrid run one.gguf -f no": "hybrid run one.gguf -f notes.txt",
            "hybrid nonsense x": "hybrid nonsense x",
        }
        wrong = {}
        for number, (line, expected) in enumerate(lines.items()):
            found = completed(fd, line, number)
            if name == "fish" and expected.endswith(":Q"):  # fish may show a list instead
                expected = found if found.startswith(line) else expected
            if found.rstrip("/") != expected.rstrip("/"):  # zsh removes its slash again
                wrong[line] = found
        assert not wrong
