"""POST /classify: probabilities of the labels of texts, in the format of vLLM, or of TEI."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.evaluate.cross_encoder import TextScorer
from hybrid.infer.evaluate.pairs import Scored
from hybrid.infer.evaluate.rerank import Pairs, relevance

from ..embedding import Embedding, EncoderModel, checked_number, checked_tokens
from ..endpoint import post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..in_thread import in_thread
from ..served import Served
from ..streaming import unless_disconnected
from ..time_limit import time_limit
from ..warning_log import with_warnings

TextOrPair = str | Annotated[list[str], Field(min_length=1, max_length=2)]


class ClassifyRequest(Strict):
    """Texts. `input` is vLLM's name; with `inputs` the answer is TEI's, which also takes pairs of texts."""

    input: str | Annotated[list[str], Field(min_length=1)] | None = None
    inputs: Annotated[
        str | Annotated[list[TextOrPair], Field(min_length=1)] | None,
        Field(description="A text, a pair of texts, or a list of lists of one or two texts."),
    ] = None
    model: str | None = None
    raw_scores: Annotated[bool, Field(description="Logits instead of probabilities.")] = False
    use_activation: Annotated[bool, Field(description="vLLM's name; false: logits.")] = True
    truncate: Annotated[bool, Field(description="Texts that are too long lose their ends.")] = False
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=-1, description="-1: as truncate.")] | None = None
    truncation_direction: Literal["Right", "right"] = "Right"
    user: Ignored
    priority: Ignored


async def classify(served: Served, request: Request, body: ClassifyRequest) -> Response:
    """For each text the probability of every label."""
    model, embedding = served.model, served.embedding
    scorer = model.scorer if isinstance(model, EncoderModel) else None
    if scorer is None or embedding is None:
        raise RequestError(
            f"{served.name} has no labels: {request.url.path} needs an encoder with a classification head"
        )
    if (body.input is None) == (body.inputs is None):
        raise RequestError("give one of input and inputs", param="input")
    many, texts = _texts_of(body)
    for text in texts:
        for part in (text,) if isinstance(text, str) else text:
            served.maker.check_length(part)
    cuts = body.truncate or body.truncate_prompt_tokens is not None
    async with time_limit(request, served.settings.timeout).kept():
        tokens = await in_thread(request, _tokens, scorer, texts, cuts)
        logits = await unless_disconnected(request, _logits(embedding, scorer, tokens))
    values = logits if body.raw_scores or not body.use_activation else probabilities(logits)
    if body.inputs is not None:
        ranked = [_ranked(row, scorer.labels) for row in values]
        return JSONResponse(ranked if many else ranked[0])
    data = [
        {"index": i, "label": scorer.labels[int(row.argmax())], "probs": row.tolist(), "num_classes": len(row)}
        for i, row in enumerate(values)
    ]
    usage: dict[str, Any] = {"prompt_tokens": tokens.n_tokens, "total_tokens": tokens.n_tokens}
    if tokens.truncated:
        usage["truncated"] = list(tokens.truncated)
    answer = {"object": "list", "created": int(time.time()), "model": served.name, "data": data}
    return JSONResponse({**answer, "usage": with_warnings(usage, body)})


def _texts_of(body: ClassifyRequest) -> tuple[bool, list[Scored]]:
    """Whether a list is expected, and the texts and pairs."""
    if body.input is not None:
        return True, [body.input] if isinstance(body.input, str) else list(body.input)
    given = body.inputs
    assert given is not None
    if isinstance(given, str):
        return False, [given]
    if all(isinstance(one, str) for one in given):  # one text, or one pair
        if len(given) > 2:
            raise RequestError("inputs: expected a text, a pair, or a list of lists", param="inputs")
        return False, [_pair([str(one) for one in given])]
    return True, [one if isinstance(one, str) else _pair(one) for one in given]


def _pair(texts: Sequence[str]) -> Scored:
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _tokens(scorer: TextScorer, texts: Sequence[Scored], truncate: bool) -> Pairs:
    checked_number(len(texts), "input")
    tokens = scorer.tokens(texts, truncate=truncate)
    checked_tokens(tokens.n_tokens, "input")
    return tokens


async def _logits(embedding: Embedding, scorer: TextScorer, tokens: Pairs) -> np.ndarray:
    reading = scorer.begin(tokens)
    await embedding.read(reading)
    return reading.logits()


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probabilities of labels, f64 [n, labels], that exclude each other; a single label's own."""
    if logits.shape[1] == 1:
        return relevance(logits)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _ranked(row: np.ndarray, labels: Sequence[str]) -> list[dict[str, Any]]:
    """TEI's predictions, the most likely label first."""
    return [{"score": float(row[i]), "label": labels[i]} for i in np.argsort(-row, kind="stable")]


ENDPOINTS = [post("/classify", "/predict", handler=classify, schema=ClassifyRequest, of_encoders=True)]
