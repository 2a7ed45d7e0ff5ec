"""Converts conversations and tools of `llm` to OpenAI's format."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from llm.parts import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

from hybrid.infer.answers.chat.tools import ToolCall


def messages_of(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """The messages."""
    return [made for message in messages for made in _made(message.role, message.parts)]


def _made(role: str, parts: list[Any]) -> list[dict[str, Any]]:
    """The messages for one message of `llm`; each result of a tool becomes its own."""
    results = [part for part in parts if isinstance(part, ToolResultPart)]
    if results:
        return [
            {"role": "tool", "tool_call_id": part.tool_call_id or "", "name": part.name, "content": _result(part)}
            for part in results
        ]
    made: dict[str, Any] = {"role": role, "content": _text(parts, TextPart)}
    if any(isinstance(part, AttachmentPart) for part in parts):  # pictures come first: `llm` keeps no order
        made["content"] = [*_pictures(parts), {"type": "text", "text": made["content"]}]
    if thoughts := _text(parts, ReasoningPart):
        made["reasoning_content"] = thoughts
    if calls := [part for part in parts if isinstance(part, ToolCallPart)]:
        made["tool_calls"] = [
            {
                "id": part.tool_call_id or "",
                "type": "function",
                "function": {"name": part.name, "arguments": json.dumps(part.arguments, ensure_ascii=False)},
            }
            for part in calls
        ]
    return [made]


def _pictures(parts: list[Any]) -> Iterator[dict[str, Any]]:
    """The attachments, which `llm` lets through if they are pictures."""
    for part in parts:
        if isinstance(part, AttachmentPart) and part.attachment is not None:
            attachment = part.attachment
            yield {"type": "image", "image": attachment.content or attachment.path or attachment.content_bytes()}


def _text(parts: list[Any], kind: type[Any]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


def _result(part: Any) -> str:
    return str(part.output) if part.exception is None else f"error: {part.exception}"


def tools_of(tools: Iterable[Any]) -> list[dict[str, Any]]:
    """Descriptions of functions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.input_schema or {},
            },
        }
        for tool in tools
    ]


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Arguments of a call as `llm` expects them; calls are complete."""
    given: dict[str, Any] = json.loads(call.arguments or "{}")
    return given
