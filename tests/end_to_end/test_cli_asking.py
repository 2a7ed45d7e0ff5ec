"""`hybrid run MODEL PROMPT`: which text is asked, in which template, and when it is continued instead."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli, failed, ok

from hybrid.infer import LoadedModel
from hybrid.infer.text.encode import rendered_ids
from hybrid.quant.ggml.cpus import cpus

GREEDY = ("-n", 4, "--temp", 0)
SHORT = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch, text: bytes) -> Iterator[None]:
    """stdin is a pipe that holds `text`."""
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    with os.fdopen(read) as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", stream)
        yield


@pytest.fixture
def short(bundled: Path, cli: Cli, tmp_path: Path) -> Path:
    """The bundled model with a second template named `short`."""
    folder = tmp_path / "two"
    shutil.copytree(bundled, folder)
    (folder / "chat_template.jinja").write_text(SHORT.replace("[", "<"))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "short.jinja").write_text(SHORT)
    ok(cli("convert", folder, "-o", tmp_path / "two.gguf"))
    return tmp_path / "two.gguf"


def prompt_tokens(cli: Cli, *command: object) -> int:
    return int(json.loads(ok(cli("run", *command, "--json", *GREEDY)))["prompt_tokens"])


def rendered(model: LoadedModel, text: str, system: str = "") -> int:
    """The number of tokens of a message in the model's template."""
    assert model.chat_template is not None
    told = [{"role": "system", "content": system}] if system else []
    return len(rendered_ids(model.tokenizer, model.chat_template.render([*told, {"role": "user", "content": text}])))


def test_every_way_to_give_a_message(
    cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments, -p, a file and a pipe are the same message; a pipe after a prompt follows it after a blank line."""
    path = files["q8_0"]
    with LoadedModel.load(path, n_ctx=64) as model:
        asked, joined = rendered(model, "What is a cache?"), rendered(model, "Explain:\n\nA cache")
        told = rendered(model, "What is a cache?", "Be brief.")
        raw = len(model.tokenizer.encode("What is a cache?"))
    assert asked != raw
    (tmp_path / "asked.txt").write_text("What is a cache?\n")
    for words in (["What", "is", "a", "cache?"], ["-p", "What is a cache?"], ["-f", tmp_path / "asked.txt"]):
        assert prompt_tokens(cli, path, *words) == asked
    assert prompt_tokens(cli, path, "--raw", "-p", "What is a cache?") == raw
    assert prompt_tokens(cli, path, "-p", "What is a cache?", "--system", "Be brief.") == told
    with piped(monkeypatch, b"What is a cache?\n"):
        assert prompt_tokens(cli, path) == asked
    for given in (["-p", "Explain:"], ["Explain:"]):
        with piped(monkeypatch, b"A cache\n"):
            assert prompt_tokens(cli, path, *given) == joined
    with piped(monkeypatch, b""):
        assert prompt_tokens(cli, path, "-p", "What is a cache?") == asked


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["Hello", "-p", "x"], "PROMPT and -p are both given"),
        (["Hello", "-f", "x.txt"], "PROMPT and -f are both given"),
        (["-p", ""], "the message is empty"),
        (["-p", "x", "--chat-template", "other"], "--chat-template other: no such file. The model's file has no named"),
        (
            ["-p", "x", "--raw", "--chat-template", "short"],
            "--chat-template needs the model's chat template",
        ),
        (["--raw", "-p", "x", "--think", "on"], "--think needs the model's chat template: leave out --raw."),
    ],
)
def test_what_is_refused(cli: Cli, files: dict[str, Path], given: list[str], says: str) -> None:
    assert says in failed(cli("run", files["q8_0"], *given), code=2)


def test_another_template(cli: Cli, short: Path, tmp_path: Path) -> None:
    """By the name it has in the model's file, or from a file."""
    (tmp_path / "my.jinja").write_text(SHORT)
    with LoadedModel.load(short, n_ctx=64) as model:
        n = len(rendered_ids(model.tokenizer, "[user: Hello]"))
    assert prompt_tokens(cli, short, "-p", "Hello", "--chat-template", "short") == n
    assert prompt_tokens(cli, short, "-p", "Hello", "--chat-template", tmp_path / "my.jinja") == n
    (tmp_path / "my.jinja").write_text("{% if %}")
    assert "Use --raw, or another template" in failed(
        cli("run", short, "-p", "x", "--chat-template", tmp_path / "my.jinja"), code=1
    )


def test_a_file_of_prompts_says_what_it_does(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """Of a model with a template, which would answer -p."""
    path = tmp_path / "prompts.jsonl"
    message = '{"messages": [{"role": "user", "content": "Hello"}]}'
    for lines, n in (('{"prompt": "Once"}\n' + message, "1 of 2 prompts are continued as they stand"), (message, "")):
        path.write_text(lines)
        code, _, err = cli("run", files["q8_0"], "-f", path, *GREEDY)
        assert code == 0 and (n in err) and ("as -p TEXT is" in err) == bool(n)
    path.write_text('"Once"')
    assert "as they stand" not in cli("run", "-f", path, *GREEDY)[2], "the bundled model continues -p too"


def test_the_bundled_model_continues(cli: Cli, files: dict[str, Path]) -> None:
    raw = ok(cli("run", "-p", "A cache", *GREEDY))
    assert raw == ok(cli("run", "--raw", "-p", "A cache", *GREEDY))
    assert ok(cli("run", "--no-raw", "-p", "A cache", *GREEDY)) != raw


def test_a_state_goes_on_as_it_began(cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """A saved text is continued, a saved chat gets the next message, whatever the model's default is."""
    text, chat, path = tmp_path / "text.state", tmp_path / "chat.state", files["q8_0"]
    ok(cli("run", path, "--raw", "-p", "Once", "--state", text, *GREEDY))
    ok(cli("run", path, "-p", "Once", "--state", chat, *GREEDY))
    n = len(LoadedModel.load(path, n_ctx=64).tokenizer.encode(" more", add_special=False))
    assert prompt_tokens(cli, path, "-p", " more", "--state", text) <= n + 1  # and the last token before it
    assert prompt_tokens(cli, path, "-p", " more", "--state", chat) > n + 1
    assert "holds a completion, not a chat" in failed(cli("run", path, "--no-raw", "-p", "x", "--state", text), code=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "the text is put into the model's chat template; --raw continues the text instead"),
        (("--raw",), None),
        (("--no-raw",), None),
    ],
)
def test_a_terminal_is_told_which_it_was(
    cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str | None
) -> None:
    asked = ("run", files["q8_0"], "-p", "x", *options, *GREEDY)
    assert "chat template" not in cli(*asked)[2]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    told = cli(*asked)[2]
    assert (says in told) if says else ("chat template" not in told)


def test_a_prompt_without_a_model(cli: Cli) -> None:
    """A prompt alone is taken as MODEL, in a terminal and without."""
    said = failed(cli("run", "Why is the sky blue?"), code=2)
    assert said.startswith("error: Why is the sky blue?: no such file or folder. MODEL is a .gguf file")
    assert said.endswith("A prompt comes after MODEL.")


def test_more_threads_than_processors(cli: Cli, files: dict[str, Path]) -> None:
    most, asked = cpus(), ("run", files["q8_0"], "-p", "Hi", *GREEDY)
    says = f"-t {most + 1}: this process has {most} processors; more threads than that slow it down"
    assert says in cli(*asked, "-t", most + 1)[2].splitlines()
    assert "processors" not in cli(*asked, "-t", most)[2]
