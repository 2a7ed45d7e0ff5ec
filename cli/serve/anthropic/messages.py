"""POST /v1/messages and /v1/messages/count_tokens"""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.infer.answers.drawing.drawing import TextPiece

from .. import errors
from ..cache_usage import cache_usage
from ..chats import arguments_of
from ..client import Client
from ..conversations import chat_of
from ..endpoint import post
from ..errors import RequestError
from ..fields import CacheFields, CacheSalt, Ignored, Strict
from ..in_thread import in_thread, prepared
from ..jobs import Maker
from ..openai import chat
from ..openai.chat import Answers, ChatRequest
from ..served import Served
from ..streaming import event, respond
from ..warning_log import with_warnings
from .blocks import (
    InputChoice,
    InputMessage,
    InputTool,
    OtherTool,
    TextBlock,
    choice_as_openais,
    messages_of,
    text_of,
    tools_as_openais,
)

T = TypeVar("T")

PATH = "/v1/messages"
STOP_REASON = {
    "eos": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
}
KINDS = {"thought": "thinking", "text": "text", "call": "tool_use", "arguments": "tool_use"}  # of blocks
NO_THOUGHTS = {"thinking": "", "signature": ""}


class Thinking(Strict):
    """Whether the model thinks; "adaptive": the model decides. A model whose template knows no thoughts does not think,
    whatever clients ask."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None
    display: Ignored

    @property
    def think(self) -> bool | None:
        """True, False, or None if not given."""
        return {"enabled": True, "disabled": False}.get(self.type)


class OutputFormat(Strict):
    """The form of the answer's text."""

    type: Literal["json_schema"]
    schema_: Annotated[Any, Field(alias="schema")]


class OutputConfig(Strict):
    """Settings of the output."""

    effort: Ignored
    format: OutputFormat | None = None


class CountRequest(Strict):
    """A conversation."""

    messages: Annotated[list[InputMessage], Field(min_length=1)]
    system: str | list[TextBlock] | None = None
    model: str | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Ignored
    output_format: OutputFormat | None = None  # the older place of output_config.format
    tools: list[InputTool | OtherTool] | None = None
    tool_choice: InputChoice | None = None
    cache_salt: CacheSalt = None

    @property
    def format(self) -> OutputFormat | None:
        """The form of the answer's text."""
        return (self.output_config and self.output_config.format) or self.output_format


class MessagesRequest(CountRequest):
    """A conversation, and settings of its next message."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    cache: CacheFields | None = None
    metadata: Ignored
    service_tier: Ignored


def by_openais(body: CountRequest, route: Callable[[ChatRequest, bool | None], T]) -> T:
    """What a route of OpenAI's gives for the same conversation. It gets the request, and whether the model thinks."""
    asked: dict[str, Any] = {"messages": messages_of(body.messages)}
    if body.system:
        asked["messages"].insert(0, {"role": "system", "content": text_of(body.system)})
    if body.format is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"schema": body.format.schema_}}
    if body.tools:
        asked["tools"] = tools_as_openais(body.tools)
    if body.tool_choice is not None:
        asked |= choice_as_openais(body.tool_choice)
    if body.thinking is not None:
        asked["thinking_budget_tokens"] = body.thinking.budget_tokens
    if isinstance(body, MessagesRequest):
        asked |= {name: getattr(body, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "cache")}
        asked["stop"] = body.stop_sequences
    think = None if body.thinking is None else body.thinking.think
    try:
        return route(ChatRequest.model_validate(asked), think)
    except RequestError as error:
        message, param = map(_renamed, (str(error), error.param or ""))
        raise RequestError(message, param=param or None, status=error.status) from None


def answers_of(maker: Maker, body: MessagesRequest, whose: Client) -> Answers:
    """The answer to a conversation."""
    return by_openais(body, lambda asked, think: chat.answers_of(maker, asked, whose, think))


def n_tokens(maker: Maker, body: CountRequest, whose: Client) -> int:
    """The number of tokens of a conversation."""
    return by_openais(body, lambda asked, think: chat_of(maker, asked, whose, think=think).n_tokens)


def _renamed(place: str) -> str:
    """A path into OpenAI's tools as a path into Anthropic's, for errors."""
    return re.sub(r"(tools/\d+)/function(?=\b)", r"\1", place).replace("/parameters", "/input_schema")


class MessageShape:
    """One message. If the answer can only be text, it is one block, which a stream opens at once."""

    def __init__(self, served: Served, body: MessagesRequest, answers: Answers) -> None:
        self._body = body
        (self.job,), (self._split,) = answers.jobs, answers.splits
        name = served.adapters.model_of(body.model)
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": name}
        self._begun, self._is_plain = False, answers.chat.is_plain
        self._blocks: list[str] = []  # kinds of the blocks so far; the last one is open

    def _usage(self) -> dict[str, Any]:
        """Token counts. Reused tokens count as read from a cache, not as input tokens."""
        job = self.job
        return {
            "input_tokens": len(job.ids) - job.n_known,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": job.n_known,
            "output_tokens": len(job.result.ids),
            "cache": cache_usage([job]),
            **self._split.chat.picture_usage(),
        }

    def _stop(self) -> dict[str, str | None]:
        result = self.job.result
        if self._split.called:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        return {"stop_reason": STOP_REASON[result.reason], "stop_sequence": result.stop}

    # --- called by streaming.py ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        read, content = self._split.reader, list[dict[str, Any]]()
        if read.thoughts:
            content.append({"type": "thinking", "thinking": read.thoughts, "signature": ""})
        if read.text or not (read.thoughts or read.calls):
            content.append({"type": "text", "text": read.text})
        for call in read.calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call) or {}})
        return {**self._head, "content": content, **self._stop(), "usage": with_warnings(self._usage(), self._body)}

    def opening(self) -> Iterator[str]:
        """No events: `message_start` reports how much of the prompt was reused, and waits until the prompt is read."""
        return iter(())

    def _begin(self) -> Iterator[str]:
        if self._begun:
            return
        self._begun = True
        usage = {**self._usage(), "output_tokens": 0}
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**self._head, **nothing, "usage": usage})
        if self._is_plain:
            yield from self._block("text", text="")
        yield _event("ping")

    def _block(self, kind: str, **more: Any) -> Iterator[str]:
        """Opens another block."""
        yield from self._close()
        self._blocks.append(kind)
        yield _event("content_block_start", index=len(self._blocks) - 1, content_block={"type": kind, **more})

    def _close(self) -> Iterator[str]:
        """Closes the open block."""
        if self._blocks:
            if self._blocks[-1] == "thinking":
                yield self._delta("signature", "signature", "")
            yield _event("content_block_stop", index=len(self._blocks) - 1)

    def _delta(self, kind: str, name: str, text: str) -> str:
        return _event("content_block_delta", index=len(self._blocks) - 1, delta={"type": f"{kind}_delta", name: text})

    def _told(self, parts: Sequence[AnswerPart]) -> Iterator[str]:
        for part in parts:
            kind = KINDS[part.kind]
            if part.kind == "call":
                yield from self._block(kind, id=part.id, name=part.text, input={})
            elif part.kind == "arguments":
                yield self._delta("input_json", "partial_json", part.text)
            else:
                if self._blocks[-1:] != [kind]:
                    yield from self._block(kind, **({"text": ""} if kind == "text" else NO_THOUGHTS))
                yield self._delta(kind, kind, part.text)

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """Events for the parts that became certain."""
        yield from self._begin()
        yield from self._told(self._split.push(piece))

    def ending(self, index: int) -> Iterator[str]:
        """Events for the text held back, and the reason of the end."""
        yield from self._begin()
        yield from self._told(self._split.rest)
        if not self._blocks:
            yield from self._block("text", text="")
        yield from self._close()
        yield _event("message_delta", delta=self._stop(), usage=with_warnings(self._usage(), self._body))

    def closing(self) -> Iterator[str]:
        """The last event."""
        yield _event("message_stop")

    def failure(self, error: Exception) -> Iterator[str]:
        """An event in the shape of an error response."""
        yield event(json.loads(bytes(errors.for_path(PATH, errors.of_exception(error)).body)), "error")


def _event(kind: str, **more: Any) -> str:
    return event({"type": kind, **more}, kind)


async def messages(served: Served, request: Request, body: MessagesRequest) -> Response:
    """The next message of a conversation."""
    answers = await prepared(request, answers_of, served.maker, body, served.client(request, body))
    body.warnings.extend(answers.notes)
    shape = MessageShape(served, body, answers)
    return await respond(served, request, answers.jobs, shape, stream=body.stream, splits=answers.splits)


async def count_tokens(served: Served, request: Request, body: CountRequest) -> Response:
    """The number of tokens of a conversation."""
    n = await in_thread(request, n_tokens, served.maker, body, served.client(request, body))
    return JSONResponse({"input_tokens": n})


ENDPOINTS = [
    post(PATH, handler=messages, schema=MessagesRequest),
    post(f"{PATH}/count_tokens", handler=count_tokens, schema=CountRequest),
]
