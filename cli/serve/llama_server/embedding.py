"""POST /embedding and /embeddings: llama-server's format, a list of vectors per text."""

from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..embed_request import EmbedFields, vectors
from ..endpoint import post
from ..errors import RequestError
from ..openai.embeddings import Texts, texts_of
from ..served import Served


class EmbeddingRequest(EmbedFields):
    """The texts, under either of llama-server's two names."""

    content: Texts | None = None
    input: Texts | None = None
    model: str | None = None
    embd_normalize: Literal[-1, 2] = 2


async def embedding(served: Served, request: Request, body: EmbeddingRequest) -> Response:
    """For each text a list with its one vector."""
    if (body.content is None) == (body.input is None):
        raise RequestError("give one of content and input", param="content")
    texts = texts_of(body.input if body.content is None else body.content, served.model.tokenizer)
    found = await vectors(served, request, texts, body, normalize=body.embd_normalize == 2)
    return JSONResponse([{"index": i, "embedding": [vector]} for i, vector in enumerate(found.rows)])


ENDPOINTS = [
    post("/embedding", "/embeddings", handler=embedding, schema=EmbeddingRequest, of_encoders=True),
]
