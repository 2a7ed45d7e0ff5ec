"""POST /v1/score: scores of pairs of texts, in vLLM's format."""

import time
from itertools import groupby
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..endpoint import post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..scoring import RankQuery
from ..served import Served
from .asked import scored, usage_of
from .rerank import INSTRUCTION

Texts = str | Annotated[list[str], Field(min_length=1)]


class ScoreRequest(Strict):
    """Pairs of texts: one text and several, or two lists of the same length."""

    text_1: Texts
    text_2: Texts
    model: str | None = None
    instruction: Annotated[str, Field(description=INSTRUCTION)] | None = None
    use_activation: Annotated[bool, Field(description="false: log odds instead of scores from 0 to 1.")] = True
    truncate_prompt_tokens: (
        Annotated[int, Field(ge=-1, le=-1, description="-1: long texts lose their ends.")] | None
    ) = None
    user: Ignored
    priority: Ignored


async def score(served: Served, request: Request, body: ScoreRequest) -> Response:
    """A score for each pair, in the order of the request."""
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise RequestError(
            f"text_1 has {len(first)} texts and text_2 {len(second)}: give one text, or as many", param="text_1"
        )
    cuts = body.truncate_prompt_tokens is not None
    questions = [
        RankQuery(query, [document for _, document in pairs], body.instruction, cuts)
        for query, pairs in groupby(zip(first, second, strict=True), key=lambda pair: pair[0])
    ]  # neighbours with the same query, which is read once
    found = await scored(served, request, questions)
    scores = [float(value) for each in found for value in (each.relevance if body.use_activation else each.scores)]
    data = [{"index": i, "object": "score", "score": value} for i, value in enumerate(scores)]
    created = int(time.time())
    return JSONResponse(
        {"object": "list", "created": created, "model": served.name, "data": data, "usage": usage_of(found, body)}
    )


ENDPOINTS = [post("/v1/score", "/score", handler=score, schema=ScoreRequest, of_encoders=True)]
