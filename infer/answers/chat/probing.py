"""Finds whether and how a model's template supports tools and thoughts, from renderings of sample conversations.

The names of model and template do not matter. A feature that the template refuses, or writes in an unknown format,
counts as unsupported: we then describe the tools to the model ourselves (FALLBACK).
"""

import re
from dataclasses import replace

from ...text.chat_template import ChatTemplate
from .format import ChatFormat
from .probed_calls import calls_of, takes_results, takes_tools, told_calls
from .probed_thoughts import thoughts_of
from .renderings import QUESTION, USER, Renderings

_WRITTEN_LIST = re.compile(r"""["']type["']:""")  # the list itself, as Python or JSON writes it


def probed(template: ChatTemplate) -> ChatFormat:
    """The format of this template, from at most renderings.MOST_RENDERINGS renderings."""
    return probed_with(Renderings(template))


def probed_with(render: Renderings) -> ChatFormat:
    """The template's format from these renderings."""
    form = _of_calls_and_thoughts(render)
    parts = render([{"role": "user", "content": [{"type": "text", "text": QUESTION}]}])
    if parts is None or QUESTION not in parts or _WRITTEN_LIST.search(parts):
        return form
    text = render([USER])
    return replace(form, takes_parts=True, needs_parts=text is not None and QUESTION not in text)


def _of_calls_and_thoughts(render: Renderings) -> ChatFormat:
    thoughts = thoughts_of(render)
    if not takes_tools(render):
        return ChatFormat(thoughts)
    written = calls_of(render, thoughts)
    if written is not None and written.is_exact:
        results = takes_results(render, written.format.as_text, written.content)
        return ChatFormat(thoughts, written.format, True, True, results, render.tools_variable, written.content)
    told = told_calls(render) or (written.format if written else None)
    if told is None:
        return ChatFormat(thoughts)
    return ChatFormat(thoughts, told, True, False, takes_results(render, False, ""), render.tools_variable)
