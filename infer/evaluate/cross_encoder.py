"""Cross-encoders: encoders with a head that scores a query with a document (bge-reranker, ms-marco-MiniLM...)."""

from collections.abc import Sequence

import numpy as np

from .embed import Embedder
from .embed_reading import EncoderReading
from .pairs import Scored
from .pooling import scored_pooling
from .rerank import ByLogOdds, Pairs, finite, ranking, ranks


class TextScorer:
    """Scores texts, or pairs of texts, by the labels of an encoder's head."""

    def __init__(self, embedder: Embedder) -> None:
        assert embedder.encoder is not None and embedder.classifier is not None
        self.embedder, self.encoder, self.classifier = embedder, embedder.encoder, embedder.classifier
        self.n_ctx, self.labels = embedder.n_ctx, embedder.labels

    @property
    def ranks(self) -> bool:
        """See `ranks`."""
        return ranks(self.labels)

    def tokens(self, texts: Sequence[Scored], *, truncate: bool) -> Pairs:
        """The tokens of texts and of pairs (query, document). UsageError: one does not fit, and truncate is False."""
        found = self.embedder.pairs.all(texts, truncate=truncate)
        truncated = tuple(i for i, each in enumerate(found) if each.n_cut)
        return Pairs([], [each.ids for each in found], truncated, tuple(each.second for each in found))

    def begin(self, pairs: Pairs) -> "TextScoreReading":
        """Begins to read texts."""
        return TextScoreReading(self, pairs)


class CrossEncoder(ByLogOdds, TextScorer):
    """A `Reranker`: an encoder whose labels rank."""

    def pairs(
        self, query: str, documents: Sequence[str], *, instruction: str | None = None, truncate: bool = False
    ) -> Pairs:
        """See `Reranker`. No encoder reads an instruction."""
        return self.tokens([(query, document) for document in documents], truncate=truncate)


class TextScoreReading:
    """A `ScoreReading` of an encoder: a step is one pass, whatever the limit on tokens."""

    between = True  # it holds no sequence

    def __init__(self, scorer: TextScorer, pairs: Pairs) -> None:
        self.scorer, self.pairs, self.n_read = scorer, pairs, 0
        pooling = scored_pooling(scorer.embedder.gguf, generates=False)
        self._reading = EncoderReading(scorer.encoder, pooling, pairs.rest, pairs.seconds)

    @property
    def done(self) -> bool:
        return self._reading.done

    def step(self, most: int) -> tuple[int, float]:
        n, seconds = self._reading.step(most)
        self.n_read += n
        return n, seconds

    def close(self) -> None:
        """Does nothing."""

    def logits(self) -> np.ndarray:
        """A score for each label, f64 [n, labels], after all are read. FormatError: they are not finite."""
        return finite(self._reading.scores(self.scorer.classifier), self.scorer.embedder.path.name)

    def scores(self) -> np.ndarray:
        """See `ScoreReading`."""
        return ranking(self.logits())
