"""POST /apply-template: a conversation as the model would read it; and how many tokens that is."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..conversations import ConversationFields, conversation, rendered
from ..endpoint import post
from ..openai.chat import ChatRequest
from ..served import Served


class TemplateRequest(ConversationFields):
    """A conversation. tools: shown to the template, which may write them into the prompt."""

    model: str | None = None
    tools: list[dict[str, Any]] | None = None


async def apply_template(served: Served, _: Request, body: TemplateRequest) -> Response:
    """The prompt, as text."""
    return JSONResponse({"prompt": await run_in_threadpool(rendered, served.maker, body, body.tools or None)})


async def input_tokens(served: Served, _: Request, body: ChatRequest) -> Response:
    """How many tokens the prompt of a chat completion has."""
    body.check()
    prompt = await run_in_threadpool(conversation, served.maker, body)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": len(prompt.ids)})


ENDPOINTS = [
    post("/apply-template", handler=apply_template, schema=TemplateRequest),
    post(
        "/v1/chat/completions/input_tokens",
        "/chat/completions/input_tokens",
        handler=input_tokens,
        schema=ChatRequest,
    ),
]
