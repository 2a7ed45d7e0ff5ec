"""POST /api/chat"""

import re
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..client import Client
from ..endpoint import post
from ..errors import RequestError
from ..in_thread import prepared
from ..jobs import Maker
from ..openai import chat
from ..openai.chat import Answers, ChatRequest
from ..served import Served
from ..streaming import respond
from .messages import OllamaMessage
from .requests import OllamaAnswerRequest
from .shape import NDJSON, OllamaShape, loaded


class OllamaChatRequest(OllamaAnswerRequest):
    """A conversation, and settings of its next message."""

    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None


NAMES = {"response_format": "format", "json_schema": "format", "max_tokens": "options.num_predict"}
_NAMES = re.compile(rf"\b({'|'.join(NAMES)})\b")


def by_openais(
    maker: Maker,
    body: OllamaAnswerRequest,
    messages: Sequence[dict[str, Any]],
    whose: Client,
    tools: Sequence[dict[str, Any]] | None = None,
    after: Sequence[int] = (),
) -> Answers:
    """The answer to a conversation in OpenAI's format. after: tokens of an earlier text."""
    given = {**body.as_openais(), "messages": list(messages), "tools": tools}
    given |= {"logprobs": body.logprobs, "top_logprobs": body.n_top}
    try:
        asked = ChatRequest.model_validate(given)
        body.warnings.extend(asked.warnings)
        answers = chat.answers_of(maker, asked, whose, body.thinks, after)
    except RequestError as error:
        message = _NAMES.sub(lambda name: NAMES[name[1]], str(error)).replace("/v1/completions", "/api/generate")
        raise RequestError(message, param=error.param, status=error.status) from None
    body.warnings.extend(answers.notes)
    if body.thinks and not answers.chat.has_thoughts:
        body.warnings.append("think is ignored: the model's template knows no thoughts")
    return answers


def answers_of(maker: Maker, body: OllamaChatRequest, whose: Client) -> Answers:
    """The next message of a conversation."""
    messages = [message.as_openais(f"messages.{at}") for at, message in enumerate(body.messages or ())]
    return by_openais(maker, body, messages, whose, body.tools)


class OllamaChatShape(OllamaShape):
    """A message."""

    def said(self, text: str, thoughts: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thoughts:
            message["thinking"] = thoughts
        if calls:
            message["tool_calls"] = list(calls)
        return {"message": message}


async def ollama_chat(served: Served, request: Request, body: OllamaChatRequest) -> Response:
    """The next message of a conversation. Without messages: the model is loaded already."""
    begun = time.monotonic()
    if not body.messages:
        return JSONResponse(loaded(request, served, body, message={"role": "assistant", "content": ""}))
    answers = await prepared(request, answers_of, served.maker, body, served.client(request, body))
    shape = OllamaChatShape(served, body, answers.jobs[0], answers.splits[0], begun)
    return await respond(
        served, request, answers.jobs, shape, stream=body.stream, splits=answers.splits, form=shape.form
    )


ENDPOINTS = [post("/api/chat", handler=ollama_chat, schema=OllamaChatRequest, streams=NDJSON)]
