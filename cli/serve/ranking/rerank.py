"""POST /v1/rerank: documents in the order in which they answer a query, in the format of Jina and Cohere, or of TEI."""

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..endpoint import post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..scoring import RankQuery
from ..served import Served
from .asked import TextOrObject, scored, text_of, usage_of

INSTRUCTION = "The demand on a document, for models that read an instruction; otherwise it has no effect."


class RerankRequest(Strict):
    """A query and documents. `documents` is Jina's and Cohere's name, and vLLM's and llama-server's; with `texts` the
    answer is TEI's."""

    query: TextOrObject
    documents: Annotated[list[TextOrObject], Field(min_length=1)] | None = None
    texts: Annotated[list[str], Field(min_length=1)] | None = None
    model: str | None = None
    top_n: Annotated[int, Field(ge=0, description="Results in the answer. Default, and vLLM's 0: all.")] | None = None
    instruction: Annotated[str, Field(description=INSTRUCTION)] | None = None
    return_documents: bool = False
    return_text: bool = False
    raw_scores: Annotated[bool, Field(description="Log odds instead of scores from 0 to 1.")] = False
    truncate: Annotated[bool, Field(description="Documents that are too long lose their ends.")] | None = None
    truncation: Annotated[bool, Field(description="Jina's and Voyage's name of truncate.")] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=-1, description="-1: as truncate.")] | None = None
    truncation_direction: Literal["Right", "right"] = "Right"
    user: Ignored
    priority: Ignored

    @property
    def cuts(self) -> bool:
        """Whether documents may be cut."""
        given = (self.truncate, self.truncation, self.truncate_prompt_tokens and True)
        return bool(next((each for each in given if each is not None), False))


async def rerank(served: Served, request: Request, body: RerankRequest) -> Response:
    """The documents by falling score, with their indexes in the request."""
    if (body.documents is None) == (body.texts is None):
        raise RequestError("give one of documents and texts, a list of texts", param="documents")
    documents = [text_of(each) for each in body.documents or ()] or body.texts or []
    asked = RankQuery(text_of(body.query), documents, body.instruction, body.cuts)
    found = await scored(served, request, [asked])
    scores = found[0].scores if body.raw_scores else found[0].relevance
    best = sorted(range(len(documents)), key=lambda i: (-found[0].scores[i], i))[: body.top_n or None]
    if body.texts is not None:
        texts = {i: {"text": documents[i]} if body.return_text else {} for i in best}
        return JSONResponse([{"index": i, **texts[i], "score": float(scores[i])} for i in best])
    results: list[dict[str, Any]] = [{"index": i, "relevance_score": float(scores[i])} for i in best]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": documents[result["index"]]}
    return JSONResponse(
        {"object": "list", "model": served.name, "results": results, "usage": usage_of(found, body)},
    )


ENDPOINTS = [
    post(
        "/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank",
        handler=rerank, schema=RerankRequest, of_encoders=True,
    )
]  # fmt: skip
