"""Splits an answer into its parts while it is sampled, and counts the tokens of its thoughts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..chat.messages import object_in
from ..chat.reader import AnswerPart
from ..chat.tools import ToolCall

if TYPE_CHECKING:
    from ..chat.reader import AnswerReader
    from ..drawing.drawing import GenerationResult, TextPiece


@dataclass(frozen=True)
class SaidAnswer:
    """The parts of an answer. n_thought: tokens of its thoughts."""

    text: str = ""
    thoughts: str = ""
    calls: tuple[ToolCall, ...] = ()
    n_thought: int = 0

    @property
    def cut(self) -> tuple[ToolCall, ...]:
        """Calls that are incomplete."""
        return tuple(call for call in self.calls if not _is_whole(call))

    def without_cut(self) -> "SaidAnswer":
        """The answer without calls that were cut off: nobody can carry them out."""
        cut = self.cut
        return replace(self, calls=tuple(call for call in self.calls if call not in cut)) if cut else self

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON for programs: thoughts and calls, if there are any, under OpenAI's names."""
        values: dict[str, Any] = {"text": self.text}
        if self.thoughts:
            values["reasoning_content"] = self.thoughts
        if self.calls:
            values["tool_calls"] = [call_json(call) for call in self.calls]
        return values


def _is_whole(call: ToolCall) -> bool:
    return bool(call.arguments.strip()) and isinstance(object_in(call.arguments), dict)


def call_json(call: ToolCall) -> dict[str, Any]:
    """The call in OpenAI's format."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class Reading:
    """Reads one answer: `push` each piece, then `finish`. reader: None if all of an answer is text.

    closing    closing tag of thoughts, or ""
    thinks     whether the answer begins inside thoughts
    n_thought  tokens of thoughts so far, closing tag included
    """

    def __init__(self, reader: "AnswerReader | None" = None, closing: str = "", thinks: bool = False) -> None:
        self.reader, self._closing = reader, closing
        self._n_read = 0  # characters
        self._last = AnswerPart("thought" if thinks else "text", "")
        self._tail = ""  # the end of the text, where a closing tag may have begun
        self._closed = False  # the closing tag came, and no thoughts since
        self._finished = False
        self.n_thought = 0

    def push(self, piece: "TextPiece") -> list[AnswerPart]:
        """The parts that are certain now: at least one, which may be empty and continue the part before."""
        parts = [AnswerPart("text", piece.text)] if self.reader is None else self.reader.push(piece.text)
        self._n_read += len(piece.text)
        if parts:
            self._last = _nothing_more(parts[-1])
            self._closed = self._closed and self._last.kind != "thought"
        self.n_thought += self._last.kind == "thought" and not self._closed and piece.id is not None
        self._look_for_the_mark(piece.text)
        return parts or [self._last]

    def _look_for_the_mark(self, text: str) -> None:
        text = self._tail + text
        if self._closing and self._closing in text:
            self._closed, text = True, ""
        self._tail = text[-len(self._closing) :]

    def finish(self) -> list[AnswerPart]:
        """The remaining parts."""
        if self.reader is None or self._finished:
            return []
        self._finished = True
        return self.reader.finish()

    def answer(self, result: "GenerationResult") -> SaidAnswer:
        """The whole answer, even if it was not read to its end."""
        reader = self.reader
        if reader is None:
            return SaidAnswer(result.text)
        if not self._finished:
            reader.push(result.text[self._n_read :])
            self.finish()
        # sentencepiece writes a space before the first word, and so do templates
        text = reader.text if reader.thoughts or reader.calls else reader.text.lstrip()
        return SaidAnswer(text, reader.thoughts, tuple(reader.calls), self.n_thought if reader.thoughts else 0)


def _nothing_more(part: AnswerPart) -> AnswerPart:
    """An empty part that continues this one."""
    return AnswerPart("arguments" if part.kind == "call" else part.kind, "", part.index)
