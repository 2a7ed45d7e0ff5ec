"""Anthropic conversations translated to OpenAI's format."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hybrid.cli.serve.anthropic.blocks import (
    InputChoice,
    InputMessage,
    InputTool,
    choice_as_openais,
    messages_of,
    tools_as_openais,
)


def converted(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return messages_of([InputMessage.model_validate(message) for message in messages])


def test_an_answer_with_everything() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm. ", "signature": "x"},
        {"type": "thinking", "thinking": "So."},
        {"type": "text", "text": "I look"},
        {"type": "text", "text": " there."},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"what": "über", "n": [1]}},
        {"type": "tool_use", "id": "b", "name": "add", "input": {}},
    ]
    (message,) = converted({"role": "assistant", "content": blocks})
    calls = message.pop("tool_calls")
    assert message == {"role": "assistant", "content": "I look there.", "reasoning_content": "Hm. So."}
    assert [(call["id"], call["function"]["name"]) for call in calls] == [("a", "look"), ("b", "add")]
    assert json.loads(calls[0]["function"]["arguments"]) == {"what": "über", "n": [1]}
    assert "ü" in calls[0]["function"]["arguments"]


def test_results_are_messages_where_they_stand() -> None:
    parts = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "found"},
        {"type": "tool_result", "tool_use_id": "b", "content": parts, "is_error": True},
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "Go on."},
    ]
    assert converted({"role": "user", "content": blocks}) == [
        {"role": "tool", "tool_call_id": "a", "content": "found"},
        {"role": "tool", "tool_call_id": "b", "content": "12"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": "Go on."},
    ]
    first = [{"type": "text", "text": "Here:"}, blocks[0]]
    assert [message["role"] for message in converted({"role": "user", "content": first})] == ["user", "tool"]
    assert converted({"role": "user", "content": []}) == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "auto"}, ("auto", None)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
        ({"type": "none"}, ("none", None)),
        ({"type": "tool", "name": "f"}, ({"type": "function", "function": {"name": "f"}}, None)),
    ],
)
def test_choices(given: dict[str, Any], wanted: tuple[Any, bool | None]) -> None:
    told = choice_as_openais(InputChoice.model_validate(given))
    assert (told["tool_choice"], told["parallel_tool_calls"]) == wanted


def test_tools() -> None:
    schema = {"type": "object"}
    given = {"name": "f", "input_schema": schema, "cache_control": {"type": "ephemeral"}, "type": "custom"}
    (tool,) = tools_as_openais([InputTool.model_validate(given)])
    assert tool == {"type": "function", "function": {"name": "f", "description": "", "parameters": schema}}
    with pytest.raises(ValidationError, match="type"):
        InputTool.model_validate({"name": "bash", "type": "bash_20250124"})
