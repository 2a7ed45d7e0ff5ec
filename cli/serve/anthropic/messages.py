"""POST /v1/messages and /v1/messages/count_tokens"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece

from .. import errors
from ..cache_usage import cache_usage
from ..endpoint import client_of, post
from ..fields import CacheFields, Ignored, Strict, Unsupported
from ..jobs import Maker
from ..openai.chat import ChatRequest, chat_jobs
from ..served import Served
from ..streaming import event, respond

STOP_REASON = {
    "eos": "end_turn", "stop": "stop_sequence", "length": "max_tokens", "context": "model_context_window_exceeded",
}  # fmt: skip


class TextBlock(Strict):
    """A part of a text. Marks of what may be kept have no effect: everything is, as far as there is room."""

    type: Literal["text"]
    text: str
    cache_control: Ignored
    citations: Unsupported


class InputMessage(Strict):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[TextBlock]


class ThinkingDisabled(Strict):
    """Thoughts are not asked for."""

    type: Literal["disabled"]


class OutputConfig(Strict):
    """How the answer is to be."""

    effort: Ignored
    format: Unsupported


class CountRequest(Strict):
    """A conversation."""

    messages: Annotated[list[InputMessage], Field(min_length=1)]
    system: str | list[TextBlock] | None = None
    model: str | None = None
    thinking: ThinkingDisabled | None = None
    output_config: OutputConfig | None = None
    cache_control: Ignored
    tools: Unsupported
    tool_choice: Unsupported


class MessagesRequest(CountRequest):
    """A conversation, and how the next message is drawn."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    cache: CacheFields | None = None
    metadata: Ignored
    service_tier: Ignored


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def message_jobs(maker: Maker, body: CountRequest, client: object) -> list[Job]:
    """The job of OpenAI's route for the same conversation."""
    messages = [{"role": message.role, "content": _text(message.content)} for message in body.messages]
    if body.system:
        messages.insert(0, {"role": "system", "content": _text(body.system)})
    drawn: dict[str, Any] = {}
    if isinstance(body, MessagesRequest):
        drawn = {name: getattr(body, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "cache")}
        drawn["stop"] = body.stop_sequences
    return chat_jobs(maker, ChatRequest.model_validate({"messages": messages, **drawn}), client)


class MessageShape:
    """One message of one block of text."""

    def __init__(self, served: Served, jobs: Sequence[Job]) -> None:
        (self.job,) = jobs
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": served.name}
        self._begun = False

    def _usage(self) -> dict[str, Any]:
        """What was known counts as read from a cache, and not among the tokens of the input."""
        job = self.job
        return {
            "input_tokens": len(job.ids) - job.n_known,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": job.n_known,
            "output_tokens": len(job.result.ids),
            "cache": cache_usage([job]),
        }

    def _stop(self) -> dict[str, str | None]:
        result = self.job.result
        return {"stop_reason": STOP_REASON[result.reason], "stop_sequence": result.stop}

    # --- what streaming.py asks for ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        content = [{"type": "text", "text": self.job.result.text}]
        return {**self._head, "content": content, **self._stop(), "usage": self._usage()}

    def opening(self) -> Iterator[str]:
        """Nothing: a message begins by saying what was known of its prompt, when that has been read."""
        return iter(())

    def _begin(self) -> Iterator[str]:
        if self._begun:
            return
        self._begun = True
        usage = {**self._usage(), "output_tokens": 0}
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**self._head, **nothing, "usage": usage})
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield _event("ping")

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """An event for what can be seen."""
        yield from self._begin()
        if piece.text:
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece.text})

    def ending(self, index: int) -> Iterator[str]:
        """Why it ended."""
        yield from self._begin()
        yield _event("content_block_stop", index=0)
        yield _event("message_delta", delta=self._stop(), usage=self._usage())

    def closing(self) -> Iterator[str]:
        """The end."""
        yield _event("message_stop")

    def failure(self, error: Exception) -> Iterator[str]:
        """An event in the shape of an error's response."""
        yield event(json.loads(bytes(_error(error).body)), "error")


def _event(kind: str, **more: Any) -> str:
    return event({"type": kind, **more}, kind)


def _error(error: Exception) -> Response:
    return errors.in_anthropics_shape(errors.of_exception(error))


async def messages(served: Served, request: Request, body: MessagesRequest) -> Response:
    """The next message of a conversation."""
    jobs = await run_in_threadpool(message_jobs, served.maker, body, client_of(request))
    return await respond(served, request, jobs, MessageShape(served, jobs), stream=body.stream)


async def count_tokens(served: Served, request: Request, body: CountRequest) -> Response:
    """Tokens of a conversation."""
    (job,) = await run_in_threadpool(message_jobs, served.maker, body, client_of(request))
    return JSONResponse({"input_tokens": len(job.ids)})


ENDPOINTS = [
    post("/v1/messages", handler=messages, schema=MessagesRequest, error=_error),
    post("/v1/messages/count_tokens", handler=count_tokens, schema=CountRequest, error=_error),
]
