"""POST /embed and /similarity: vectors of texts, and how alike they are, in TEI's format."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..embed_request import EmbedFields, vectors
from ..endpoint import post
from ..fields import Strict
from ..openai.embeddings import Texts, texts_of
from ..served import Served


class EmbedRequest(EmbedFields):
    """Texts, as strings or tokens."""

    inputs: Texts
    normalize: bool = True
    truncation_direction: Literal["Right", "right"] = "Right"


class Compared(Strict):
    """A text, and others to compare it with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(min_length=1)]


class SimilarityRequest(Strict):
    """Texts to compare. parameters: as in /embed."""

    inputs: Compared
    parameters: EmbedFields | None = None


async def embed(served: Served, request: Request, body: EmbedRequest) -> Response:
    """A vector for each text."""
    texts = texts_of(body.inputs, served.model.tokenizer)
    found = await vectors(served, request, texts, body, normalize=body.normalize)
    return JSONResponse(found.rows)


async def similarity(served: Served, request: Request, body: SimilarityRequest) -> Response:
    """The cosine of each text's vector with the first's."""
    asked = (body.parameters or EmbedFields()).model_copy(update={"encoding_format": "float"})
    found = await vectors(served, request, [body.inputs.source_sentence, *body.inputs.sentences], asked)
    rows = np.array(found.rows, np.float64)
    cosines: list[Any] = [float(value) for value in np.einsum("ij,j->i", rows[1:], rows[0])]
    return JSONResponse(cosines)


ENDPOINTS = [
    post("/embed", handler=embed, schema=EmbedRequest, of_encoders=True),
    post("/similarity", handler=similarity, schema=SimilarityRequest, of_encoders=True),
]
