"""What clients of retrieval ask of embeddings: shorter vectors, prompts for queries and documents, texts cut to the
context, TEI's routes."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from http_server import Server, serving

from hybrid.cli.serve.embedding import EncoderModel, EncoderService
from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.embed import Embedder

pytestmark = pytest.mark.exhaustive

PROMPTS = {"query": "search query: ", "passage": "A text: "}
TEXTS = ["How do I read a file?", "open the file", "a"]
N_CTX = 160


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """An encoder with prompts, trained for vectors of 16 and 60 values."""
    folder = tmp_path_factory.mktemp("prompts")
    config = {**random_checkpoints.ENCODERS["bert"], "matryoshka_dimensions": [16, 60]}
    source = random_checkpoints.write(config, folder / "model")
    settings = {"prompts": PROMPTS, "default_prompt_name": None}
    (source / "config_sentence_transformers.json").write_text(json.dumps(settings))
    convert(source, folder / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    return folder / "bert.gguf"


@pytest.fixture(scope="module")
def server(bert: Path) -> Iterator[Server]:
    with Embedder(bert) as embedder:
        server = Server(EncoderModel(embedder), EncoderService())  # type: ignore[arg-type]
        yield server
        server.close()


def post(server: Server, path: str = "/v1/embeddings", **body: Any) -> Any:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def rows_of(answer: Any) -> np.ndarray:
    return np.array([item["embedding"] for item in answer["data"]], np.float32)


def embedded(server: Server, texts: list[str], **options: Any) -> np.ndarray:
    assert isinstance(server.model, EncoderModel)
    return server.model.embedder.embed(texts, **options)


def test_shorter_vectors(server: Server, files: dict[str, Path]) -> None:
    """The first values of the model's vectors, of length 1; a note where the model was not trained for them."""
    whole = embedded(server, TEXTS, normalize=False).astype(np.float64)[:, :16]
    wanted = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    short = post(server, input=TEXTS, dimensions=16)
    np.testing.assert_allclose(rows_of(short), wanted, atol=1e-6)
    assert (rows_of(short) == embedded(server, TEXTS, dimensions=16)).all() and "warnings" not in short["usage"]
    raw = post(server, input=TEXTS[0], dimensions=16, encoding_format="base64")["data"][0]["embedding"]
    assert (np.frombuffer(base64.b64decode(raw), "<f4") == rows_of(short)[0]).all()
    odd = post(server, input=TEXTS, dimensions=17)
    assert rows_of(odd).shape == (3, 17)
    told = "dimensions: the model was trained for vectors of 16, 60 values, not of 17"
    assert odd["usage"]["warnings"] == [told]
    assert "warnings" not in post(server, input="a", dimensions=60)["usage"]
    assert "61 dimensions" in str(server.error(400, "/v1/embeddings", {"input": "a", "dimensions": 61})["message"])
    server.error(400, "/v1/embeddings", {"input": "a", "dimensions": 0})
    client = server.openai.embeddings.create(model="x", input=TEXTS, dimensions=16)
    assert (np.array([one.embedding for one in client.data], np.float32) == rows_of(short)).all()
    with LoadedModel.load(files["q8_0"], n_ctx=32, n_seq_max=5) as model, serving(model) as other:
        answer = post(other, input=["one two", "three"], dimensions=7)
        assert "does not say that the model was trained for vectors of 7" in answer["usage"]["warnings"][0]
        whole = rows_of(post(other, input=["one two", "three"]))[:, :7].astype(np.float64)
        cut = whole / np.linalg.norm(whole, axis=1, keepdims=True)
        np.testing.assert_allclose(rows_of(answer), cut, atol=1e-6)


def test_prompts(server: Server) -> None:
    plain, query, passage = (embedded(server, [prompt + text for text in TEXTS]) for prompt in ("", *PROMPTS.values()))
    assert np.abs(query - plain).max() > 1e-3
    for asked, wanted in (
        ({}, plain),
        ({"prompt_name": ""}, plain),
        ({"prompt_name": "query"}, query),
        ({"prompt_name": "passage", "input_type": "query"}, passage),
        ({"input_type": "search_query"}, query),
        ({"input_type": "document"}, passage),
        ({"task": "retrieval.passage"}, passage),
    ):
        assert (rows_of(post(server, input=TEXTS, **asked)) == wanted).all(), asked
    assert (embedded(server, TEXTS, prompt_name="query") == query).all()
    unknown = post(server, input=TEXTS, input_type="classification")
    assert (rows_of(unknown) == plain).all() and "input_type is ignored: known are query" in unknown["usage"][
        "warnings"
    ][0]
    message = server.error(400, "/v1/embeddings", {"input": "a", "prompt_name": "other"})["message"]
    assert str(message) == "the model has no prompt other: its prompts are query, passage."
    ids = server.model.tokenizer.encode(TEXTS[0])
    assert (rows_of(post(server, input=[ids], prompt_name="query")) == plain[0]).all(), "tokens have no prompt"


def test_texts_that_are_cut(server: Server) -> None:
    """The answer says which, and counts the tokens that were read."""
    long = "word " * 400
    wanted = embedded(server, [TEXTS[0], long], truncate=True)
    n = len(server.model.tokenizer.encode(TEXTS[0]))
    server.error(400, "/v1/embeddings", {"input": long})
    for asked in ({"truncate": True}, {"truncate": "END"}, {"truncate_prompt_tokens": -1}):
        answer = post(server, input=[TEXTS[0], long * 99], **asked)
        assert (rows_of(answer) == wanted).all(), asked
        assert answer["usage"] == {"prompt_tokens": n + N_CTX, "total_tokens": n + N_CTX, "truncated": [1]}
    few = post(server, input=[TEXTS[0], "a"], truncate_prompt_tokens=5)
    cut = [*server.model.tokenizer.encode(TEXTS[0])[:4], server.model.tokenizer.eos]
    assert (rows_of(few)[0] == rows_of(post(server, input=[cut]))[0]).all()
    assert few["usage"] == {"prompt_tokens": 8, "total_tokens": 8, "truncated": [0]}
    for wrong in ({"truncate": "START"}, {"truncate": "NONE"}, {"truncate_prompt_tokens": 0}):
        server.error(400, "/v1/embeddings", {"input": long, **wrong})


def test_teis_routes(server: Server) -> None:
    wanted = embedded(server, TEXTS, prompt_name="query")
    asked = {"inputs": TEXTS, "prompt_name": "query"}
    assert (np.array(post(server, "/embed", **asked), np.float32) == wanted).all()
    raw = np.array(post(server, "/embed", inputs=TEXTS[0], normalize=False, truncate=True))
    assert raw.shape == (1, 60) and abs(np.linalg.norm(raw) - 1) > 0.1
    plain = embedded(server, TEXTS).astype(np.float64)
    compared = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    np.testing.assert_allclose(post(server, "/similarity", inputs=compared), plain[1:] @ plain[0], atol=1e-6)
    told = post(server, "/similarity", inputs=compared, parameters={"prompt_name": "query"})
    np.testing.assert_allclose(told, wanted[1:] @ wanted[0], atol=1e-6)
    for wrong in ({}, {"inputs": []}, {"inputs": "a", "truncation_direction": "Left"}):
        server.error(400, "/embed", wrong)
    server.error(400, "/similarity", {"inputs": {"source_sentence": "a", "sentences": []}})


def test_hugging_faces_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import InferenceClient, close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # the client asks this server alone
    close_session()

    client = InferenceClient(model=f"{server.url}/embed", token="none")
    found = client.feature_extraction(TEXTS, prompt_name="passage", normalize=True, truncate=True)  # type: ignore[arg-type]
    assert (found == embedded(server, TEXTS, prompt_name="passage")).all()
    likeness = InferenceClient(model=f"{server.url}/similarity", token="none").sentence_similarity(TEXTS[0], TEXTS[1:])
    plain = embedded(server, TEXTS)
    np.testing.assert_allclose(likeness, plain[1:] @ plain[0], atol=1e-6)
    close_session()
