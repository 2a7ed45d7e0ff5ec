"""Encoders with a head over HTTP: ranking with one label, probabilities of several."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_server import Server
from random_rerankers import DOCUMENTS, QUERY, colbert, encoder

from hybrid.cli.serve.embedding import EncoderModel, EncoderService
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.late_interaction import LateInteraction
from hybrid.infer.evaluate.rerank import relevance, scores

pytestmark = pytest.mark.exhaustive

LABELS = ("far", "near", "same")


@contextmanager
def served(path: Path, **options: Any) -> Iterator[Server]:
    with Embedder(path, **options) as embedder:
        server = Server(EncoderModel(embedder), EncoderService())  # type: ignore[arg-type]
        try:
            yield server
        finally:
            server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Iterator[Server]:
    with served(encoder(tmp_path_factory.mktemp("classes"), data_dir, *LABELS)) as server:
        yield server


def post(server: Server, path: str, **body: Any) -> Any:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def logits_of(server: Server, texts: list[Any]) -> np.ndarray:
    assert isinstance(server.model, EncoderModel)
    return server.model.embedder.scores(texts, truncate=True).astype(np.float64)


def softmax(rows: np.ndarray) -> np.ndarray:
    return np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)


def test_one_label_ranks(tmp_path: Path, data_dir: Path) -> None:
    with served(encoder(tmp_path, data_dir, "LABEL_0")) as server:
        documents = [DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[4]]
        wanted = logits_of(server, [(QUERY, text) for text in documents])[:, 0]
        order = np.argsort(-wanted, kind="stable").tolist()
        n = sum(len(server.model.embedder.pairs.one((QUERY, text)).ids) for text in documents)
        answer = post(server, "/v1/rerank", query=QUERY, documents=documents)
        assert answer["results"] == [{"index": i, "relevance_score": relevance(wanted)[i]} for i in order]
        assert answer["usage"]["prompt_tokens"] == n
        answer = post(server, "/v1/score", text_1=[QUERY], text_2=documents, use_activation=False)
        assert [one["score"] for one in answer["data"]] == wanted.tolist()
        answer = post(server, "/classify", input=documents[0])["data"][0]
        assert answer["probs"] == relevance(logits_of(server, [documents[0]]))[0].tolist()
        message = server.error(400, "/v1/embeddings", {"input": "a"})["message"]
        assert "it scores texts and makes no embeddings: use /v1/rerank" in str(message)
        answer = post(server, "/rerank", query=QUERY, documents=["word " * 300], truncate=True)
        assert answer["usage"] == {"prompt_tokens": 190, "total_tokens": 190, "truncated": [0]}
        server.error(400, "/rerank", {"query": QUERY, "documents": ["word " * 300]})


def test_vllms_classes(server: Server) -> None:
    texts = [*DOCUMENTS[:1], "word " * 20, QUERY]
    wanted = softmax(logits_of(server, texts))
    answer = post(server, "/classify", model="x", input=texts)
    for i, one in enumerate(answer["data"]):
        assert (one["index"], one["num_classes"], one["label"]) == (i, 3, LABELS[wanted[i].argmax()])
        np.testing.assert_allclose(one["probs"], wanted[i], rtol=1e-12)
    assert answer["object"] == "list" and answer["usage"]["prompt_tokens"] == sum(
        len(server.model.tokenizer.encode(text)) for text in texts
    )
    plain = post(server, "/classify", input=texts[0], use_activation=False)["data"]
    assert [one["probs"] for one in plain] == logits_of(server, texts[:1]).tolist()
    cut = post(server, "/classify", input=["a", "word " * 300], truncate_prompt_tokens=-1)
    assert cut["usage"]["truncated"] == [1] and cut["usage"]["total_tokens"] > 190


def test_teis_classes(server: Server) -> None:
    """A text and a pair have one list of predictions, a list of them a list each."""
    pair = [QUERY, DOCUMENTS[0]]
    logits = logits_of(server, [QUERY, (pair[0], pair[1])])
    ranked = [[{"score": float(row[i]), "label": LABELS[i]} for i in np.argsort(-row, kind="stable")] for row in logits]
    for given, wanted in (
        (QUERY, ranked[0]),
        ([QUERY], ranked[0]),
        (pair, ranked[1]),
        ([[QUERY], pair], ranked),
        ([QUERY, pair], ranked),
    ):
        assert post(server, "/predict", inputs=given, raw_scores=True) == wanted
    (best, *_) = post(server, "/classify", inputs=QUERY)
    np.testing.assert_allclose(best["score"], softmax(logits)[0].max(), rtol=1e-12)


def test_refused(server: Server, tmp_path: Path, data_dir: Path) -> None:
    for body in (
        {},
        {"input": "a", "inputs": "b"},
        {"input": []},
        {"inputs": ["a", "b", "c"]},
        {"inputs": [["a"] * 3]},
    ):
        server.error(400, "/classify", body)
    server.error(400, "/classify", {"input": "word " * 300})
    assert "2049 texts" in str(server.error(400, "/classify", {"input": ["a"] * 2049})["message"])
    message = server.error(400, "/rerank", {"query": "a", "documents": ["b"]})["message"]
    assert "tiny scores no documents: /rerank needs a reranker" in str(message)
    assert "use /classify" in str(server.error(400, "/v1/embeddings", {"input": "a"})["message"])
    with served(encoder(tmp_path, data_dir, architectures=["BertModel"])) as plain:
        message = plain.error(400, "/classify", {"input": "a"})["message"]
        assert str(message) == "tiny has no labels: /classify needs an encoder with a classification head"


def test_late_interaction(tmp_path: Path, data_dir: Path) -> None:
    """A model with a vector of every token ranks by mean cosines, and makes no embeddings."""
    path = colbert(tmp_path, data_dir, query_prefix="q: ", document_prefix="d: ")
    with Embedder(path) as embedder:
        wanted = scores(LateInteraction(embedder), QUERY, DOCUMENTS)
    with served(path) as server:
        found = post(server, "/v1/rerank", query=QUERY, documents=DOCUMENTS)["results"]
        order = np.argsort(-wanted, kind="stable").tolist()
        assert found == [{"index": i, "relevance_score": wanted[i]} for i in order]
        message = server.error(400, "/v1/embeddings", {"input": "a"})["message"]
        assert "it makes a vector of every token, not of a text: use /v1/rerank" in str(message)
