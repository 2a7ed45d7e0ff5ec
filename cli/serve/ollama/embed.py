"""POST /api/embed and /api/embeddings"""

import time
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..embed_request import EmbedFields, vectors
from ..endpoint import post
from ..served import Served
from ..warning_log import with_warnings
from .models import name_in_answers
from .requests import ModelRequest
from .shape import nanoseconds


class OllamaEmbedRequest(ModelRequest):
    """One or more texts. truncate: a text that is too long for the context is cut. dimensions: values kept of each
    vector; 0: all."""

    input: str | list[str] = ""
    truncate: bool = True
    dimensions: Annotated[int, Field(ge=0)] = 0


class PromptEmbeddingRequest(ModelRequest):
    """A text."""

    prompt: str = ""


async def ollama_embed(served: Served, request: Request, body: OllamaEmbedRequest) -> Response:
    """A vector of length 1 for each text."""
    begun = time.monotonic()
    texts = [body.input] if isinstance(body.input, str) and body.input else list(body.input)
    found, n = list[Any](), 0
    if texts:
        most = 0 if served.embedding is None else served.embedding.source.n_embd
        fields = EmbedFields(truncate=body.truncate, dimensions=min(body.dimensions, most) or None)
        made = await vectors(served, request, texts, fields)
        found, n = made.rows, made.n_tokens
    told = {
        "model": name_in_answers(served, body.model),
        "embeddings": found,
        "total_duration": nanoseconds(time.monotonic() - begun),
        "load_duration": 0,
        "prompt_eval_count": n,
    }
    return JSONResponse(with_warnings(told, body))


async def prompt_embedding(served: Served, request: Request, body: PromptEmbeddingRequest) -> Response:
    """The vector of a text, of any length: ollama's older route."""
    found = list[float]()
    if body.prompt:
        (found,) = (await vectors(served, request, [body.prompt], EmbedFields(truncate=True), normalize=False)).rows
    return JSONResponse(with_warnings({"embedding": found}, body))


ENDPOINTS = [
    post("/api/embed", handler=ollama_embed, schema=OllamaEmbedRequest, of_encoders=True),
    post("/api/embeddings", handler=prompt_embedding, schema=PromptEmbeddingRequest, of_encoders=True),
]
