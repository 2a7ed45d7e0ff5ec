"""Finds how a template writes thoughts: their tags, the message field that holds them, and the variable or words that
switch them.
"""

import re

from .format import ThoughtFormat
from .renderings import FIRST, QUESTION, REPLY, THOUGHT, USER, Renderings, common_prefix, reply, result

FIELDS = ("reasoning_content", "thinking", "reasoning", "thought")
VARIABLES = ("enable_thinking", "thinking", "enable_reasoning", "reasoning")
LONGEST_MARK = 100
ON, OFF = "/think", "/no_think"

# tried if no message shows the tags: in the prompt of an answer, then in the template's source
PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
)

_MARK_BEFORE = re.compile(r"(?:<[^<>\s]+>|\[[A-Z_]+\])$")
_MARK_BEHIND = re.compile(r"(?:<[^<>\s]+>|\[/[A-Z_]+\])")


def thoughts_of(render: Renderings) -> ThoughtFormat | None:
    """How the template writes thoughts; None if nothing in it is about thoughts."""
    asked = render([USER], ask=True) or ""
    variable, switched = _variable(render)
    field, marks = _field(render, asked)
    if marks is None:
        shown = [_behind_question(text) for text in (asked, *switched)]
        marks = next((pair for text in (*shown, render.source) for pair in PAIRS if _has(pair, text)), None)
    if marks is None:
        return None
    opened = _is_open(_behind_question(switched[0] if switched else asked), *marks)
    on, off = ("", "") if variable else _words(render, asked)
    return ThoughtFormat(*marks, is_opened=opened, field=field, variable=variable, on=on, off=off)


def _has(pair: tuple[str, str], text: str) -> bool:
    return pair[0] in text or pair[1] in text


def _is_open(text: str, opening: str, closing: str) -> bool:
    return text.rfind(opening) > text.rfind(closing)


def _behind_question(text: str) -> str:
    return text[text.rfind(QUESTION) + len(QUESTION) :] if QUESTION in text else ""


def _variable(render: Renderings) -> tuple[str | None, tuple[str, ...]]:
    """The variable that changes the prompt, and the prompts with it on and off."""
    for name in VARIABLES:
        on, off = (render([USER], ask=True, variables={name: value}) for value in (True, False))
        if on is not None and off is not None and on != off:
            return name, (on, off)
    return None, ()


def _words(render: Renderings, asked: str) -> tuple[str, str]:
    """Words in the system message that change the beginning of an answer."""
    system = {"role": "system", "content": f"kq system {OFF}"}
    text = render([system, USER], ask=True)
    if text is None or OFF not in render.source or _behind_question(text) == _behind_question(asked):
        return "", ""
    return (ON if ON in render.source else ""), OFF


def _field(render: Renderings, asked: str) -> tuple[str | None, tuple[str, str] | None]:
    """The field that the template writes as thoughts, and the tags around them.

    Some write it only in the last message, some only beside calls.
    """
    plain = render([USER, reply()]) or ""
    for field in FIELDS:
        thinking = reply() | {field: THOUGHT}
        calling = {**thinking, "tool_calls": [FIRST.as_message(False)]}
        for messages in ([USER, thinking], [USER, calling, result(FIRST)]):
            text = render(messages)
            if text is not None and text.count(THOUGHT) == 1:
                marks = _around(text, plain, asked)
                if marks is not None:
                    return field, marks
    return None, None


def _around(text: str, plain: str, asked: str) -> tuple[str, str] | None:
    """The tags around THOUGHT. plain: the same message without it; asked: the prompt of an answer."""
    before, behind = (part.strip() for part in text.split(THOUGHT))
    header = plain.partition(REPLY)[0]
    opening, closing = _MARK_BEFORE.search(before), _MARK_BEHIND.match(behind)
    if closing is None:
        return None
    if opening is None:  # a tag and a word
        words = before[common_prefix(before, header) :].strip()
        return (words, closing[0]) if words and len(words) <= LONGEST_MARK else None
    if not header.rstrip().endswith(opening[0]):
        return opening[0], closing[0]
    # that tag begins any message: the text that distinguishes thoughts is before it
    longer, reply_at = before[common_prefix(before, asked) :].strip(), behind.find(REPLY)
    if not longer or reply_at <= 0 or max(len(longer), reply_at) > LONGEST_MARK:
        return None
    return longer, behind[:reply_at].strip()
