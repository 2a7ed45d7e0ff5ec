"""Conversations in Anthropic's format, and their conversion to OpenAI's messages and tools."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ..fields import Ignored, Strict
from ..pictures.parts import GivenPicture, Said, as_content
from ..strict import PassedOver, other_than


class TextBlock(Strict):
    """A text. `cache_control` has no effect: the prompt cache keeps everything it has room for."""

    type: Literal["text"]
    text: str
    cache_control: Ignored


class ThinkingBlock(Strict):
    """Thoughts of an earlier answer. The signature is for Anthropic's servers."""

    type: Literal["thinking"]
    thinking: str
    signature: Ignored
    cache_control: Ignored


class ToolUseBlock(Strict):
    """A call in an earlier answer. input: text if the answer was cut off inside it."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] | str
    caller: Ignored
    cache_control: Ignored


class ToolReferenceBlock(PassedOver):
    """A tool found by a tool search; here all tools are known from the start."""

    type: Literal["tool_reference"]


class Base64Source(Strict):
    """A picture's file as base64. Its type is read from its first bytes."""

    type: Literal["base64"]
    data: str
    media_type: Ignored


class URLSource(Strict):
    """A picture's URL: a data URL, or another one if the server fetches pictures."""

    type: Literal["url"]
    url: str


class ImageBlock(Strict):
    """A picture. Files of Anthropic's servers are refused."""

    type: Literal["image"]
    source: Annotated[Base64Source | URLSource, Field(discriminator="type")]
    cache_control: Ignored

    def given(self, place: str) -> GivenPicture:
        """The picture. place: of this block."""
        if isinstance(self.source, Base64Source):
            return GivenPicture(place, self.source.data, is_base64=True)
        return GivenPicture(place, self.source.url)


Result = Annotated[TextBlock | ImageBlock | ToolReferenceBlock, Field(discriminator="type")]


class ToolResultBlock(Strict):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[Result] | None = None
    is_error: Ignored
    cache_control: Ignored


class CompactionBlock(Strict):
    """A summary of the conversation before it, made by another server."""

    type: Literal["compaction"]
    content: str | None = None
    cache_control: Ignored


class HostedBlock(PassedOver):
    """A record of a tool that Anthropic's servers ran. Documents and files are not among these, and are refused."""

    type: Literal[
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    ]


Block = Annotated[
    TextBlock | ImageBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | CompactionBlock | HostedBlock,
    Field(discriminator="type"),
]


class InputMessage(Strict):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class InputTool(Strict):
    """A tool that the client runs."""

    type: Literal["custom"] = "custom"
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    strict: Ignored
    cache_control: Ignored
    eager_input_streaming: Ignored
    input_examples: Ignored
    allowed_callers: Ignored
    defer_loading: Ignored


class OtherTool(PassedOver):
    """A tool that Anthropic's servers run, or whose schema only Anthropic's models know."""

    type: other_than("custom")  # type: ignore[valid-type]


class InputChoice(Strict):
    """Whether the answer must call a tool, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def text_of(content: str | Sequence[TextBlock]) -> str:
    """The text of a content, as one string."""
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _result(content: str | Sequence[Result] | None, place: str) -> str | list[dict[str, Any]]:
    """The content of a call's result. place: in the body."""
    if isinstance(content, str):
        return content
    said: list[Said] = []
    for at, block in enumerate(content or ()):
        if isinstance(block, TextBlock):
            said.append(block.text)
        elif isinstance(block, ImageBlock):
            said.append(block.given(f"{place}.{at}"))
    return as_content(said)


def messages_of(given: list[InputMessage]) -> list[dict[str, Any]]:
    """The conversation as OpenAI's messages: each result of a call becomes a message, in the order of the blocks."""
    return [message for at, each in enumerate(given) for message in _messages(each, f"messages.{at}.content")]


def _messages(given: InputMessage, place: str) -> Iterator[dict[str, Any]]:
    if isinstance(given.content, str):
        yield {"role": given.role, "content": given.content}
        return
    waiting, said = dict[str, Any](), list[Said]()
    for at, block in enumerate(given.content):
        if isinstance(block, ToolResultBlock):
            if waiting or said:
                yield {"role": given.role, "content": as_content(said), **waiting}
            waiting, said = {}, []
            content = _result(block.content, f"{place}.{at}.content")
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
        elif isinstance(block, TextBlock):
            said.append(block.text)
        elif isinstance(block, ImageBlock):
            said.append(block.given(f"{place}.{at}"))
        elif isinstance(block, CompactionBlock):
            said.append(block.content or "")
        elif isinstance(block, ThinkingBlock):
            waiting["reasoning_content"] = waiting.get("reasoning_content", "") + block.thinking
        elif isinstance(block, ToolUseBlock):
            is_cut = isinstance(block.input, str)
            arguments = block.input if is_cut else json.dumps(block.input, ensure_ascii=False)
            call = {"id": block.id, "function": {"name": block.name, "arguments": arguments}}
            waiting.setdefault("tool_calls", []).append(call)
    if waiting or said or not given.content:
        yield {"role": given.role, "content": as_content(said), **waiting}


def tools_as_openais(given: Sequence[InputTool | OtherTool]) -> list[dict[str, Any]]:
    """The tools in OpenAI's format; OpenAI's route ignores tools of other types also."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
        }
        if isinstance(tool, InputTool)
        else {"type": tool.type}
        for tool in given
    ]


def choice_as_openais(given: InputChoice) -> dict[str, Any]:
    """`tool_choice` as OpenAI's fields."""
    mode: Any = {"auto": "auto", "any": "required", "none": "none"}.get(given.type)
    if mode is None:
        mode = {"type": "function", "function": {"name": given.name or ""}}
    alone = given.disable_parallel_tool_use
    return {"tool_choice": mode, "parallel_tool_calls": None if alone is None else not alone}
