"""Scores of documents for a query, in the model's thread: shared by all routes that rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.rerank import Pairs, Reranker
from hybrid.infer.evaluate.yes_no import YesNoReranker, prompt_of
from hybrid.quant.ggml.errors import UnsupportedError

from .embedding import Embedding, checked_number, checked_tokens
from .errors import RequestError


@dataclass(frozen=True)
class RankQuery:
    """A query and its documents.

    instruction  the demand on a document; None: as the model was trained
    truncate     too long documents lose their ends; otherwise they are errors
    """

    query: str
    documents: Sequence[str]
    instruction: str | None = None
    truncate: bool = False


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The scores of each document, f64 [n], and what clients expect of them; the tokens of all pairs; indexes of
    documents that were cut."""

    scores: np.ndarray
    relevance: np.ndarray
    n_tokens: int
    truncated: tuple[int, ...]


class PairScoring:
    """Scores documents with a reranker, in slices between the steps of answers."""

    def __init__(self, embedding: Embedding, reranker: Reranker) -> None:
        self.embedding, self.reranker = embedding, reranker

    def pairs(self, questions: Sequence[RankQuery], longest: int) -> list[Pairs]:
        """The tokens of each question; call it in a thread. longest: characters that no shorter text can fill the
        context with. RequestError, UsageError: too much, or a text that does not fit."""
        checked_number(sum(len(each.documents) for each in questions), "documents")
        made: list[Pairs] = []
        for each in questions:
            documents = [text[:longest] if each.truncate else text for text in each.documents]
            if (most := max(map(len, [each.query, each.instruction or "", *documents]))) > longest:
                raise RequestError(f"a text has {most} characters, the context {longest} at most", param="documents")
            pairs = self.reranker.pairs(each.query, documents, instruction=each.instruction, truncate=each.truncate)
            made.append(pairs)
            checked_tokens(sum(one.n_processed for one in made), "documents")
        return made

    async def scored(self, pairs: Sequence[Pairs]) -> list[QueryScores]:
        """The scores of each question. BusyError, ClosedError."""
        found = []
        for each in pairs:
            reading = self.reranker.begin(each)
            await self.embedding.read(reading)
            scores = reading.scores()
            found.append(QueryScores(scores, self.reranker.relevance(scores), each.n_tokens, each.truncated))
        return found


def scoring_of(embedding: Embedding, model: LoadedModel) -> PairScoring | None:
    """How a generating model scores; None: it is no reranker."""
    prompt = prompt_of(model.gguf)
    if prompt is None:
        return None
    try:
        return PairScoring(embedding, YesNoReranker(model, prompt))
    except UnsupportedError:  # its name is a reranker's, its vocabulary is not
        return None
