"""What the routes that rank have in common: texts as strings or objects, limits, and the answer's usage."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from hybrid.infer.evaluate.rerank import RERANKERS

from ..errors import RequestError
from ..in_thread import in_thread
from ..scoring import QueryScores, RankQuery
from ..served import NAMED, Served
from ..streaming import unless_disconnected
from ..strict import Strict
from ..time_limit import time_limit
from ..warning_log import with_warnings


class TextDocument(Strict):
    """A document or a query as an object."""

    text: str


TextOrObject = str | TextDocument


def text_of(given: TextOrObject) -> str:
    """The text of a document."""
    return given if isinstance(given, str) else given.text


async def scored(served: Served, request: Request, questions: Sequence[RankQuery]) -> list[QueryScores]:
    """The scores of each question. Ends when the client goes. RequestError: the model is no reranker."""
    scoring = served.scoring
    if scoring is None:
        raise RequestError(f"{served.name} scores no documents: {request.url.path} needs a reranker: {RERANKERS}")
    if served.adapters.named(request.scope.get(NAMED)) is not None:
        raise RequestError("no adapters are chosen for scores: name the model alone", param="model")
    async with time_limit(request, served.settings.timeout).kept():
        pairs = await in_thread(request, scoring.pairs, questions, served.maker.most_characters)
        return await unless_disconnected(request, scoring.scored(pairs))


def usage_of(found: Sequence[QueryScores], body: Strict) -> dict[str, Any]:
    """The usage of an answer: tokens of all pairs, warnings, and which documents have lost their ends."""
    n, first, truncated = sum(each.n_tokens for each in found), 0, []
    for each in found:
        truncated += [first + i for i in each.truncated]
        first += len(each.scores)
    usage: dict[str, Any] = {"prompt_tokens": n, "total_tokens": n}
    if truncated:
        usage["truncated"] = truncated
    return with_warnings(usage, body)
