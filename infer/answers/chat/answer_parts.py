"""Collects the parts of an answer that a reader finds: in order, and thoughts, text and calls as a whole.

Whitespace that only separates them is dropped here.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .cursor import WHITE
from .messages import object_in
from .parameter_types import Parameters, parameters_of, types_of
from .tools import Tool, ToolCall

LONGEST_ID = 64
_ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def new_id() -> str:
    """A random id for a call: nine letters and digits, since Mistral's templates refuse others."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(9))


@dataclass(frozen=True)
class AnswerPart:
    """A piece of an answer. text: the name, for a call; index: number of the call, from 0; id: of a call."""

    kind: Literal["thought", "text", "call", "arguments"]
    text: str
    index: int = 0
    id: str = ""


class _Prose:
    """The thoughts or the text of an answer: stretches, joined by line feeds.

    Whitespace at the beginning and end of a stretch is dropped, unless keeps_front or keeps_back is set.
    """

    def __init__(self, kind: Literal["thought", "text"]) -> None:
        self.kind: Literal["thought", "text"] = kind
        self.pieces: list[str] = []
        self.begun = False  # this stretch has a character that is not whitespace
        self.keeps_front = self.keeps_back = False  # whitespace at that end
        self._white: list[str] = []

    def stretch(self, *, keeps_front: bool) -> None:
        """Begins the next stretch; whitespace at the end of the last one is dropped."""
        self.begun, self.keeps_front = False, keeps_front
        self._white = []

    def add(self, text: str) -> str:
        """Adds text; returns the text that can be passed on now."""
        body = text.rstrip(WHITE)
        if not body and not (self.begun and self.keeps_back):
            self._white.append(text)
            return ""
        if not self.begun and not self.keeps_front:
            body, text = body.lstrip(WHITE), text.lstrip(WHITE)
            front = ["\n"] if self.pieces else []
        else:
            front = self._white
        told = "".join(front) + (text if self.keeps_back else body)
        self._white = [] if self.keeps_back or len(body) == len(text) else [text[len(body) :]]
        self.begun = True
        self.pieces.append(told)
        return told

    def rest(self) -> str:
        """Returns the whitespace at the end, unless it is dropped."""
        told = "".join(self._white) if self.begun or self.keeps_front else ""
        self._white = []
        self.pieces.append(told)
        return told


class AnswerParts:
    """Receives the parts that parsers have read."""

    def __init__(self, tools: Sequence[Tool], make_id: Callable[[], str], drop_repeated: bool = False) -> None:
        self.parts: list[AnswerPart] = []
        self.thoughts, self.text = _Prose("thought"), _Prose("text")
        self.text.keeps_front = True
        self.text.keeps_back = not tools
        self._tools = {tool.name: tool for tool in tools}
        self._make_id = make_id
        self._calls: list[tuple[str, str, list[str]]] = []  # id, name, pieces of the arguments
        self._held: list[AnswerPart] | None = None  # of the last call, while it may become equal to the call before
        self._before = ""  # the rest of the arguments of the call before, while there is a held call
        self._drops_repeated = drop_repeated
        self.repeated = False  # a call was equal to the one before, and dropped
        self._current = self.text
        self._types: dict[tuple[str, str | None], frozenset[str]] = {}
        self._parameters: dict[str, Parameters] = {}

    @property
    def calls(self) -> list[ToolCall]:
        return [ToolCall(id, name, "".join(pieces)) for id, name, pieces in self._calls]

    def news(self) -> list[AnswerPart]:
        """Returns the parts since the last call; consecutive pieces of one thing are one part."""
        news: list[list[AnswerPart]] = []
        for part in self.parts:
            if news and part.kind == news[-1][0].kind != "call" and part.index == news[-1][0].index:
                news[-1].append(part)
            else:
                news.append([part])
        self.parts = []
        return [replace(parts[0], text="".join(part.text for part in parts)) for parts in news]

    def think(self, *, goes_on: bool = False) -> None:
        """Thoughts come next. goes_on: they began before this answer."""
        self._current = self.thoughts
        self.thoughts.stretch(keeps_front=goes_on)

    def speak(self) -> None:
        """Text comes next, after thoughts or calls."""
        self._current = self.text
        self.text.stretch(keeps_front=False)

    def pass_over(self) -> None:
        """An empty list of calls was skipped: it splits text into two stretches; thoughts just go on."""
        if self._current is self.text:
            self.speak()

    def say(self, text: str) -> None:
        """Adds to the thoughts or the text, whichever is current."""
        if told := self._current.add(text):
            self.parts.append(AnswerPart(self._current.kind, told))

    def tool(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def types(self, name: str, key: str) -> frozenset[str]:
        """JSON types of a tool's parameter."""
        tool = self._tools[name]
        if name not in self._parameters:
            self._parameters[name] = parameters_of(tool.parameters)
        parameters = self._parameters[name]
        known = name, key if key in parameters.known else None  # all unknown parameters are alike
        if known not in self._types:
            self._types[known] = types_of(tool, key, parameters)
        return self._types[known]

    def call(self, name: str, id: str = "") -> None:
        """Begins a call; text comes after it. id: as the model wrote it; replaced if missing, too long or repeated."""
        self.speak()
        is_new = 0 < len(id) <= LONGEST_ID and all(id != taken for taken, _, _ in self._calls)
        self._release()
        self._calls.append((id if is_new else self._make_id(), name, []))
        if self._drops_repeated and len(self._calls) > 1 and self._calls[-2][1] == name:
            self._held, self._before = [], self.calls[-2].arguments
        self._tell(AnswerPart("call", name, len(self._calls) - 1, self._calls[-1][0]))

    def arguments(self, text: str) -> None:
        """Adds to the arguments of the last call."""
        if text:
            self._calls[-1][2].append(text)
            self._tell(AnswerPart("arguments", text, len(self._calls) - 1))
            if self._held is not None:
                self._compare(text)

    def _tell(self, part: AnswerPart) -> None:
        (self.parts if self._held is None else self._held).append(part)

    def _compare(self, text: str) -> None:
        """Drops the held call if it equals the one before now, or passes it on if it differs. text: new arguments."""
        if not self._before.startswith(text):
            self._release()
            return
        self._before = self._before[len(text) :]
        if not self._before and isinstance(object_in(self.calls[-1].arguments), dict):
            self._held, self.repeated = None, True
            self._calls.pop()

    def _release(self) -> None:
        """Passes the held call on: it is another one, or was cut off."""
        if self._held is not None:
            self.parts, self._held = self.parts + self._held, None

    def finish(self) -> None:
        """The answer has ended: whitespace at the end of its text belongs to it."""
        self._release()
        if self._current is self.text and (told := self.text.rest()):
            self.parts.append(AnswerPart("text", told))
