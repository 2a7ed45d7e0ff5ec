"""Reads an answer while it arrives: thoughts, text, and tool calls with their arguments.

    reader = AnswerReader(format, tools, thinks=prompt.thinks)
    for piece in pieces:
        parts = reader.push(piece)       # the parts that are certain by now
    parts = reader.finish()              # the rest
    reader.thoughts, reader.text, reader.calls

The joined parts are the same however the answer is cut into pieces. Any text can be read without errors: text that
only looks like a call stays text; a call that is cut off is passed on as far as it goes.
"""

from collections.abc import Callable, Generator, Sequence

from .answer_parts import AnswerPart, AnswerParts, new_id
from .cursor import Cursor, Stops
from .format import ChatFormat
from .sections import Sections
from .tools import Tool, ToolCall

__all__ = ["AnswerPart", "AnswerReader"]


class AnswerReader:
    """Splits an answer into thoughts, text and calls.

    Thoughts have no whitespace at their ends. Text has none at its beginning after thoughts or calls, and none before a
    call; an answer without thoughts and calls is kept exactly. Thoughts may begin only where no text has come since the
    last thoughts or calls; several stretches of thoughts, or of text, are joined by line feeds.
    """

    def __init__(
        self,
        format: ChatFormat,
        tools: Sequence[Tool] = (),
        *,
        thinks: bool = False,
        continues: bool = False,
        drop_repeated: bool = False,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        """tools: if empty, tags of calls are text. thinks: the prompt opened thoughts, so the answer begins inside
        them. continues: the answer begins within thoughts or text, so whitespace at its beginning counts.
        drop_repeated: drop a call that equals the call before it: weak models repeat one without end.
        """
        self._cursor = Cursor()
        self._told = AnswerParts(tools, new_id, drop_repeated)
        self._sections = Sections(format.calls, self._told) if tools else None
        self._thoughts = format.thoughts if format.thoughts is not None and format.thoughts.closing else None
        self._reading = self._read(thinks and self._thoughts is not None, continues)
        next(self._reading)

    @property
    def thoughts(self) -> str:
        return "".join(self._told.thoughts.pieces)

    @property
    def text(self) -> str:
        return "".join(self._told.text.pieces)

    @property
    def calls(self) -> list[ToolCall]:
        return self._told.calls

    @property
    def repeated(self) -> bool:
        """Whether a call equalled the call before it, and was dropped."""
        return self._told.repeated

    def push(self, text: str) -> list[AnswerPart]:
        """Takes more of the answer; returns the parts that are certain now."""
        if text:
            self._cursor.feed(text)
            next(self._reading, None)
        return self._told.news()

    def finish(self) -> list[AnswerPart]:
        """Ends the answer; returns its remaining parts."""
        if not self._cursor.ended:
            self._cursor.ended = True
            next(self._reading, None)
            self._told.finish()
        return self._told.news()

    def _read(self, thinks: bool, continues: bool) -> Generator[None, None, None]:
        cursor, told = self._cursor, self._told
        if self._thoughts is None and self._sections is None:
            told.text.begun = True  # only text can come: whitespace at its beginning need not wait
        if thinks:
            yield from self._think(is_opened=True, continues=continues)
        opening, closing = (self._thoughts.opening, self._thoughts.closing) if self._thoughts is not None else ("", "")
        # a model may repeat the closing tag of thoughts that the prompt opened; elsewhere that tag is text
        marks = [mark for mark in (opening, closing if thinks else "") if mark]
        while True:
            yield from cursor.white(told.say)
            mark = yield from cursor.literal(marks)
            if mark and mark == opening:
                yield from self._think(is_opened=False)
            elif mark:
                told.speak()
            elif not (yield from self._speak()):
                return

    def _think(self, *, is_opened: bool, continues: bool = False) -> Generator[None, None, None]:
        """Reads thoughts and their closing tag. is_opened: by the prompt; a call ends only such thoughts."""
        cursor, told, thoughts, sections = self._cursor, self._told, self._thoughts, self._sections
        assert thoughts is not None
        told.think(goes_on=continues)
        stops = Stops([thoughts.closing, *(sections.marks if sections is not None and is_opened else [])])
        opening = [thoughts.opening] if thoughts.opening else []
        yield from cursor.white(told.say)
        while (yield from cursor.literal(opening)):  # the model repeats the opening tag
            yield from cursor.white(told.say)
        while (yield from cursor.until(stops, told.say)):
            if (yield from cursor.literal((thoughts.closing,))):
                told.speak()
                return
            assert sections is not None
            if (yield from sections.read(cursor)):
                return
            told.say(cursor.kept())

    def _speak(self) -> Generator[None, None, bool]:
        """Reads text and the calls after it. Returns False at the end of the answer."""
        cursor, told, sections = self._cursor, self._told, self._sections
        if sections is not None and not sections.mark and sections.may_begin((yield from cursor.peek())):
            if (yield from sections.read(cursor)):
                return True
            told.say(cursor.kept())
        stops = Stops(sections.marks_in_text if sections is not None else [])
        while (yield from cursor.until(stops, told.say)):
            assert sections is not None
            if (yield from sections.read(cursor)):
                return True
            told.say(cursor.kept())
        return False
