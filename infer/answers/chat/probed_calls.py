"""Calls in a template: the text that it writes for calls of ours, taken apart."""

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


@dataclass(frozen=True)
class WrittenCalls:
    """Calls as the template writes them.

    content   of a message that has calls alone
    is_exact  whether arguments of any kind are in what it writes
    """

    format: CallFormat
    content: str | None
    is_exact: bool


def calls_of(render: Renderings, thoughts: ThoughtFormat | None) -> WrittenCalls | None:
    """What the template writes for calls; None: nothing that is known."""
    inexact = None
    for as_text in (False, True):
        for content in ("", None):
            found = _written(render, thoughts, content, as_text)
            if found is not None and found.is_exact:
                return found
            inexact = inexact or found
    return inexact


def told_calls(render: Renderings) -> CallFormat | None:
    """What the template tells the model to write, where it does not write calls itself."""
    text, without = render([USER], tools=TOOLS), render([USER])
    if text is None or without is None:
        return None
    start, end = common_prefix(text, without), common_prefix(text[::-1], without[::-1])
    return told_format(text[start : len(text) - end])


def takes_tools(render: Renderings) -> bool:
    """Whether the template writes tools; from then on renderings have them under the variable that it takes."""
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


def _written(
    render: Renderings, thoughts: ThoughtFormat | None, content: str | None, as_text: bool
) -> WrittenCalls | None:
    """The format of the calls that the template writes with this content and these arguments."""
    asked = _without_thoughts(render([USER], ask=True, tools=TOOLS) or "", thoughts)
    one = _section(render, thoughts, asked, content, as_text, FIRST)
    if one is None or FIRST.name not in one:
        return None
    two = _section(render, thoughts, asked, content, as_text, FIRST, SECOND)
    found = found_format(one, two, [FIRST, SECOND], as_text)
    if found is None or (found.mark and found.mark in (render([USER, reply()]) or "")):  # marks of any answer
        return None
    odd = ODD if isinstance(found.call, XmlCall) else TYPED  # how parameters in XML are written beside texts is free
    again = _section(render, thoughts, asked, content, as_text, odd)
    is_exact = again is not None and found_format(again, None, [odd], as_text) is not None
    return WrittenCalls(found, content, is_exact)


def _without_thoughts(text: str, thoughts: ThoughtFormat | None) -> str:
    """What stands before an answer, without the mark of thoughts that it ends with, or thoughts that are empty."""
    at = text.rfind(thoughts.opening) if thoughts else -1
    return text[:at] if at > text.rfind(QUESTION) else text


def _section(
    render: Renderings,
    thoughts: ThoughtFormat | None,
    asked: str,
    content: str | None,
    as_text: bool,
    *calls: SampleCall,
) -> str | None:
    """What the template writes for an answer that is these calls, up to the mark of its end."""
    asking = reply(content, tool_calls=[call.as_message(as_text) for call in calls])
    text = plain = None
    for following in ([*map(result, calls)], [USER], []):
        text = render([USER, asking, *following], tools=TOOLS)
        plain = render([USER, reply(), *(following and [USER])], tools=TOOLS)
        if text is not None and plain is not None and QUESTION in text and REPLY in plain:
            break
    else:
        return None
    before = [asked, _without_thoughts(plain[: plain.rfind(REPLY)], thoughts)]  # some write the question otherwise
    start = max(text.find(QUESTION) + len(QUESTION), *(common_prefix(text, one) for one in before))
    name = text.find(calls[0].name, start)
    if thoughts and (closing := text.rfind(thoughts.closing, start, name)) >= 0:
        start = closing + len(thoughts.closing)
    section = text[start : start + MOST_SECTION]
    section = section[: section.find(RESULT)] if RESULT in section else section
    last = max(section.rfind(key) for key in calls[-1].arguments)
    end = _end_of_answer(section, last, plain[plain.rfind(REPLY) + len(REPLY) :])
    return section[:end]


def _end_of_answer(section: str, start: int, tail: str) -> int:
    """Where what follows an answer begins: the longest agreement with what follows a plain one."""
    best, at = 0, len(section)
    for i in range(max(start, 0), len(section)):
        n = common_prefix(section[i:], tail)
        if n > best:
            best, at = n, i
    return at
