"""Candidates offered at the end of a line."""

from pathlib import Path

import pytest

from hybrid.cli.completion import candidates, options, reply
from hybrid.cli.main import COMMANDS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.cache_paths.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("hybrid.pipeline.present.names", lambda: ["org/name", "org/name:Q8_0", "other/model"])


def offered(line: str) -> list[str]:
    words = line.split(" ")
    return [word for word, _ in candidates.candidates(words[:-1], words[-1]).words]


def files(line: str) -> str:
    words = line.split(" ")
    return candidates.candidates(words[:-1], words[-1]).files


def test_commands() -> None:
    assert offered("") == list(COMMANDS)
    assert offered("mo") == ["models"] and offered("--sho") == ["--show-completion"]
    assert offered("nonsense ") == []
    assert offered("gguf m") == ["merge", "merge-lora"] and offered("gguf nonsense ") == []


def test_values() -> None:
    assert offered("run --spec ") == ["auto", "none", "ngram", "mtp"]
    assert offered("run --spec=ng") == ["--spec=ngram"]
    assert offered("models ") == ["list", "rm"] and offered("cache cl") == ["clear"]
    assert offered("run -p ") == [] and files("run -p ") == "", "a text can be anything"
    assert files("run -f ") == "any" and files("run org/name -f ") == "any"


def test_models() -> None:
    assert offered("run org") == ["org/name", "org/name:Q8_0"] and files("run x") == "gguf"
    assert offered("run --json oth") == ["other/model"], "a flag takes no value"
    assert offered("run -n 5 oth") == ["other/model"] and offered("run org/name oth") == []
    assert offered("bench org/name oth") == ["other/model"] and offered("models rm oth") == ["other/model"]
    for command in (
        "run",
        "serve",
        "perplexity",
        "embed",
        "imatrix",
        "quantize",
        "inspect",
        "convert",
        "pull",
        "gguf show",
        "gguf hash",
        "gguf split",
        "gguf merge-lora",
        "eval",
    ):
        assert offered(f"{command} oth") == ["other/model"], command
    assert offered("state import x -m oth") == ["other/model"]


def test_options() -> None:
    found = offered("run --")
    assert {"--spec", "--json", "--no-raw", "--help"} <= set(found) and len(found) == len(set(found))
    assert "--json" not in offered("run --json --") and "--stop" in offered("run --stop x --"), "may be repeated"
    assert offered("run -- --js") == [], "behind -- there are no options"
    assert "--threads" not in offered("run -t 4 --th")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_known(name: str) -> None:
    known = options.table(name)
    assert known.commands or known.options or known.arguments
    assert options.table(name) == known, "as it was kept"


def test_a_command_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = options.table("run")
    monkeypatch.setattr(options, "load", None)
    assert options.table("run") == first
    monkeypatch.setattr(options, "_stamp", lambda: "another version")
    with pytest.raises(TypeError):
        options.table("run")


def lines(**asked: str) -> list[str]:
    variables = {"SHELL": "", **{key.upper(): value for key, value in asked.items()}}
    named = {reply.VARIABLE + (f"_{key}" if key != "SHELL" else ""): value for key, value in variables.items()}
    return reply.answer(named).split("\n")


def test_what_bash_gets_is_what_it_replaces() -> None:
    assert lines(shell="bash", line="hybrid run org/name:Q", breaks=":=") == ["gguf", "Q8_0"]
    assert lines(shell="bash", line="hybrid run org/name:Q", breaks="=") == ["gguf", "org/name:Q8_0"]
    assert lines(shell="bash", line="hybrid run --spec=n", breaks=":=") == ["none", "none", "ngram"]
    assert lines(shell="bash", line="hybrid run -p 'it is ", breaks="") == ["none"]
    assert lines(shell="bash", line="hybrid run -p 'a b' oth", breaks="") == ["gguf", "other/model"]
    assert lines(shell="bash", line="", breaks="")[0] == "none" and lines(shell="bash", line='hybrid "', breaks="")


def test_what_zsh_and_fish_get() -> None:
    assert lines(shell="zsh", words="hybrid\nrun\norg/name:") == ["gguf", "org/name\\:Q8_0"]
    assert lines(shell="fish", words="hybrid\nmodels\nr") == ["none", "rm"]
    assert lines(shell="fish", words="hybrid\nmod")[1].startswith("models\tList")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_cannot_command_the_terminal(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = ["good", "bad\x1b[2J", "bad\t\x1b[2J", "bad\ngood"]
    monkeypatch.setattr("hybrid.pipeline.present.names", lambda: hostile)
    found = lines(shell=shell, line="hybrid run ", words="hybrid\nrun\n", breaks="")
    assert "good" in found and not any("\x1b" in line for line in found)


def test_nothing_is_said_when_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(candidates, "candidates", None)
    reply.main()
    assert capsys.readouterr() == ("\n", "")
