"""The text that `hybrid run` answers or continues: on the command line, in a file, or from a pipe."""

import os
import re
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from .. import console
from . import text_options

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
PATIENCE = 2.0  # seconds after which a note says that stdin is still open


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """The options for the text, or for a file of prompts."""

    prompt: Annotated[
        str | None,
        typer.Option(
            "-p", "--prompt", help="The message, or with --raw the text; piped text follows it after a blank line."
        ),
    ] = None
    escape: Annotated[
        bool, typer.Option("-e", "--escape", help="Read \\n, \\t, \\\\ and the like in the prompt as in C.")
    ] = False
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", help="Read the message or text from FILE; - is stdin. FILE.jsonl: answer all prompts in it."
        ),
    ] = None

    chat: Annotated[
        bool, typer.Option("--chat", help="In a terminal: begin a chat with the message, instead of answering it once.")
    ] = False

    def begins_chat(self, *, as_json: bool) -> bool:
        """Whether the text is the first message of a chat."""
        return self.chat and not as_json and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def many(self) -> Path | None:
        """The file of prompts, or None for one text or a chat."""
        from hybrid.infer.answers.prompt_files import SUFFIX

        return self.file if self.file is not None and self.file.suffix == SUFFIX else None

    def text(self, words: Sequence[str], *, as_json: bool, goes_on: bool, piped: bool = True) -> str | None:
        """The text, or None for a chat.

        words    the arguments after MODEL; they stand for -p
        goes_on  the text may be empty: a state file comes before it
        piped    stdin may have a part of the text; False: it is a picture
        UsageError: several texts, an unreadable or empty one, or a chat without a terminal.
        """
        both = [name for name, given in (("PROMPT", words), ("-p", self.prompt), ("-f", self.file)) if given]
        if len(both) > 1:
            raise UsageError(f"{both[0]} and {both[1]} are both given. Use one of them.")
        prompt = " ".join(words) if words else self.prompt
        if prompt is not None:
            prompt = text_options.checked(prompt, "PROMPT" if words else "-p")
            return _joined(_unescaped(prompt) if self.escape else prompt, _piped() if piped else "")
        if not piped and (self.file is None or self.file == text_options.STDIN):
            raise UsageError("there is no prompt, and stdin is a picture. Give the prompt with -p TEXT.")
        if self.file is not None:
            return text_options.read_text(self.file, empty=goes_on)
        if not sys.stdin.isatty():
            text = text_options.read_text(text_options.STDIN, empty=True)
            if not text and not goes_on:
                raise UsageError(
                    "there is no prompt: stdin is empty. Give one with -p TEXT or -f FILE; a chat needs a terminal."
                )
            return text
        if as_json or not sys.stdout.isatty():
            raise UsageError("there is no prompt. Give one with -p TEXT or -f FILE; a chat needs a terminal.")
        return None


def _unescaped(text: str) -> str:
    """`text` with C's escapes replaced; others stay."""
    return re.sub(r"\\(x[0-9a-fA-F]{2}|[nrt'\"\\])", lambda m: _ESCAPES.get(m[1]) or chr(int(m[1][1:], 16)), text)


def _joined(prompt: str, piped: str) -> str:
    return f"{prompt}\n\n{piped}" if prompt and piped else prompt or piped


def _piped() -> str:
    """The text that is piped or redirected to stdin, or "" if nothing is."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # no stdin, or it is closed
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    waits = threading.Timer(
        PATIENCE, console.note, ["waiting for the end of stdin, which follows the prompt; without it: < /dev/null"]
    )
    waits.daemon = True
    waits.start()
    try:
        return text_options.read_text(text_options.STDIN, empty=True)
    finally:
        waits.cancel()


@dataclass(frozen=True, eq=False, repr=False)
class Resuming:
    """The saved state or chat that is continued."""

    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Load FILE if it exists and append the message or text to it; save to FILE at the end.",
        ),
    ] = None
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue", help="Continue the last chat with this model, also with a prompt; `hybrid state` lists them."
        ),
    ] = False

    def check(self) -> None:
        """UsageError: --continue together with --state."""
        if self.go_on and self.state is not None:
            raise UsageError("--continue goes on with the last chat; --state does not go with it.")

    @property
    def is_completion(self) -> bool:
        """Whether the state file exists and holds a raw text, not a chat. HybridError: it cannot be read."""
        if self.state is None or not self.state.exists():
            return False
        from hybrid.infer.answers.state_files.saved_states import read_info

        return read_info(self.state).turns is None
