"""Ranking over HTTP: the scores of the library, in every client's format, beside answers."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import random_checkpoints
from http_server import Server, drawing_held, serving, until
from random_rerankers import DOCUMENTS, QUERY, causal

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.rerank import relevance, scores
from hybrid.infer.evaluate.yes_no import YesNoReranker

pytestmark = pytest.mark.exhaustive

N_CTX = 600
LONG = "word " * N_CTX
PATHS = ("/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    return causal(random_checkpoints.CONFIGS["qwen35"], tmp_path_factory.mktemp("reranker"), data_dir)


@pytest.fixture(scope="module")
def wanted(reranker: Path) -> np.ndarray:
    """Log odds computed by the library."""
    with LoadedModel.load(reranker, n_ctx=N_CTX, n_seq_max=3) as model:
        return scores(YesNoReranker(model), QUERY, DOCUMENTS)


@pytest.fixture(scope="module")
def server(reranker: Path) -> Iterator[Server]:
    with LoadedModel.load(reranker, n_ctx=N_CTX, n_seq_max=5, checkpoint_budget=8 << 20) as model:
        with serving(model) as server:
            yield server
        assert model.n_free == 5


def post(server: Server, path: str, **body: Any) -> Any:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def ranked(values: np.ndarray) -> list[int]:
    return np.argsort(-values, kind="stable").tolist()


def test_jinas_and_coheres_format(server: Server, wanted: np.ndarray) -> None:
    tokens = YesNoReranker(server.model).pairs(QUERY, DOCUMENTS).n_tokens
    order = ranked(wanted)
    assert order != sorted(order) and np.ptp(relevance(wanted)) > 0.3
    for path in PATHS:
        answer = post(server, path, model="x", query=QUERY, documents=DOCUMENTS)
        assert answer["object"] == "list" and answer["model"] == "tiny"
        assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert answer["results"] == [{"index": i, "relevance_score": relevance(wanted)[i]} for i in order]
    objects = [{"text": text} for text in DOCUMENTS]
    answer = post(server, "/v1/rerank", query={"text": QUERY}, documents=objects, top_n=2, return_documents=True)
    assert [one["index"] for one in answer["results"]] == order[:2]
    assert [one["document"] for one in answer["results"]] == [{"text": DOCUMENTS[i]} for i in order[:2]]
    for n, found in ((0, 5), (4, 4), (99, 5), (None, 5)):
        answer = post(server, "/rerank", query=QUERY, documents=DOCUMENTS, top_n=n, raw_scores=True)
        assert [one["relevance_score"] for one in answer["results"]] == wanted[order][:found].tolist()
    asked = {"query": QUERY, "documents": DOCUMENTS, "instruction": "Find a proof.", "raw_scores": True}
    other = {one["index"]: one["relevance_score"] for one in post(server, "/rerank", **asked)["results"]}
    assert np.abs([other[i] - wanted[i] for i in range(5)]).min() > 1e-3
    answer = post(server, "/rerank", query=QUERY, documents=["a"], rank_fields=["text"])
    assert answer["usage"]["warnings"] == ["rank_fields is ignored: this server has no such field"]


def test_teis_format(server: Server, wanted: np.ndarray) -> None:
    order = ranked(wanted)
    answer = post(server, "/rerank", query=QUERY, texts=DOCUMENTS)
    assert answer == [{"index": i, "score": relevance(wanted)[i]} for i in order]
    answer = post(server, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True, return_text=True, top_n=3)
    assert answer == [{"index": i, "text": DOCUMENTS[i], "score": wanted[i]} for i in order[:3]]


def test_vllms_scores(server: Server, wanted: np.ndarray) -> None:
    answer = post(server, "/v1/score", text_1=QUERY, text_2=DOCUMENTS)
    assert [one["score"] for one in answer["data"]] == relevance(wanted).tolist()
    assert [(one["index"], one["object"]) for one in answer["data"]] == [(i, "score") for i in range(5)]
    n = answer["usage"]["prompt_tokens"]
    twice = post(
        server, "/score", text_1=[*[QUERY] * 5, "Who?"], text_2=[*DOCUMENTS, DOCUMENTS[0]], use_activation=False
    )
    assert [one["score"] for one in twice["data"]][:5] == wanted.tolist()
    alone = post(server, "/score", text_1="Who?", text_2=DOCUMENTS[0], use_activation=False)
    assert twice["data"][5]["score"] == alone["data"][0]["score"]
    assert twice["usage"]["total_tokens"] == n + alone["usage"]["total_tokens"]
    refused = server.error(400, "/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})
    assert "text_1 has 2 texts and text_2 3" in str(refused["message"])


@pytest.mark.parametrize("documents", [[], None, 123, [1, 2, 3], [{"title": "a"}], ["a"] * 2049])
def test_refused_documents(server: Server, documents: Any) -> None:
    refused = server.error(400, "/rerank", {"query": QUERY, "documents": documents})
    assert str(refused["param"]).startswith("documents")


def test_texts_that_are_too_long(server: Server, wanted: np.ndarray) -> None:
    """Refused, or cut if asked for, which the answer says."""
    refused = server.error(400, "/rerank", {"query": QUERY, "documents": ["a", LONG]})
    assert str(refused["message"]).startswith("document 2 is too large: it has ")
    server.error(400, "/rerank", {"query": LONG, "documents": ["a"], "truncate": True})
    endless = "a" * 256 * N_CTX + "a"
    for wrong in ({"documents": [endless]}, {"query": endless}, {"instruction": endless}):
        refused = server.error(400, "/rerank", {"query": QUERY, "documents": ["a"], **wrong})
        assert f"a text has {len(endless)} characters, the context {len(endless) - 1} at most" in str(
            refused["message"]
        )
    for more in ({"truncate": True}, {"truncation": True}, {"truncate_prompt_tokens": -1}):
        answer = post(server, "/rerank", query=QUERY, documents=[DOCUMENTS[0], LONG * 100], raw_scores=True, **more)
        assert answer["usage"]["truncated"] == [1] and answer["usage"]["total_tokens"] > N_CTX
        assert {one["index"]: one["relevance_score"] for one in answer["results"]}[0] == wanted[0]
    server.error(400, "/rerank", {"query": QUERY, "documents": [LONG], "truncate": False, "truncation": True})
    answer = post(server, "/score", text_1=[QUERY, "b"], text_2=["a", LONG], truncate_prompt_tokens=-1)
    assert answer["usage"]["truncated"] == [1]
    server.error(400, "/score", {"text_1": "a", "text_2": LONG})


def test_beside_answers(server: Server, wanted: np.ndarray) -> None:
    """Neither the scores nor four answers that are sampled meanwhile change."""
    asked = {"model": "x", "prompt": "State", "max_tokens": 12, "temperature": 0}
    alone = post(server, "/v1/completions", **asked)["choices"][0]["text"]
    texts: list[str] = []
    answers: list[Any] = []

    def complete() -> None:
        texts.append(post(server, "/v1/completions", **asked)["choices"][0]["text"])

    def rank() -> None:
        answers.append(post(server, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True))

    threads = [threading.Thread(target=work) for work in [*[complete] * 4, rank]]
    with drawing_held(server, 4, 3):
        for thread in threads:
            thread.start()
        until(lambda: server.served.embedding.n_waiting)
    for thread in threads:
        thread.join()
    assert [one["score"] for one in answers[0]] == wanted[ranked(wanted)].tolist() and texts == [alone] * 4


def test_models_that_score_nothing(small: dict[str, Path]) -> None:
    with LoadedModel.load(small["q8_0"], n_ctx=64, n_seq_max=5) as model, serving(model) as server:
        for path, body in (
            ("/v1/rerank", {"query": "a", "documents": ["b"]}),
            ("/score", {"text_1": "a", "text_2": "b"}),
        ):
            refused = server.error(400, path, body)
            assert f"tiny scores no documents: {path} needs a reranker: an encoder with" in str(refused["message"])


@pytest.mark.matrix
def test_coheres_clients(server: Server, wanted: np.ndarray) -> None:
    cohere = pytest.importorskip("cohere")
    order = ranked(wanted)
    asked = {"model": "tiny", "query": QUERY, "documents": DOCUMENTS, "top_n": 3}
    with httpx.Client() as own:
        common: dict[str, Any] = {"api_key": "none", "base_url": server.url, "httpx_client": own}
        first = cohere.Client(**common).rerank(**asked, return_documents=True)
        newer = cohere.ClientV2(**common).rerank(**asked)
    for answer in (first, newer):
        assert [one.index for one in answer.results] == order[:3]
        assert [one.relevance_score for one in answer.results] == relevance(wanted)[order][:3].tolist()
    assert [one.document.text for one in first.results] == [DOCUMENTS[i] for i in order[:3]]


@pytest.mark.matrix
def test_langchains_jina_and_cohere(server: Server, wanted: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients name the service in a constant, or take a base URL."""
    jina = pytest.importorskip("langchain_community.document_compressors.jina_rerank")
    theirs = pytest.importorskip("langchain_cohere")
    from langchain_core.documents import Document

    monkeypatch.setattr(jina, "JINA_API_URL", f"{server.url}/v1/rerank")
    order, documents = ranked(wanted), [Document(text) for text in DOCUMENTS]
    with httpx.Client() as own:
        cohere = pytest.importorskip("cohere").ClientV2(api_key="none", base_url=server.url, httpx_client=own)
        first = jina.JinaRerank(jina_api_key="none", model="tiny", top_n=3)
        for client in (first, theirs.CohereRerank(client=cohere, model="tiny", top_n=3)):
            found = client.compress_documents(documents, QUERY)
            assert [one.page_content for one in found] == [DOCUMENTS[i] for i in order[:3]]
            assert [one.metadata["relevance_score"] for one in found] == relevance(wanted)[order][:3].tolist()
        first.session.close()
