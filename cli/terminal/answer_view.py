"""Prints an answer while it is generated: text, calls one per line, and a line that counts tokens of thoughts."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import console
from .code_blocks import CodeText

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.reader import AnswerPart
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.infer.answers.conversations.turns import Turn

    from .terminal import Screen


class AnswerView:
    """Call `show` for every part, then `end`. Text and calls go to stdout, the status of thoughts to stderr.

    screen: the terminal, in which code is coloured; None: no colours.
    """

    def __init__(self, screen: "Screen | None" = None) -> None:
        self._text = CodeText(screen)
        self._last = ""  # last printed text
        self._status = console.StatusLine()
        self._n_thought = 0
        self._thinks = False
        self._call: list[str] | None = None  # name, id, arguments so far

    def show(self, part: "AnswerPart", n_thought: int) -> None:
        """Prints a part. n_thought: tokens of thoughts so far."""
        if part.kind == "thought":
            self._n_thought = n_thought
            self._thinks = True
            self._make_room()
            self._status.show(f"thinking... {_tokens(n_thought)}")
        elif part.kind == "text" and part.text:
            self._end_thoughts()
            self._end_call()
            # drop the space that sentencepiece puts before the first word
            self._print(part.text if self._last else part.text.lstrip())
        elif part.kind == "call":
            self._end_thoughts()
            self._end_call()
            self._call = [part.text, part.id, ""]
            self._make_room()
            self._status.show(f"calling {part.text}...")
        elif part.kind == "arguments" and self._call is not None:
            self._call[2] += part.text

    def note(self, text: str) -> None:
        """Prints a note on stderr; the answer continues after it."""
        self._status.clear()
        if self._last and not self._last.endswith("\n"):
            self._print("\n")
        self._text.disturbed()
        console.paragraph(text)

    def end(self) -> None:
        """Ends the answer, complete or stopped."""
        self._end_thoughts()
        self._end_call()
        self._text.write("\n" if self._last.endswith("\n") else "\n\n")

    def _print(self, text: str) -> None:
        self._text.write(text)
        self._last = text or self._last

    def _make_room(self) -> None:
        """Ends the line, so that a status line does not overwrite unfinished text."""
        if self._status.is_shown and self._last and not self._last.endswith("\n"):
            self._print("\n")

    def _end_thoughts(self) -> None:
        if self._thinks:
            self._thinks = False
            self._status.clear()
            self._text.disturbed()
            console.note(f"thought for {_tokens(self._n_thought)} (/think shows it)")

    def _end_call(self) -> None:
        if self._call is not None:
            self._status.clear()
            name, number, arguments = self._call
            self._call = None
            if self._last and not self._last.endswith("\n"):
                self._print("\n")
            self._last = "\n"
            self._text.write(f"call {call_text(name, arguments)}  {console.dim(number)}\n", ours=True)


def call_text(name: str, arguments: str) -> str:
    """A call on one line: get_weather(city="Paris")."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        given = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    else:
        given = f"{arguments} ...".lstrip()  # the call was cut off
    return console.one_line(f"{name}({given})")


def call_line(call: "ToolCall") -> str:
    return f"call {call_text(call.name, call.arguments)}  {call.id}"


def turn_lines(turn: "Turn") -> list[str]:
    """A past turn: the question, and the answer with its thoughts folded."""
    if turn.results:
        calls = [call for call, _ in turn.results]
        lines = [f"{result_prompt(calls, n)}{result}" for n, (_, result) in enumerate(turn.results)]
    else:
        lines = [f"> [{picture.title}]" for picture in turn.pictures]
        lines += [f"> {turn.question}".rstrip("\n")] if turn.question or not lines else []
    answer = turn.answer
    if answer.thoughts:
        lines.append(f"(thought for {_tokens(answer.n_thought)})")
    if answer.text:
        lines.append(answer.text.strip("\n"))
    return [*lines, *map(call_line, answer.calls)]


def result_prompt(calls: "Sequence[ToolCall]", n: int) -> str:
    """The input prompt for the result of call n, counted from 0."""
    which = f" ({n + 1} of {len(calls)})" if len(calls) > 1 else ""
    return f"result of {calls[n].name}{which}> "


def _tokens(n: int) -> str:
    return f"{n} token{'s' * (n != 1)}"
