"""Conversations as Anthropic's clients write them, and the same as OpenAI's messages and tools."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from ..fields import Ignored, Strict, Unsupported


class TextBlock(Strict):
    """A part of a text. Marks of what may be kept have no effect: everything is, as far as there is room."""

    type: Literal["text"]
    text: str
    cache_control: Ignored
    citations: Unsupported


class ThinkingBlock(Strict):
    """Thoughts of an answer that comes back. The signature is what another server may want to check."""

    type: Literal["thinking"]
    thinking: str
    signature: Ignored
    cache_control: Ignored


class ToolUseBlock(Strict):
    """A call of a tool, of an answer that comes back."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: Ignored
    cache_control: Ignored


class ToolResultBlock(Strict):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: Ignored
    cache_control: Ignored


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]


class InputMessage(Strict):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class InputTool(Strict):
    """A tool of the client's; those that a server would run are refused."""

    type: Literal["custom"] = "custom"
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    strict: Ignored
    cache_control: Ignored
    eager_input_streaming: Ignored
    input_examples: Ignored
    allowed_callers: Ignored
    defer_loading: Unsupported


class InputChoice(Strict):
    """Whether there have to be calls, and of what."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


def text_of(content: str | list[TextBlock] | None) -> str:
    """In one piece."""
    return content if isinstance(content, str) else "".join(block.text for block in content or ())


def messages_of(given: list[InputMessage]) -> list[dict[str, Any]]:
    """As OpenAI's: a result of a call is a message of its own, where it stands among the blocks."""
    return [message for each in given for message in _messages(each)]


def _messages(given: InputMessage) -> Iterator[dict[str, Any]]:
    if isinstance(given.content, str):
        yield {"role": given.role, "content": given.content}
        return
    waiting: dict[str, Any] = {}
    for block in given.content:
        if isinstance(block, ToolResultBlock):
            if waiting:
                yield {"role": given.role, "content": "", **waiting}
            waiting = {}
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)}
        elif isinstance(block, TextBlock):
            waiting["content"] = waiting.get("content", "") + block.text
        elif isinstance(block, ThinkingBlock):
            waiting["reasoning_content"] = waiting.get("reasoning_content", "") + block.thinking
        else:
            arguments = json.dumps(block.input, ensure_ascii=False)
            call = {"id": block.id, "function": {"name": block.name, "arguments": arguments}}
            waiting.setdefault("tool_calls", []).append(call)
    if waiting or not given.content:
        yield {"role": given.role, "content": "", **waiting}


def tools_as_openais(given: list[InputTool]) -> list[dict[str, Any]]:
    """The same tools."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
        }
        for tool in given
    ]


def choice_as_openais(given: InputChoice) -> dict[str, Any]:
    """The fields of a request that say the same."""
    mode: Any = {"auto": "auto", "any": "required", "none": "none"}.get(given.type)
    if mode is None:
        mode = {"type": "function", "function": {"name": given.name or ""}}
    return {"tool_choice": mode, "parallel_tool_calls": not given.disable_parallel_tool_use}
