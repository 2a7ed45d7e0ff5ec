"""POST /v1/responses: OpenAI's newer shape. No response is kept: every request brings its whole conversation."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece

from .. import errors
from ..endpoint import client_of, post
from ..fields import CacheFields, Ignored, StreamOptions, Strict, Unsupported
from ..forms import NamedSchema
from ..jobs import Maker
from ..served import Served
from ..streaming import event, respond
from .chat import ChatRequest, chat_jobs, token_logprobs
from .shape import usage

LOGPROBS = "message.output_text.logprobs"


class Part(Strict):
    """A part of a message: of the user's, or of an answer that comes back as it was."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Ignored
    logprobs: Ignored


class Item(Strict):
    """A message, as somebody wrote it or as an earlier response had it."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    type: Literal["message"] = "message"
    id: Ignored
    status: Ignored
    phase: Ignored


class TextFormat(NamedSchema):
    """Of the text: a schema is given here, not below another name."""

    type: Literal["text", "json_object", "json_schema"]

    def as_chat(self) -> dict[str, Any]:
        """As `response_format`."""
        schema = {} if self.schema_ is None else {"json_schema": {"schema": self.schema_}}
        return {"type": self.type, **schema}


class TextConfig(Strict):
    """What the text is like."""

    format: TextFormat | None = None
    verbosity: Ignored


class Reasoning(Strict):
    """Of models that think."""

    effort: Ignored
    summary: Ignored
    generate_summary: Ignored


class ResponsesRequest(Strict):
    """A text or a conversation, and how the answer is drawn."""

    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, str] | None = None
    cache: CacheFields | None = None
    truncation: Literal["disabled"] | None = None
    parallel_tool_calls: Ignored
    max_tool_calls: Ignored
    tool_choice: Literal["auto", "none"] | None = None
    tools: Unsupported
    background: Unsupported
    conversation: Unsupported
    previous_response_id: Unsupported
    prompt: Unsupported
    store: Ignored
    user: Ignored
    service_tier: Ignored
    safety_identifier: Ignored
    prompt_cache_key: Ignored
    prompt_cache_retention: Ignored


def response_jobs(maker: Maker, body: ResponsesRequest, client: object) -> list[Job]:
    """The job of the route of chats for the same conversation."""
    messages = [{"role": "system", "content": body.instructions}] if body.instructions else []
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    else:
        messages += [{"role": item.role, "content": _text(item.content)} for item in body.input]
    drawn: dict[str, Any] = {"temperature": body.temperature, "top_p": body.top_p}
    drawn |= {"max_completion_tokens": body.max_output_tokens, "cache": body.cache}
    if body.text is not None and body.text.format is not None:
        drawn |= {"response_format": body.text.format.as_chat()}
    if body.top_logprobs is not None or LOGPROBS in (body.include or ()):
        drawn |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return chat_jobs(maker, ChatRequest.model_validate({"messages": messages, **drawn}), client)


def _text(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class ResponseShape:
    """One message, as the only item of the output."""

    def __init__(self, served: Served, body: ResponsesRequest, jobs: Sequence[Job]) -> None:
        (self.job,) = jobs
        self.tokenizer = served.model.tokenizer
        self._with_logprobs = LOGPROBS in (body.include or ())
        self._logprobs: list[dict[str, Any]] = []
        self._number = -1  # of the last event
        self._item = f"msg_{uuid.uuid4().hex}"
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": served.name,
            "error": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": body.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": body.top_p,
            "truncation": "disabled",
        }

    # --- parts ---
    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        done = status in ("completed", "incomplete")
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        more = {"status": status, "incomplete_details": incomplete, "output": output}
        return {**self._head, **more, "usage": self._usage() if done else None}

    def _usage(self) -> dict[str, Any]:
        counted = usage([self.job], [self.job])
        return {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {**counted["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counted["total_tokens"],
            "cache": counted["cache"],
        }

    def _status(self) -> str:
        return "incomplete" if self.job.result.reason in ("length", "context") else "completed"

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"id": self._item, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def _known(self, pieces: Sequence[TextPiece]) -> list[dict[str, Any]]:
        return token_logprobs(self.tokenizer, pieces) if self._with_logprobs else []

    # --- what streaming.py asks for ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        self._logprobs = self._known(pieces[0])
        status = self._status()
        return self._response(status, [self._message(status, [self._part(self.job.result.text)])])

    def opening(self) -> Iterator[str]:
        """The response, its message and its text, all empty."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))
        yield self._event("response.output_item.added", output_index=0, item=self._message("in_progress", []))
        yield self._of_part("response.content_part.added", part=self._part(""))

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """An event for what can be seen."""
        known = self._known([piece])
        self._logprobs = [*self._logprobs, *known]
        if piece.text or known:
            yield self._of_part("response.output_text.delta", delta=piece.text, logprobs=known)

    def ending(self, index: int) -> Iterator[str]:
        """Each of the parts as a whole."""
        text, status = self.job.result.text, self._status()
        part = self._part(text)
        yield self._of_part("response.output_text.done", text=text, logprobs=self._logprobs)
        yield self._of_part("response.content_part.done", part=part)
        item = self._message(status, [part])
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{status}", response=self._response(status, [item]))

    def closing(self) -> Iterator[str]:
        """Nothing: the last event says that it is."""
        return iter(())

    def failure(self, error: Exception) -> Iterator[str]:
        """The response without an answer, and why."""
        told = json.loads(bytes(errors.of_exception(error).body))["error"]
        failed = {**self._response("failed", []), "error": {"code": "server_error", "message": told["message"]}}
        yield self._event("response.failed", response=failed)

    def _of_part(self, kind: str, **more: Any) -> str:
        return self._event(kind, item_id=self._item, output_index=0, content_index=0, **more)

    def _event(self, kind: str, **more: Any) -> str:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **more}, kind)


async def responses(served: Served, request: Request, body: ResponsesRequest) -> Response:
    """The answer to a text or a conversation."""
    jobs = await run_in_threadpool(response_jobs, served.maker, body, client_of(request))
    return await respond(served, request, jobs, ResponseShape(served, body, jobs), stream=body.stream)


ENDPOINTS = [post("/v1/responses", "/responses", handler=responses, schema=ResponsesRequest)]
