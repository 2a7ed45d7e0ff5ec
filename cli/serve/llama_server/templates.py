"""POST /apply-template: a conversation as the model reads it; and the number of its tokens."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.text.literal_text import without_breaks

from ..conversations import ConversationFields, chat_of
from ..endpoint import post
from ..in_thread import in_thread
from ..openai.chat import ChatRequest
from ..served import Served


class TemplateRequest(ConversationFields):
    """A conversation, with tools if they are written into the prompt."""

    model: str | None = None


async def apply_template(served: Served, request: Request, body: TemplateRequest) -> Response:
    """The prompt as text."""
    chat = await in_thread(request, chat_of, served.maker, body, served.client(request))
    return JSONResponse({"prompt": without_breaks(chat.written.text)})


async def input_tokens(served: Served, request: Request, body: ChatRequest) -> Response:
    """The number of tokens of a chat prompt."""
    n = await in_thread(request, lambda: chat_of(served.maker, body, served.client(request, body)).n_tokens)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": n})


ENDPOINTS = [
    post("/apply-template", handler=apply_template, schema=TemplateRequest),
    post(
        "/v1/chat/completions/input_tokens",
        "/chat/completions/input_tokens",
        handler=input_tokens,
        schema=ChatRequest,
    ),
]
