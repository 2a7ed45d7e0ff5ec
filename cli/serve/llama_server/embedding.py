"""POST /embedding and /embeddings: llama-server's format, a list of vectors per text."""

from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..endpoint import post
from ..errors import RequestError
from ..fields import Strict
from ..openai.embeddings import Texts, texts_of, vectors
from ..served import Served


class EmbeddingRequest(Strict):
    """The texts, under either of llama-server's two names."""

    content: Texts | None = None
    input: Texts | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    embd_normalize: Literal[-1, 2] = 2


async def embedding(served: Served, request: Request, body: EmbeddingRequest) -> Response:
    """For each text a list with its one vector."""
    if (body.content is None) == (body.input is None):
        raise RequestError("give one of content and input", param="content")
    texts = texts_of(body.input if body.content is None else body.content, served.model.tokenizer)
    found, _ = await vectors(served, request, texts, body.encoding_format, normalize=body.embd_normalize == 2)
    return JSONResponse([{"index": i, "embedding": [vector]} for i, vector in enumerate(found)])


ENDPOINTS = [
    post("/embedding", "/embeddings", handler=embedding, schema=EmbeddingRequest, of_encoders=True),
]
