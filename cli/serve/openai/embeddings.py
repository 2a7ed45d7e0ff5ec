"""POST /v1/embeddings: vectors of texts."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.text.tokenizer import Tokenizer

from ..embedding import Text
from ..endpoint import post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..in_thread import in_thread, in_time
from ..served import Served
from ..streaming import unless_disconnected
from ..warning_log import with_warnings


class InputPart(Strict):
    """A part of a text; these models read text only."""

    type: Literal["text"]
    text: str


class TextObject(Strict):
    """A text in llama-server's format: whole, or in parts that are joined."""

    prompt_string: str | None = None
    content: Annotated[list[InputPart], Field(min_length=1)] | None = None

    @property
    def text(self) -> str:
        """The text. RequestError: both spellings are given, or neither."""
        if (self.prompt_string is None) == (self.content is None):
            raise RequestError("input: an object has one of prompt_string and content", param="input")
        return self.prompt_string or "".join(part.text for part in self.content or ())


Tokens = list[int | str]  # one text, as ids and pieces of text
Texts = str | TextObject | list[int | str | Tokens | TextObject]


class EmbeddingsRequest(Strict):
    """One or more texts."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Ignored


def texts_of(given: Any, tokenizer: Tokenizer) -> list[Text]:
    """Each text as a string or ids. A list with a number in it is one text; any other list has a text per item."""
    if not isinstance(given, list) or any(isinstance(part, int) for part in given):
        return [_text(given, tokenizer)]
    return [_text(one, tokenizer) for one in given]


def _text(given: Any, tokenizer: Tokenizer) -> Text:
    """The text, or the ids of a mixed list; special tokens are added only if the list begins with a text."""
    if isinstance(given, TextObject):
        return given.text
    if isinstance(given, str):
        return given
    ids: list[int] = []
    for at, part in enumerate(given):
        if isinstance(part, int):
            ids.append(part)
        elif isinstance(part, str):
            ids += tokenizer.encode(part, add_special=at == 0)
        else:
            raise RequestError("input: tokens and texts of one text cannot hold other texts", param="input")
    return ids


async def vectors(
    served: Served, request: Request, texts: list[Text], encoding: str, *, normalize: bool
) -> tuple[list[Any], int]:
    """Vectors in the requested encoding, and the number of tokens. Ends when the client goes."""
    embedding = served.embedding
    if embedding is None:
        raise RequestError("this server was started without a sequence for embeddings", status=501)
    if embedding.source.refusal:
        raise RequestError(f"{served.name} is for other requests: {embedding.source.refusal}")
    for text in texts:
        if isinstance(text, str):
            served.maker.check_length(text)
    async with in_time(served.timeout):
        ids = await in_thread(request, embedding.tokens, texts)
        rows = await unless_disconnected(request, embedding.vectors(ids, normalize=normalize))
    n = sum(map(len, ids))
    return await run_in_threadpool(_encoded, rows, encoding), n


def _encoded(rows: np.ndarray, encoding: str) -> list[Any]:
    if encoding == "base64":
        return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    # str(): the shortest text that reads back as the same f32
    return [[float(str(value)) for value in row] for row in rows]


async def embeddings(served: Served, request: Request, body: EmbeddingsRequest) -> Response:
    """A vector of length 1 for each text."""
    if served.embedding is not None and body.dimensions not in (None, n := served.embedding.source.n_embd):
        raise RequestError(f"dimensions = {body.dimensions}: vectors of this model have {n} values", param="dimensions")
    texts = texts_of(body.input, served.model.tokenizer)
    found, n = await vectors(served, request, texts, body.encoding_format, normalize=True)
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(found)]
    usage = with_warnings({"prompt_tokens": n, "total_tokens": n}, body)
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


ENDPOINTS = [post("/v1/embeddings", handler=embeddings, schema=EmbeddingsRequest, of_encoders=True)]
