"""Completions for the end of a command line."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..main import COMMANDS
from .options import FILE, FLAG, MODEL, Parameter, Table, table

ANYWHERE = {
    "--help": "Show what the command does and its options",
    "--version": "Print versions, code path and processor",
    "--install-completion": "Complete command lines in this shell",
    "--show-completion": "Print the script that completes",
}


@dataclass(frozen=True)
class CompletionWords:
    """words: completions with descriptions; files: file names that the shell adds: "" none, "gguf", "any"."""

    words: tuple[tuple[str, str], ...] = ()
    files: str = ""


def candidates(words: Sequence[str], last: str) -> CompletionWords:
    """Completions that begin with `last`, after `words` (without the program's name)."""
    if not words:
        known = ANYWHERE if last.startswith("-") else COMMANDS
        return _beginning(last, list(known.items()))
    name, rest = words[0], list(words[1:])
    known_table = table(name)
    if known_table.commands:
        if not rest:
            offered = {"--help": ANYWHERE["--help"]} if last.startswith("-") else known_table.commands
            return _beginning(last, list(offered.items()))
        name, rest = f"{name} {rest[0]}", rest[1:]
        known_table = table(name)
    return _of_command(known_table, rest, last)


def _beginning(last: str, offered: Sequence[tuple[str, str]], files: str = "") -> CompletionWords:
    return CompletionWords(tuple((word, text) for word, text in offered if word.startswith(last)), files)


def _of_command(known: Table, words: Sequence[str], last: str) -> CompletionWords:
    options = {name: option for option in known.options for name in option.names}
    open_option, place, ended = _read(options, words)
    if open_option is not None:
        return _values(open_option, last)
    if last.startswith("-") and last != "-" and "=" in last and not ended:
        name, _, value = last.partition("=")
        if name in options:
            found = _values(options[name], value)
            return CompletionWords(tuple((f"{name}={word}", text) for word, text in found.words), "")
    if last.startswith("-") and not ended:
        used = {name for word in words for name in _all_names(options, word)}
        offered = [(name, o.help) for name, o in options.items() if name not in used and name.startswith("--")]
        return _beginning(last, [*offered, ("--help", ANYWHERE["--help"])])
    if not known.arguments:
        return CompletionWords()
    if place >= len(known.arguments):
        return _values(known.arguments[-1], last) if known.arguments[-1].many else CompletionWords()
    return _values(known.arguments[place], last)


def _all_names(options: dict[str, Parameter], word: str) -> tuple[str, ...]:
    """All names of the option `word`, if it may be given only once."""
    option = options.get(word.partition("=")[0])
    return () if option is None or option.many else option.names


def _read(options: dict[str, Parameter], words: Sequence[str]) -> tuple[Parameter | None, int, bool]:
    """The option whose value comes next, the number of arguments so far, and whether `--` ended the options."""
    waiting: Parameter | None = None
    n_arguments, ended = 0, False
    for word in words:
        if waiting is not None:
            waiting = None
        elif word == "--" and not ended:
            ended = True
        elif word.startswith("-") and word != "-" and not ended:
            option = options.get(word)
            waiting = option if option is not None and option.kind != FLAG else None
        else:
            n_arguments += 1
    return waiting, n_arguments, ended


def _values(parameter: Parameter, last: str) -> CompletionWords:
    if parameter.values:
        return _beginning(last, [(value, "") for value in parameter.values])
    if parameter.kind == MODEL:
        from hybrid.pipeline.present import names

        return _beginning(last, [(name, "") for name in names()], "gguf")
    return CompletionWords(files="any" if parameter.kind == FILE else "")
