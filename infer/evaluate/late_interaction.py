"""Late interaction (ColBERT, arXiv:2004.12832): a vector of every token.

A document's score is the mean, over the tokens of the query, of the largest cosine with a token of the document.
"""

import time
from collections.abc import Sequence

import numpy as np

from .embed import Embedder
from .embed_reading import text_ids
from .pooling import finished, max_similarity
from .rerank import Pairs, finite


class LateInteraction:
    """A `Reranker`: an encoder that makes a vector of every token. It reads no instruction."""

    def __init__(self, embedder: Embedder) -> None:
        assert embedder.encoder is not None and embedder.by_token
        self.embedder, self.encoder, self.n_ctx = embedder, embedder.encoder, embedder.n_ctx
        prompts = embedder.prompts
        # marks such as "[Q] " and "[D] "
        self.marks = [prompts.named(prompts.of_kind(kind) or "") for kind in ("query", "document")]
        tokens = embedder.tokenizer.vocabulary.tokens
        skipped = set(prompts.skipped)
        self.skipped = frozenset(i for i, text in enumerate(tokens) if text in skipped) if skipped else frozenset()

    def pairs(
        self, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
    ) -> Pairs:
        """See `Reranker`. The shared tokens are the query's."""
        tokenizer, (before_query, before_document) = self.embedder.tokenizer, self.marks
        texts = [before_document + document for document in documents]
        shared = text_ids(tokenizer, [before_query + query], self.n_ctx, truncate=False, has_context=False).ids[0]
        rest = text_ids(tokenizer, texts, self.n_ctx, truncate=truncate, has_context=False)
        return Pairs(shared, rest.ids, rest.truncated)

    def begin(self, pairs: Pairs) -> "LateReading":
        """Begins to read pairs."""
        return LateReading(self, pairs)

    def relevance(self, scores: np.ndarray) -> np.ndarray:
        """The scores: they are cosines."""
        return scores


class LateReading:
    """A `ScoreReading`: a step is one pass of the encoder. The query is read first, once."""

    between = True  # it holds no sequence

    def __init__(self, reranker: LateInteraction, pairs: Pairs) -> None:
        self.reranker, self.pairs, self.n_read = reranker, pairs, 0
        self._texts = [pairs.shared, *pairs.rest]
        self._passes = reranker.encoder.passes([len(text) for text in self._texts])
        self._query: np.ndarray | None = None
        self._scores: list[float] = []

    @property
    def done(self) -> bool:
        return len(self._scores) == len(self.pairs.rest)

    def step(self, most: int) -> tuple[int, float]:
        encoder = self.reranker.encoder
        begin, compiled = time.perf_counter(), encoder.compile_seconds
        texts = [self._texts[i] for i in next(self._passes)]
        for text, rows in zip(texts, encoder.encode(texts), strict=True):
            if self._query is None:
                self._query = self._vectors(rows)
                continue
            kept = [i for i, token in enumerate(text) if token not in self.reranker.skipped]
            self._scores.append(max_similarity(self._query, self._vectors(rows[kept])) / len(self._query))
        n = sum(map(len, texts))
        self.n_read += n
        return n, time.perf_counter() - begin - (encoder.compile_seconds - compiled)

    def _vectors(self, rows: np.ndarray) -> np.ndarray:
        dense = self.reranker.embedder.dense
        return finished(np.stack([dense.apply(row.astype(np.float64)) for row in rows]), normalize=True)

    def close(self) -> None:
        """Does nothing."""

    def scores(self) -> np.ndarray:
        """See `ScoreReading`: cosines, f64 [n]."""
        return finite(self._scores, self.reranker.embedder.path.name)
