"""`hybrid launch` with a running server: what it prints, writes and starts."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli
from http_server import WAIT, Server

from hybrid.cli.launch.clients import CLIENTS
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def server(small: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(small["q8_0"], n_ctx=64, n_seq_max=5) as model:
        server = Server(model, keys=("secret",))
        yield server
        server.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "keys").write_text("secret\nother\n")
    (tmp_path / "keys").chmod(0o600)
    return tmp_path / "home"


def options(server: Server, tmp_path: Path) -> tuple[Any, ...]:
    return "--url", server.url, "--api-key-file", tmp_path / "keys"


def test_it_prints_lines_for_a_shell(cli: Cli, server: Server, home: Path, tmp_path: Path) -> None:
    code, out, err = cli("launch", "claude", *options(server, tmp_path))
    assert code == 0 and not home.exists(), "nothing is written"
    lines = [shlex.split(line) for line in out.splitlines()]
    assert {words[0] for words in lines[:-1]} == {"export"} and lines[-1] == ["claude"]
    variables = dict(words[1].split("=", 1) for words in lines[:-1])
    assert variables["ANTHROPIC_BASE_URL"] == server.url and variables["ANTHROPIC_AUTH_TOKEN"] == "secret"
    assert variables["ANTHROPIC_MODEL"] == "tiny" and variables["ANTHROPIC_API_KEY"] == ""
    first, warning = err.splitlines()
    assert first == f"Claude Code with tiny of {server.url}, context 64"
    assert warning == "warning: coding agents soon fill 64 tokens. Start the server with a larger -c."


def test_it_prints_a_file(cli: Cli, server: Server, home: Path, tmp_path: Path) -> None:
    code, out, err = cli("launch", "pi", *options(server, tmp_path))
    place, text = out.split("\n", 1)
    assert code == 0 and place == f"# {home}/.pi/agent/models.json" and not home.exists()
    assert json.loads(text)["providers"]["hybrid"]["models"][0]["id"] == "tiny"
    assert err.splitlines()[-1] == "then: pi --provider hybrid --model tiny"


@pytest.mark.parametrize("client", CLIENTS)
def test_it_writes(cli: Cli, server: Server, home: Path, tmp_path: Path, client: str) -> None:
    code, out, err = cli("launch", client, *options(server, tmp_path), "--write")
    files = [path for path in home.rglob("*") if path.is_file()]
    assert code == 0 and files and not [path for path in files if path.stat().st_mode & 0o077]
    assert [line for line in err.splitlines() if line.startswith("wrote ")] == [
        f"wrote {file.path}" for file in CLIENTS[client].files(_found(server))
    ]
    assert "tiny" in "".join(path.read_text() for path in files)
    assert shlex.split(out.splitlines()[-1])[0] == CLIENTS[client].program
    code, _, again = cli("launch", client, *options(server, tmp_path), "--write")
    assert code == 0 and "wrote" not in again and again.count("has these settings already") == len(files)


def _found(server: Server) -> Any:
    from hybrid.cli.launch.found_server import found_server

    return found_server(server.url, None, "secret")


def test_what_is_there_stays(cli: Cli, server: Server, home: Path, tmp_path: Path) -> None:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model": "opus", "env": {"EDITOR": "vi", "ANTHROPIC_MODEL": "opus"}}')
    path.chmod(0o644)
    code, _, err = cli("launch", "claude", *options(server, tmp_path), "--write")
    assert code == 0
    assert err.splitlines()[-2:] == [
        f"wrote {path}; the old one is {path}.before-hybrid",
        f"warning: others can read the key in {path} (chmod 600 hides it)",
    ]
    new, old = json.loads(path.read_text()), json.loads(Path(f"{path}.before-hybrid").read_text())
    assert new["model"] == "opus" and new["env"]["EDITOR"] == "vi" and new["env"]["ANTHROPIC_MODEL"] == "tiny"
    assert old == {"model": "opus", "env": {"EDITOR": "vi", "ANTHROPIC_MODEL": "opus"}}


def test_it_starts_the_client(program: Path, server: Server, home: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "aider"
    script.write_text('#!/bin/sh\necho "$OPENAI_API_BASE $OPENAI_API_KEY $@"\nexit 7\n')
    script.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [program, "launch", "aider", *options(server, tmp_path), "--run", "--", "--message", "a b"]
    done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=WAIT)
    assert done.stdout == f"{server.url}/v1 secret --model openai/tiny --message a b\n", done.stderr
    assert done.returncode == 7 and not home.exists()


def test_refusals(refused: Any, server: Server, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url = ("--url", server.url)
    for words, code, says in (
        (("claude", *url), 1, f"{server.url} asks for a key. Give a file with its key (--api-key-file)."),
        (("claude", "--url", "127.0.0.1:9"), 1, "no server answers at http://127.0.0.1:9 (Connection refused). "
         "Start one: `hybrid serve MODEL --port 9`."),
        (("claude", *options(server, tmp_path), "--model", "big"), 1, f"{server.url} has no model big. It has: tiny."),
        (("claude", "--run"), 1, "claude is not installed, or not in PATH: https://code.claude.com/docs says how to "
         "install it."),
        (("claude", "-p"), 2, "No such option: -p"),
        (("claude", "--", "-p"), 2, "-p: arguments of the client need --run."),
        (("pi", "--run"), 2, "pi takes its models from a file only. Use --write --run."),
        (("vim", ), 2, "'vim' is not one of 'claude', 'codex',"),
    ):  # fmt: skip
        assert says in refused("launch", *words, code=code)
