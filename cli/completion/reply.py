"""The answer to a shell: lines, the first of which says which files the shell adds: none, gguf or any.

The shell runs the program with these environment variables:

    _HYBRID_COMPLETE          bash, zsh or fish
    _HYBRID_COMPLETE_LINE     bash: the line up to the cursor
    _HYBRID_COMPLETE_WORDS    zsh, fish: the words up to the cursor, one per line
    _HYBRID_COMPLETE_BREAKS   bash: COMP_WORDBREAKS
"""

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .candidates import CompletionWords

VARIABLE = "_HYBRID_COMPLETE"


def answer(environment: Mapping[str, str]) -> str:
    """The text to print for the shell."""
    from .candidates import candidates

    shell = environment.get(VARIABLE, "")
    if shell == "bash":
        words = _split(environment.get(f"{VARIABLE}_LINE", ""))
    else:
        words = environment.get(f"{VARIABLE}_WORDS", "").split("\n")
    *before, last = words[1:] or [""]
    found = candidates(before, last)
    if shell == "bash":
        lines = _for_bash(found, last, environment.get(f"{VARIABLE}_BREAKS", ""))
    elif shell == "zsh":
        lines = [_for_zsh(word, text) for word, text in found.words]
    else:
        lines = [f"{word}\t{text}" if text else word for word, text in found.words]
    return "\n".join([found.files or "none", *(line for line in lines if line.replace("\t", "", 1).isprintable())])


def _split(line: str) -> list[str]:
    """The words of a line; the last one may be empty or have an open quote."""
    for end in ("", '"', "'"):
        lexer = shlex.shlex(line + end, posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:
            continue
        return words if line[-1:].strip() or end else [*words, ""]
    return line.split(" ")


def _for_bash(found: "CompletionWords", last: str, breaks: str) -> list[str]:
    """Completions without the part that readline counts as earlier words: `org/name:` of org/name:Q8_0."""
    cut = max((last.rfind(mark) + 1 for mark in breaks if mark in ":=@"), default=0)
    return [word[cut:] for word, _ in found.words]


def _for_zsh(word: str, text: str) -> str:
    escaped = word.replace("\\", "\\\\").replace(":", "\\:")
    return f"{escaped}:{text}" if text else escaped


def main() -> None:
    """Answers the shell; never fails."""
    result = ""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123  Path would be imported for it
        errors, sys.stderr = sys.stderr, nowhere
        try:
            result = answer(os.environ)
        except Exception:  # any error: it must not appear in a prompt
            result = ""
        finally:
            sys.stderr = errors
    print(result)
