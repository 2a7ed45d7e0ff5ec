"""Items of /v1/responses: input items as messages, and the items of an answer, whole and as events."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.answers.chat.reader import AnswerPart

from ..fields import Ignored, Strict
from ..pictures.parts import PicturePart, Said, as_content
from ..strict import PassedOver, other_than


class TextPart(Strict):
    """A part of a message of the user or of an earlier answer. Files, audio and video are refused."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Ignored
    logprobs: Ignored


class RefusalPart(Strict):
    """A refusal in place of an answer."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """The refusal, under the name that other parts have."""
        return self.refusal


ContentPart = Annotated[TextPart | RefusalPart | PicturePart, Field(discriminator="type")]


class MessageItem(Strict):
    """A message of the user or of an earlier response."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ContentPart]
    type: Literal["message"] = "message"
    id: Ignored
    status: Ignored
    phase: Ignored


class CallItem(Strict):
    """A call in an earlier response. arguments: JSON."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: Ignored
    status: Ignored


class CustomCallItem(Strict):
    """A call in an earlier response of another server, whose argument is one text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    id: Ignored
    status: Ignored

    @property
    def arguments(self) -> str:
        """The text as JSON."""
        return json.dumps({"input": self.input}, ensure_ascii=False)


class ResultItem(Strict):
    """The result of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | list[ContentPart]
    id: Ignored
    status: Ignored


class ReasoningText(Strict):
    """A part of thoughts."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Strict):
    """Thoughts of an earlier response."""

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None
    encrypted_content: Ignored
    id: Ignored
    status: Ignored


class HostedItem(PassedOver):
    """A record of a tool that OpenAI's servers ran; the messages after it hold what its searches found."""

    type: Literal[
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
        "tool_search_output",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    ]


class ReferenceItem(Strict):
    """An item of a stored answer, by its ID."""

    type: Literal["item_reference"]
    id: str


InputItem = MessageItem | CallItem | CustomCallItem | ResultItem | ReasoningItem | HostedItem


class OtherTool(PassedOver):
    """A tool that OpenAI's servers run, or whose calls are not JSON."""

    type: other_than("function")  # type: ignore[valid-type]

    def as_chat(self) -> dict[str, Any]:
        """The type alone: the chat route ignores it also."""
        return {"type": self.type}


class FunctionTool(Strict):
    """A tool that the client runs."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Ignored
    defer_loading: Ignored

    def as_chat(self) -> dict[str, Any]:
        """The tool in the chat route's format."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.parameters or {}}
        return {"type": "function", "function": {**function, "description": self.description or ""}}


class NamedChoice(Strict):
    """The answer must call this function."""

    type: Literal["function"]
    name: str


Choice = Literal["none", "auto", "required"] | NamedChoice


def choice_as_chat(given: Choice | None) -> Any:
    """The choice in the chat route's format."""
    return {"type": "function", "function": {"name": given.name}} if isinstance(given, NamedChoice) else given


def messages_of(items: Sequence[InputItem], n_before: int = 0) -> list[dict[str, Any]]:
    """Messages for the chat route. Consecutive thoughts, text and calls become one message. n_before: items that come
    from earlier responses."""
    messages: list[dict[str, Any]] = []
    for at, item in enumerate(items):
        place = f"input.{at - n_before}" if at >= n_before else "previous_response_id"
        if isinstance(item, ResultItem):
            content = _content(item.output, f"{place}.output")
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
        elif isinstance(item, MessageItem):
            content = _content(item.content, f"{place}.content")
            if item.role == "assistant":
                _open(messages, ("content", "tool_calls"))["content"] = content
            else:
                messages.append({"role": item.role, "content": content})
        elif isinstance(item, CallItem | CustomCallItem):
            call = {"id": item.call_id, "function": {"name": item.name, "arguments": item.arguments}}
            _open(messages, ()).setdefault("tool_calls", []).append(call)
        elif isinstance(item, ReasoningItem):
            told = "".join(part.text for part in item.content or item.summary or ())
            message = _open(messages, ("content", "tool_calls"))
            message["reasoning_content"] = message.get("reasoning_content", "") + told
    return messages


def _open(messages: list[dict[str, Any]], closed_by: Sequence[str]) -> dict[str, Any]:
    """The assistant's message to continue; a new one if the last message has the field `closed_by`."""
    if not messages or messages[-1]["role"] != "assistant" or any(name in messages[-1] for name in closed_by):
        messages.append({"role": "assistant"})
    return messages[-1]


def _content(content: str | list[ContentPart], place: str) -> str | list[dict[str, Any]]:
    """The content for the chat route. place: in the body."""
    if isinstance(content, str):
        return content
    said: list[Said] = [
        part.given(f"{place}.{at}") if isinstance(part, PicturePart) else part.text for at, part in enumerate(content)
    ]
    return as_content(said)


@dataclass
class Item:
    """An item of an answer: thoughts ("reasoning"), text ("message") or a call ("function_call")."""

    kind: str
    index: int
    text: str = ""
    name: str = ""
    call_id: str = ""
    logprobs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        prefix = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}[self.kind]
        self.id = f"{prefix}{uuid.uuid4().hex}"

    def as_json(self, status: str) -> dict[str, Any]:
        """The item as JSON; without its text while in progress."""
        begun = status == "in_progress"
        head = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "function_call":
            return {**head, "call_id": self.call_id, "name": self.name, "arguments": "" if begun else self.text}
        content = [] if begun else [self.part(self.text)]
        if self.kind == "message":
            return {**head, "role": "assistant", "content": content}
        return {**head, "summary": [], "content": content, "encrypted_content": None}

    def part(self, text: str) -> dict[str, Any]:
        """Its content as a part."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs}


KINDS = {"thought": "reasoning", "text": "message", "call": "function_call", "arguments": "function_call"}
_EVENTS = {
    "reasoning": "reasoning_text",
    "message": "output_text",
    "function_call": "function_call_arguments",
}


class ItemEvents:
    """The items of one answer and their events; `send` writes an event."""

    def __init__(self, send: Callable[..., str]) -> None:
        self._send = send
        self.items: list[Item] = []  # the last one is open

    def begin(self, kind: str, **more: Any) -> Iterator[str]:
        """Opens another item."""
        yield from self.end("completed")
        item = Item(kind, len(self.items), **more)
        self.items.append(item)
        yield self._send("response.output_item.added", output_index=item.index, item=item.as_json("in_progress"))
        if kind != "function_call":
            yield self._of_item("response.content_part.added", part=item.part(""))

    def told(self, parts: Sequence[AnswerPart], logprobs: list[Any]) -> Iterator[str]:
        """Events for the parts that became certain; logprobs: of text."""
        for part in parts:
            kind = KINDS[part.kind]
            if part.kind == "call":
                yield from self.begin(kind, name=part.text, call_id=part.id)
                continue
            if not self.items or self.items[-1].kind != kind:
                yield from self.begin(kind)
            known, logprobs = (logprobs, []) if kind == "message" else ([], logprobs)
            yield self._delta(part.text, known)
        if logprobs and self.items and self.items[-1].kind == "message":
            yield self._delta("", logprobs)

    def end(self, status: str) -> Iterator[str]:
        """Closes the open item."""
        if not self.items:
            return
        item = self.items[-1]
        told = {"arguments": item.text, "name": item.name} if item.kind == "function_call" else {"text": item.text}
        more: dict[str, Any] = {"logprobs": item.logprobs} if item.kind == "message" else {}
        yield self._of_item(f"response.{_EVENTS[item.kind]}.done", **told, **more)
        if item.kind != "function_call":
            yield self._of_item("response.content_part.done", part=item.part(item.text))
        yield self._send("response.output_item.done", output_index=item.index, item=item.as_json(status))

    def _delta(self, text: str, logprobs: list[Any]) -> str:
        item = self.items[-1]
        item.text += text
        item.logprobs = [*item.logprobs, *logprobs]
        more = {"logprobs": logprobs} if item.kind == "message" else {}
        return self._of_item(f"response.{_EVENTS[item.kind]}.delta", delta=text, **more)

    def _of_item(self, kind: str, **more: Any) -> str:
        item = self.items[-1]
        place = {} if item.kind == "function_call" else {"content_index": 0}
        return self._send(kind, item_id=item.id, output_index=item.index, **place, **more)
