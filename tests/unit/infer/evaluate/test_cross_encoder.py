"""Encoders as rerankers: the scores of `Embedder.scores`, whatever is read together."""

from pathlib import Path

import numpy as np
import pytest
from random_rerankers import DOCUMENTS, QUERY, encoder

from hybrid.infer.evaluate import rerank
from hybrid.infer.evaluate.cross_encoder import CrossEncoder, TextScorer
from hybrid.infer.evaluate.embed import Embedder
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("labels", "ranks"), [(["LABEL_0"], True), (["yes", "no"], True), (["no", "yes"], False), (["a", "b", "c"], False)]
)
def test_scores(labels: list[str], ranks: bool, tmp_path: Path, data_dir: Path) -> None:
    documents = [DOCUMENTS[0], "word " * 90, *DOCUMENTS[2:]] * 9  # more than a pass takes
    with Embedder(encoder(tmp_path, data_dir, *labels)) as embedder:
        reranker = CrossEncoder(embedder)
        assert (reranker.labels, reranker.ranks) == (tuple(labels), ranks)
        each = np.stack([embedder.scores([(QUERY, document)])[0] for document in documents[:5]]).astype(np.float64)
        wanted = each[:, 0] - each[:, 1] if len(labels) > 1 else each[:, 0]
        found = rerank.scores(reranker, QUERY, documents)
        print("scores", found[:5])
        assert (found == np.tile(wanted, 9)).all() and np.ptp(found) > 1e-3
        logits = TextScorer(embedder).begin(reranker.pairs(QUERY, documents[:5]))
        rerank.read(logits)
        assert (logits.logits() == each).all()
        assert logits.n_read == logits.pairs.n_tokens == logits.pairs.n_processed


def test_texts_that_do_not_fit(tmp_path: Path, data_dir: Path) -> None:
    with Embedder(encoder(tmp_path, data_dir, "LABEL_0")) as embedder:
        reranker = CrossEncoder(embedder)
        long = [DOCUMENTS[0], "word " * 300]
        with pytest.raises(UsageError, match=r"text 2 is too large: it has \d+ tokens, the context has 190"):
            reranker.pairs(QUERY, long)
        pairs = reranker.pairs(QUERY, long, truncate=True)
        assert pairs.truncated == (1,) and list(map(len, pairs.rest))[1] == pairs.longest == 190
