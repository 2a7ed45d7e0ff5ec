"""An answer in its parts while it is drawn, and how many of its tokens are thoughts."""

from typing import TYPE_CHECKING

from ..chat.reader import Part
from .turns import Answer

if TYPE_CHECKING:
    from ..chat.reader import AnswerReader
    from ..generation.drawing import GenerationResult, TextPiece


class Reading:
    """`push` of every piece, then `finish`. reader: None where all of an answer is text.

    closing    mark of thoughts; "" where there are none
    thinks     whether the answer begins inside thoughts
    n_thought  tokens of thoughts so far, with their closing mark
    """

    def __init__(self, reader: "AnswerReader | None" = None, closing: str = "", thinks: bool = False) -> None:
        self.reader, self._closing = reader, closing
        self._n_read = 0  # characters
        self._last = Part("thought" if thinks else "text", "")
        self._tail = ""  # of the text, as much of it as a closing mark may have begun in
        self._closed = False  # the mark came, and nothing that is no thought after it
        self._finished = False
        self.n_thought = 0

    def push(self, piece: "TextPiece") -> list[Part]:
        """What is certain with it: at least one part, which may be empty and is of the kind of the one before."""
        parts = [Part("text", piece.text)] if self.reader is None else self.reader.push(piece.text)
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

    def finish(self) -> list[Part]:
        """The rest."""
        if self.reader is None or self._finished:
            return []
        self._finished = True
        return self.reader.finish()

    def answer(self, result: "GenerationResult") -> Answer:
        """The whole of it, also where nobody waited for the end."""
        reader = self.reader
        if reader is None:
            return Answer(result.text)
        if not self._finished:
            reader.push(result.text[self._n_read :])
            self.finish()
        # sentencepiece writes a space before the first word, and so do templates
        text = reader.text if reader.thoughts or reader.calls else reader.text.lstrip()
        return Answer(text, reader.thoughts, tuple(reader.calls), self.n_thought if reader.thoughts else 0)


def _nothing_more(part: Part) -> Part:
    """Of the kind of this one."""
    return Part("arguments" if part.kind == "call" else part.kind, "", part.index)
