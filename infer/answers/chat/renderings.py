"""Renders sample conversations with a model's template, for probing.

The template comes with the model: it may refuse anything, write without end, or loop up to its limit. The total work is
limited, and a refusal is a normal result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hybrid.quant.ggml.errors import TemplateError

from ...text.chat_template import ChatTemplate

MOST_RENDERINGS = 150
MOST_STEPS = 100_000  # of all renderings but the last together: a probe of a real template takes some thousand
MOST_CHARACTERS = 100_000  # of one rendering

QUESTION, REPLY, THOUGHT, RESULT = "Question kq one?", "Reply kq two.", "Thought kq three.", "Result kq four."
USER = {"role": "user", "content": QUESTION}

Message = Mapping[str, Any]


@dataclass(frozen=True)
class SampleCall:
    """A call for the template to write."""

    name: str
    arguments: Mapping[str, Any]
    id: str  # nine letters and digits: some templates refuse others

    def as_message(self, as_text: bool) -> dict[str, Any]:
        """The call in OpenAI's format; as_text: with arguments as JSON text."""
        arguments = json.dumps(self.arguments) if as_text else dict(self.arguments)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


FIRST = SampleCall("kq_first", {"kq_key": "kq value", "kq_other": "kq another"}, "kq1Ab2Cd3")
SECOND = SampleCall("kq_second", {"kq_third": "kq more", "kq_fourth": "kq most"}, "kq4Ef5Gh6")
TYPED = SampleCall(
    "kq_first",
    {"kq_text": 'it\'s "one"\nline', "kq_number": 7, "kq_flag": True, "kq_list": [1, "two"], "kq_object": {"a": 1.5}},
    "kq1Ab2Cd3",
)
ODD = SampleCall("kq_first", {"kq_text": 'it\'s "one"\n<b> & \\ é', "kq_other": "1"}, "kq1Ab2Cd3")


def _tool(call: SampleCall) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": "A text."} for key in call.arguments}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": call.name, "description": "Does something.", "parameters": parameters},
    }


TOOLS = [_tool(FIRST), _tool(SECOND)]


def reply(content: str | None = REPLY, **fields: Any) -> dict[str, Any]:
    """An assistant message."""
    return {"role": "assistant", "content": content, **fields}


def result(call: SampleCall) -> dict[str, Any]:
    """The message with the call's result."""
    return {"role": "tool", "content": RESULT, "tool_call_id": call.id, "name": call.name}


class Renderings:
    """Renders conversations with a template; None if the template refuses, or the limits are used up.

    taken, steps    renderings so far, and their steps
    tools_variable  of the template, for the tools
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.source = template.source
        self.tools_variable = "tools"
        self.taken = self.steps = 0

    def __call__(
        self,
        messages: Sequence[Message],
        *,
        ask: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str | None:
        """ask: add the beginning of an answer."""
        if self.taken >= MOST_RENDERINGS or self.steps > MOST_STEPS:
            return None
        self.taken += 1
        try:
            given = {**variables, self.tools_variable: tools}
            text = self.template.render(messages, add_generation_prompt=ask, **given)
        except TemplateError:
            text = None
        self.steps += self.template.steps
        return None if text is None or len(text) > MOST_CHARACTERS else text


def common_prefix(a: str, b: str) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(a), len(b))  # the answer is between them
    while low < high:
        middle = (low + high + 1) // 2
        if a.startswith(b[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(a: str, b: str) -> int:
    """Length of the common suffix."""
    return common_prefix(a[::-1], b[::-1])
