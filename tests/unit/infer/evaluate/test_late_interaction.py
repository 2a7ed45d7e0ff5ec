"""Late interaction: the largest cosines of every token of a query, written out."""

from pathlib import Path

import numpy as np
import pytest
from random_rerankers import DOCUMENTS, QUERY, colbert

from hybrid.infer.evaluate import rerank
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.late_interaction import LateInteraction
from hybrid.infer.evaluate.reranker_file import RerankerFile
from hybrid.quant.ggml.errors import UsageError

MARKS = {"query_prefix": "q: ", "document_prefix": "d: "}


@pytest.mark.parametrize("skipped", [[], [".", "of", "not a token"]])
def test_scores(skipped: list[str], tmp_path: Path, data_dir: Path) -> None:
    documents = [*DOCUMENTS, "word " * 40] * 8  # more than a pass takes
    path = colbert(tmp_path, data_dir, **MARKS, skiplist_words=skipped)
    with Embedder(path) as embedder:
        (query,) = embedder.token_vectors([f"q: {QUERY}"])
        marked = [f"d: {text}" for text in documents[:6]]
        wanted = []
        for ids, vectors in zip(embedder.tokens(marked), embedder.token_vectors(marked), strict=True):
            pieces = [embedder.tokenizer.vocabulary.tokens[token] for token in ids]
            kept = [vector for piece, vector in zip(pieces, vectors, strict=True) if piece not in skipped]
            assert (len(kept) < len(ids)) == bool(set(pieces) & set(skipped))
            wanted.append(np.mean([max(float(np.dot(a, b)) for b in kept) for a in query]))
        reranker = LateInteraction(embedder)
        found = rerank.scores(reranker, QUERY, documents)
        np.testing.assert_allclose(found[:6], wanted, atol=1e-6)
        assert (found == np.tile(found[:6], 8)).all() and np.ptp(found) > 1e-3
        assert (reranker.relevance(found) == found).all()
        reading = reranker.begin(reranker.pairs(QUERY, documents))
        rerank.read(reading)
        assert reading.n_read == reading.pairs.n_processed, "the query is read once"
    with RerankerFile(path) as reranker_file:
        pairs = reranker_file.pairs(QUERY, documents)
        assert (reranker_file.relevance(reranker_file.scores(pairs)) == found).all()


def test_texts_that_do_not_fit(tmp_path: Path, data_dir: Path) -> None:
    with Embedder(colbert(tmp_path, data_dir), n_ctx=40) as embedder:
        reranker = LateInteraction(embedder)
        with pytest.raises(UsageError, match="text 2 is too large"):
            reranker.pairs(QUERY, ["a", "word " * 99])
        with pytest.raises(UsageError, match="text 1 is too large"):
            reranker.pairs("word " * 99, ["a"], truncate=True)
        pairs = reranker.pairs(QUERY, ["a", "word " * 99], truncate=True)
        assert pairs.truncated == (1,) and len(pairs.rest[1]) == 40
