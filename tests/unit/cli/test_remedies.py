"""Remedies that the command line adds to the library's errors; the library itself names no options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrid.cli import remedies
from hybrid.cli.chat import session
from hybrid.cli.chat.commands import COMMANDS as OF_CHAT
from hybrid.cli.main import COMMANDS, load
from hybrid.cli.remedies import SENTENCES, ErrorContext, Sentence
from hybrid.quant.ggml.errors import HybridError, Remedy, StateError

ROOT = Path(__file__).parents[3]
LIBRARY = ("infer", "quant", "convert", "library")
# which command made a file; a note, which has no Remedy
FACTS = {"library/pipeline/cached_models.py", "library/pipeline/by_name.py"}


def commands() -> dict[str, Any]:
    """Name on the command line -> typer's command, subcommands included."""
    by_name: dict[str, Any] = {}
    for name in COMMANDS:
        command = load(name)
        by_name |= {name: command, **{f"{name} {word}": c for word, c in getattr(command, "commands", {}).items()}}
    return by_name


ALL_COMMANDS = commands()
CHAT = session.place(OF_CHAT)
EVERY_SENTENCE = [(remedy, s) for remedy, sentences in SENTENCES.items() for s in sentences]


def places() -> dict[str, ErrorContext]:
    offered = {name: remedies.options(command) for name, command in ALL_COMMANDS.items()}
    return {"the chat": CHAT, **{name: ErrorContext(options, options) for name, options in offered.items()}}


def test_every_remedy_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Remedy)
    assert all(SENTENCES.values())


@pytest.mark.parametrize(("remedy", "said"), EVERY_SENTENCE)
def test_a_sentence_names_options_that_some_command_has(remedy: Remedy, said: Sentence) -> None:
    fitting = [name for name, place in places().items() if said.fits(place)]
    assert fitting, f"{remedy.name}: no command has {sorted(said.named | said.used)}"
    for name in fitting:
        earlier = SENTENCES[remedy][: SENTENCES[remedy].index(said)]
        if not any(s.fits(places()[name]) for s in earlier if not s.used):
            return
    raise AssertionError(f"{remedy.name}: {said.text!r} is never said, an earlier sentence fits wherever it does")


@pytest.mark.parametrize("said", [s for _, s in EVERY_SENTENCE if "-c" in s.named])
def test_c_is_the_context_wherever_it_is_named(said: Sentence) -> None:
    for name, command in ALL_COMMANDS.items():
        # the commands of `gguf` load no model; `hash -c` is --check
        if not name.startswith("gguf") and said.fits(places()[name]):
            assert [p.opts for p in command.params if "-c" in p.opts] == [["-c", "--ctx"]], name


@pytest.mark.parametrize("line", [line for _, s in EVERY_SENTENCE for line in s.command_lines])
def test_a_command_line_exists(line: str) -> None:
    program, *words = line.split()
    assert program == "hybrid"
    name = max((n for n in ALL_COMMANDS if words[: len(n.split())] == n.split()), key=len)
    options = remedies.options(ALL_COMMANDS[name])
    assert {word for word in words if word.startswith("-")} <= options


def test_a_value_is_in_the_sentence_and_fit_for_a_terminal() -> None:
    error = HybridError("it is full", remedy=Remedy.KV_TYPE, value="q8\x1b0")
    assert remedies.message(error, ErrorContext(frozenset({"--kv-type"}))) == "it is full. Use --kv-type q8\\x1b0."


def test_a_sentence_may_go_on_with_the_error_s_own() -> None:
    assert remedies.message(HybridError("Unset it", remedy=Remedy.DOWNLOADED), ErrorContext()) == (
        "Unset it, or choose from `hybrid models`."
    )


def test_a_remedy_is_said_where_its_options_are() -> None:
    error = StateError("chat.state was saved by 'X', not by this model.", remedy=Remedy.WITHOUT_STATE)
    run = remedies.options(ALL_COMMANDS["run"])
    assert remedies.message(error, ErrorContext(run, frozenset({"--state"}))).endswith(
        "this model. Start without --state."
    )
    assert remedies.message(error, ErrorContext(run, frozenset({"--continue"}))).endswith("Start without --continue.")
    # no state was asked for at the start: a chat's /load, `hybrid state show`, a library's caller
    for place in (CHAT, ErrorContext(remedies.options(ALL_COMMANDS["state"])), ErrorContext()):
        assert remedies.message(error, place) == str(error)


def test_a_chat_names_its_own_commands() -> None:
    error = HybridError("there is no branch b.", remedy=Remedy.FORK_BRANCH, value="b")
    assert remedies.message(error, CHAT) == "there is no branch b. /fork b makes one."
    assert remedies.message(error, ErrorContext(remedies.options(ALL_COMMANDS["run"]))) == str(error)


def test_too_little_memory_names_what_the_command_has() -> None:
    error = HybridError("too much.", remedy=Remedy.SMALLER_MEMORY)
    messages = {name: remedies.message(error, place) for name, place in places().items()}
    assert "(--parallel)" in messages["run"] and "(-b)" in messages["perplexity"] and "(-np)" in messages["bench"]
    assert messages["embed"] == "too much. Use a smaller context (-c)." and messages["quantize"] == "too much."


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    docstrings = {id(e.value) for body in bodies for e in body if isinstance(e, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


OPTION = re.compile(r"--[a-z]|(?:^|[\s('])-[a-zA-Z]\b")
COMMAND = re.compile(rf"\bhybrid (?:{'|'.join(COMMANDS)})\b")
CHAT_COMMAND = re.compile(rf"(?:^|\s)(?:{'|'.join(re.escape(name.split()[0]) for name in OF_CHAT)})\b")


@pytest.mark.parametrize("package", LIBRARY)
def test_no_message_of_the_library_names_an_option_or_a_command(package: str) -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in sources(package)
        if path.relative_to(ROOT).as_posix() not in FACTS
        for line, text in constants(path)
        # one word is an argument of a program that is started, or a path
        if " " in text and any(p.search(text) for p in (OPTION, COMMAND, CHAT_COMMAND))
    ]
    assert not offenders, "state the fact and give the error a Remedy:\n" + "\n".join(offenders)


def test_the_search_finds_such_messages(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        'def f():\n    """--ok in a docstring"""\n    raise E(f"{a} is full. Use -c.", "use (--state x)")\n'
        '    raise E("try hybrid run", "say /clear now")\n'
    )
    texts = [text for _, text in constants(path)]
    assert len(texts) == 4 and all(any(p.search(t) for p in (OPTION, COMMAND, CHAT_COMMAND)) for t in texts)


def test_every_remedy_is_what_some_error_has() -> None:
    tables = {ROOT / "cli" / "remedies.py", ROOT / "library" / "advice.py"}
    paths = [path for package in (*LIBRARY, "cli") for path in sources(package) if path not in tables]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    assert set(re.findall(r"\bRemedy\.([A-Z_]+)", text)) == set(Remedy.__members__)
