"""POST /v1/responses: OpenAI's newer API. A response is stored, unless the request says `store` = false; another
request continues it with `previous_response_id`. Routes of stored responses: responses_by_id.py."""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.quant.ggml.errors import shown

from .. import errors
from ..cached_conversations import check_pins
from ..client import Client
from ..conversations import chat_of
from ..endpoint import post
from ..errors import RequestError
from ..fields import CacheFields, CacheSalt, Ignored, StreamOptions, Strict, Unsupported
from ..forms import NamedSchema
from ..in_thread import in_thread, prepared
from ..jobs import Maker
from ..models.router import ModelRouter
from ..request_jobs import Event, RequestJobs
from ..served import Served
from ..streaming import SSE, event, events, respond
from ..strict import LONGEST_NAME
from ..time_limit import time_limit
from ..timings import ServerTimings, prompt_progress
from ..warning_log import with_warnings
from . import chat
from .chat import Answers, ChatRequest, token_logprobs
from .input_items import items_before, listed_items, own_items
from .items import (
    Choice,
    FunctionTool,
    InputItem,
    Item,
    ItemEvents,
    OtherTool,
    ReferenceItem,
    choice_as_chat,
    messages_of,
)
from .replay import replayed
from .shape import usage
from .stored import ENDED, RUNNING, StoredResponse, as_json

LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")  # thoughts are sent as text, so no encrypted copy is needed


class TextFormat(NamedSchema):
    """The form of the text; here the schema is not nested."""

    type: Literal["text", "json_object", "json_schema"]

    def as_chat(self) -> dict[str, Any]:
        """The same as `response_format`."""
        schema = {} if self.schema_ is None else {"json_schema": {"schema": self.schema_}}
        return {"type": self.type, **schema}


class TextConfig(Strict):
    """Settings of the text."""

    format: TextFormat | None = None
    verbosity: Ignored


class Reasoning(Strict):
    """Settings of thoughts. effort: "none" turns them off; other values are a variable of the model's template."""

    effort: str | None = None
    summary: Ignored
    generate_summary: Ignored


class ResponsesRequest(Strict):
    """A text or a conversation, and settings of the answer."""

    input: str | Annotated[list[InputItem | ReferenceItem], Field(min_length=1)]
    instructions: str | None = None
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_progress: bool = False
    timings_per_token: bool = False
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, Any] | None = None
    cache: CacheFields | None = None
    cache_salt: CacheSalt = None
    truncation: Literal["disabled", "auto"] | None = None
    tools: list[FunctionTool | OtherTool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Ignored
    background: bool = False
    conversation: Unsupported
    previous_response_id: str | None = None
    prompt: Unsupported
    store: bool = True
    user: Ignored
    service_tier: Ignored
    safety_identifier: Ignored
    prompt_cache_key: Ignored
    prompt_cache_retention: Ignored

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds values of `include` that are not supported, and `truncation`."""
        yield from super().unheeded()
        for name in self.include or ():
            if name not in INCLUDED:
                yield "include[]", f"this server does nothing with {shown(name, LONGEST_NAME)}"
        if self.truncation == "auto":
            yield "truncation", "a conversation that does not fit is refused"


Items = tuple[Sequence[InputItem], Sequence[InputItem]]  # of a request, and of the responses that it continues


def answers_of(maker: Maker, body: ResponsesRequest, whose: Client, items: Items) -> Answers:
    """The same conversation, answered by the chat route."""
    with _fields_as_here():
        return chat.answers_of(maker, _as_chat(body, items), whose)


def _n_tokens(maker: Maker, body: ResponsesRequest, whose: Client, items: Items) -> int:
    """The number of tokens of the prompt, also of one that does not fit."""
    with _fields_as_here():
        return chat_of(maker, _as_chat(body, items), whose).n_tokens


def _as_chat(body: ResponsesRequest, items: Items) -> ChatRequest:
    own, before = items
    messages = [{"role": "system", "content": body.instructions}] if body.instructions else []
    messages += messages_of([*before, *own], len(before))
    asked: dict[str, Any] = {"messages": messages, "temperature": body.temperature, "top_p": body.top_p}
    asked |= {"max_completion_tokens": body.max_output_tokens, "cache": body.cache}
    asked |= {"tools": [tool.as_chat() for tool in body.tools or ()], "tool_choice": choice_as_chat(body.tool_choice)}
    asked |= {"parallel_tool_calls": body.parallel_tool_calls}
    if body.reasoning is not None:
        asked |= {"reasoning_effort": body.reasoning.effort}
    if body.text is not None and body.text.format is not None:
        asked |= {"response_format": body.text.format.as_chat()}
    if body.top_logprobs is not None or LOGPROBS in (body.include or ()):
        asked |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return ChatRequest.model_validate(asked)


@contextmanager
def _fields_as_here() -> Iterator[None]:
    """Errors name the fields of this route in place of the chat route's."""
    try:
        yield
    except RequestError as error:
        message, param = (
            re.sub(r"(tools/\d+|tool_choice)/function(?=\b)", r"\1", place) for place in (str(error), error.param or "")
        )
        raise RequestError(message, param=param or None, status=error.status) from None


class ResponseShape:
    """The answer as items: thoughts, text, calls. If it can only be text, it is one message, which a stream opens at
    once."""

    def __init__(
        self,
        served: Served,
        body: ResponsesRequest,
        answers: Answers,
        keep: Callable[[dict[str, Any]], None] = lambda response: None,
    ) -> None:
        """keep: called with the response at its end."""
        (self.job,), (self._split,) = answers.jobs, answers.splits
        self._chat = answers.chat
        self.tokenizer, self._body = served.model.tokenizer, body
        self._with_logprobs = LOGPROBS in (body.include or ())
        self._number = -1  # sequence number of the last event
        self._items = ItemEvents(self._event)
        self._with_progress, self._with_timings = body.return_progress, body.timings_per_token
        self._timings: ServerTimings | None = None  # for the next event
        self._keep = keep
        self.status = "queued"
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "background": body.background,
            "created_at": int(time.time()),
            "model": served.adapters.model_of(body.model),
            "error": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": bool(self._chat.tools) and self._chat.asked.several,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
            "store": body.store,
            "temperature": body.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto" if body.tool_choice is None else _as_json(body.tool_choice),
            "tools": [_as_json(tool) for tool in body.tools or ()],
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
        told = {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {**counted["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._split.n_thoughts},
            "total_tokens": counted["total_tokens"],
            "cache": counted["cache"],
            **self._chat.picture_usage(),
        }
        return with_warnings(told, self._body)

    @property
    def id(self) -> str:
        """The response's ID."""
        return str(self._head["id"])

    def keep_queued(self) -> None:
        """Keeps the response before it begins."""
        self._keep(self.now())

    def now(self) -> dict[str, Any]:
        """The response while it runs."""
        return self._response(self.status, [])

    def give_up(self, *, cancelled: bool) -> None:
        """Ends a running response without an event; its text stays in it."""
        if self.status in RUNNING:
            self.status = "cancelled" if cancelled else "failed"
            told = self._items.items
            output = [item.as_json("incomplete" if item is told[-1] else "completed") for item in told]
            response = self._response(self.status, output)
            if not cancelled:
                response["error"] = {"code": "server_error", "message": ENDED}
            self._keep(response)

    def _ended(self, items: Sequence[Item]) -> dict[str, Any]:
        """The response at its end, which is kept."""
        self.status = self._end_status()
        response = self._response(self.status, self._output(items))
        self._keep(response)
        return response

    def _end_status(self) -> str:
        return "incomplete" if self.job.result.reason in ("length", "context") else "completed"

    def _known(self, pieces: Sequence[TextPiece]) -> list[dict[str, Any]]:
        return token_logprobs(self.tokenizer, pieces) if self._with_logprobs else []

    def _output(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """The items as JSON; only the last one may be incomplete."""
        return [item.as_json("completed") for item in items[:-1]] + [
            item.as_json(self._end_status()) for item in items[-1:]
        ]

    @property
    def watcher(self) -> "ResponseShape | None":
        """Itself, if the request wants llama-server's extra events."""
        return self if self._with_progress or self._with_timings else None

    def watch(self, news: Event) -> Iterator[str]:
        """Events for the beginning and for how far the prompt is read, and timings for the next event."""
        if self.status == "queued":
            yield from self._begin()
        if self._with_timings:
            self._timings = news.timings
        if news.n_read is not None and self._with_progress:
            progress = prompt_progress(self.job, news.n_read, news.timings)
            yield self._event("response.in_progress", response=self.now(), prompt_progress=progress)

    # --- called by streaming.py ---
    def whole(self, pieces: Sequence[Sequence[TextPiece]]) -> Any:
        """The body of a response."""
        read, items = self._split.reader, []
        if read.thoughts:
            items.append(Item("reasoning", 0, read.thoughts))
        if read.text or not (read.thoughts or read.calls):
            items.append(Item("message", 0, read.text, logprobs=self._known(self._split.spoken)))
        items += [Item("function_call", 0, call.arguments, call.name, call.id) for call in read.calls]
        return self._ended(items)

    def opening(self) -> Iterator[str]:
        """The empty response; what waits in the background begins later."""
        if not self._body.background:
            self.status = "in_progress"
        yield self._event("response.created", response=self.now())
        if self._body.background:
            yield self._event("response.queued", response=self.now())
        else:
            yield from self._begin()

    def _begin(self) -> Iterator[str]:
        """The event of the beginning and, if the answer can only be text, its empty message."""
        self.status = "in_progress"
        if self._body.background:
            self._keep(self.now())
        yield self._event("response.in_progress", response=self.now())
        if self._chat.is_plain:
            yield from self._items.begin("message")

    def piece(self, index: int, piece: TextPiece) -> Iterator[str]:
        """Events for the parts that became certain."""
        n = len(self._split.spoken)
        parts = self._split.push(piece)
        yield from self._items.told(parts, self._known(self._split.spoken[n:]))

    def ending(self, index: int) -> Iterator[str]:
        """Events for the text held back, and for each part as a whole."""
        yield from self._items.told(self._split.rest, [])
        if not self._items.items:
            yield from self._items.begin("message")
        yield from self._items.end(self._end_status())
        response = self._ended(self._items.items)
        yield self._event(f"response.{self.status}", response=response)

    def closing(self) -> Iterator[str]:
        """No events: `ending` has sent the last one."""
        return iter(())

    def failure(self, error: Exception) -> Iterator[str]:
        """The failed response with the error."""
        told = json.loads(bytes(errors.of_exception(error).body))["error"]
        self.status = "failed"
        failed = {**self.now(), "error": {"code": "server_error", "message": told["message"]}}
        if self._body.background:
            self._keep(failed)
        yield self._event("response.failed", response=failed)

    def _event(self, kind: str, **more: Any) -> str:
        self._number += 1
        if self._timings is not None:
            more["timings"] = self._timings.as_json()
        return event({"type": kind, "sequence_number": self._number, **more}, kind)


def _as_json(given: Any) -> Any:
    """A part of the request, unchanged, as JSON."""
    return given.model_dump(exclude_none=True) if isinstance(given, Strict) else given


def _items(served: Served, body: ResponsesRequest, whose: Client) -> Items:
    """RequestError: an item or a response that the request names is not there."""
    kept = served.settings.stored
    return own_items(body.input, kept, whose.owner), items_before(kept, body.previous_response_id, whose.owner)


async def responses(served: Served, request: Request, body: ResponsesRequest) -> Response:
    """The answer to a text or a conversation."""
    if body.background and not body.store:
        raise RequestError("background needs store = true: the response is fetched later", param="background")
    whose = served.client(request, body)

    def asked() -> tuple[Answers, bytes]:
        items = _items(served, body, whose)
        given = as_json(listed_items(items[0])) if body.store else b""
        return answers_of(served.maker, body, whose, items), given

    answers, given = await prepared(request, asked)
    body.warnings.extend(answers.notes)

    def keep(response: dict[str, Any]) -> None:
        stored = StoredResponse.of(response, whose.owner, given)
        kept = served.settings.stored
        (kept.update if body.background and response["status"] != "queued" else kept.put)(stored)

    shape = ResponseShape(served, body, answers, keep if body.store else lambda response: None)
    if body.background:
        return await _in_background(served, request, answers, shape, stream=body.stream)
    return await respond(
        served, request, answers.jobs, shape, stream=body.stream, watcher=shape.watcher, splits=answers.splits
    )


async def response_input_tokens(served: Served, request: Request, body: ResponsesRequest) -> Response:
    """The number of tokens of the prompt that this request would have."""
    whose = served.client(request, body)
    n = await in_thread(request, lambda: _n_tokens(served.maker, body, whose, _items(served, body, whose)))
    return JSONResponse({"object": "response.input_tokens", "input_tokens": n})


async def _in_background(
    served: Served, request: Request, answers: Answers, shape: ResponseShape, *, stream: bool
) -> Response:
    """Begins an answer that needs no connection. The server counts it as a request in progress."""
    router: ModelRouter = request.app.state.router
    await check_pins(served, answers.jobs)
    limit = time_limit(request, served.settings.timeout)
    answering = RequestJobs(served.answers, answers.jobs, limit, reading=True)
    answering.submit()
    shape.keep_queued()
    router.n_running += 1
    release = router.hold(request.scope)

    def ended() -> None:
        answering.close()
        shape.give_up(cancelled=answer.cancelled)
        router.n_running -= 1
        release()

    told = events(answering, shape, shape, answers.splits, SSE.ping)
    answer = served.settings.background.start(shape.id, told, ended)
    if stream:
        return replayed(answer, 0)
    return JSONResponse(shape.now())


ENDPOINTS = [
    post("/v1/responses", "/responses", handler=responses, schema=ResponsesRequest, failures=(404,)),
    post(
        "/v1/responses/input_tokens",
        "/responses/input_tokens",
        handler=response_input_tokens,
        schema=ResponsesRequest,
        failures=(404,),
    ),
]
