"""Finds a template's call format in the text that it writes for sample calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from .call_marks import found_format
from .format import CallFormat, ThoughtFormat, XmlCall
from .known_calls import told_format
from .renderings import (
    FIRST,
    ODD,
    QUESTION,
    REPLY,
    RESULT,
    SECOND,
    TOOLS,
    TYPED,
    USER,
    Renderings,
    SampleCall,
    common_prefix,
    reply,
    result,
)

MOST_SECTION = 4000  # characters of one section of calls
MOST_TAIL = 200  # of the text after an answer


@dataclass(frozen=True)
class WrittenCalls:
    """Calls as the template writes them.

    content   of a message that has only calls
    is_exact  whether the template writes arguments of every type so that they can be read
    """

    format: CallFormat
    content: str | None
    is_exact: bool


def calls_of(render: Renderings, thoughts: ThoughtFormat | None) -> WrittenCalls | None:
    """The calls that the template writes; None if it writes no calls, or in an unknown format."""
    inexact = None
    for as_text in (False, True):
        for content in ("", None):
            sections = _Sections(render, thoughts, content, as_text)
            found = sections.found()
            if found is not None and found.is_exact:
                return found
            inexact = inexact or found
            if found is None and not as_text and sections.has_own_way():
                return None
    return inexact


def told_calls(render: Renderings) -> CallFormat | None:
    """The format that the template tells the model to use, if it does not write calls itself."""
    text, without = render([USER], tools=TOOLS), render([USER])
    if text is None or without is None:
        return None
    start, end = common_prefix(text, without), common_prefix(text[::-1], without[::-1])
    return told_format(text[start : len(text) - end])


def takes_tools(render: Renderings) -> bool:
    """Whether the template writes tools; later renderings pass them in the variable that worked."""
    for render.tools_variable in ("tools", "xml_tools"):
        text = render([USER], ask=True, tools=TOOLS)
        if text is not None and FIRST.name in text and SECOND.name in text:
            return True
    return False


def takes_results(render: Renderings, as_text: bool, content: str | None) -> bool:
    """Whether the template writes messages of the role "tool"."""
    asking = reply(content, tool_calls=[FIRST.as_message(as_text)])
    text = render([USER, asking, result(FIRST)], tools=TOOLS)
    return text is not None and RESULT in text and text.count(QUESTION) == 1


class _Sections:
    """The calls that the template writes for messages with this content; as_text: and arguments as JSON text."""

    def __init__(self, render: Renderings, thoughts: ThoughtFormat | None, content: str | None, as_text: bool) -> None:
        self.render, self.thoughts, self.content, self.as_text = render, thoughts, content, as_text
        self.asked = _without_thoughts(render([USER], ask=True, tools=TOOLS) or "", thoughts)
        self.one = self.section(FIRST)

    def found(self) -> WrittenCalls | None:
        """Their format, if it is known."""
        if self.one is None:
            return None
        found = found_format(self.one, self.section(FIRST, SECOND), [FIRST, SECOND], self.as_text)
        if found is None or (found.mark and found.mark in (self.render([USER, reply()]) or "")):  # a tag of any answer
            return None
        # in XML, values other than text may be written in any way
        odd = ODD if isinstance(found.call, XmlCall) else TYPED
        again = self.section(odd)
        is_exact = again is not None and found_format(again, None, [odd], self.as_text) is not None
        return WrittenCalls(found, self.content, is_exact)

    def has_own_way(self) -> bool:
        """Whether the template writes the arguments in an unknown format: as JSON text they would only seem known."""
        return (
            self.one is not None
            and all(text in self.one for item in FIRST.arguments.items() for text in item)
            and str(FIRST.arguments) not in self.one  # Python's repr: an oversight of the template, not a format
        )

    def section(self, *calls: SampleCall) -> str | None:
        """The template's text for an answer of these calls, up to the tag that ends it."""
        asking = reply(self.content, tool_calls=[call.as_message(self.as_text) for call in calls])
        for following in ([*map(result, calls)], [USER], []):
            text = self.render([USER, asking, *following], tools=TOOLS)
            plain = self.render([USER, reply(), *(following and [USER])], tools=TOOLS)
            if text is not None and plain is not None and QUESTION in text and REPLY in plain:
                return self.cut(text, plain, calls)
        return None

    def cut(self, text: str, plain: str, calls: Sequence[SampleCall]) -> str | None:
        """The section in `text`; None if it does not name the call. plain: the same conversation with a text answer."""
        # some templates write the question otherwise here
        header = _without_thoughts(plain[: plain.rfind(REPLY)], self.thoughts)
        start = max(text.find(QUESTION) + len(QUESTION), common_prefix(text, self.asked), common_prefix(text, header))
        name = text.find(calls[0].name, start)
        if name < 0:
            return None
        if self.thoughts and (closing := text.rfind(self.thoughts.closing, start, name)) >= 0:
            start = closing + len(self.thoughts.closing)
        section = text[start : start + MOST_SECTION]
        section = section[: section.find(RESULT)] if RESULT in section else section
        last = max(section.rfind(key) for key in calls[-1].arguments)
        behind = plain.rfind(REPLY) + len(REPLY)
        return section[: _end_of_answer(section, last, plain[behind : behind + MOST_TAIL])]


def _without_thoughts(text: str, thoughts: ThoughtFormat | None) -> str:
    """A prompt without the opening tag of thoughts, or the empty thoughts, at its end."""
    at = text.rfind(thoughts.opening) if thoughts else -1
    return text[:at] if at > text.rfind(QUESTION) else text


def _end_of_answer(section: str, start: int, tail: str) -> int:
    """Index of the text after an answer: where it agrees longest with `tail`, the text after a plain answer."""
    best, at = 0, len(section)
    for i in range(max(start, 0), len(section)):
        n = common_prefix(section[i:], tail)
        if n > best:
            best, at = n, i
    return at
