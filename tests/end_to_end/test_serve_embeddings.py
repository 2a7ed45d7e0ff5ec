"""Embeddings over HTTP: the same bits as `hybrid embed`, beside streams, from models that generate and from
encoders."""

import base64
import json
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import random_checkpoints
from http_server import WAIT, Server, started, until
from retrieval_checkpoints import write_modules

from hybrid.cli.serve.embedding import EncoderModel, EncoderService
from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.slices import Slices
from hybrid.infer.evaluate.embed import Embedder, Pooling

pytestmark = pytest.mark.exhaustive

N_CTX = 256
TEXTS = ["How do I read a file?", "open the file", "Keys and values " * 40, "a"]


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=N_CTX, n_seq_max=5, checkpoint_budget=32 << 20) as model:
        server = Server(model)
        yield server
        server.close()
        assert model.n_free == 5


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    source = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], folder / "model")
    convert(source, folder / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    return folder / "bert.gguf"


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Iterator[Server]:
    with Embedder(bert) as embedder:
        server = Server(EncoderModel(embedder), EncoderService())  # type: ignore[arg-type]
        yield server
        server.close()


@pytest.fixture(scope="module")
def wanted(files: dict[str, Path]) -> np.ndarray:
    """Embeddings computed by the library."""
    with Embedder(files["q8_0"], n_ctx=N_CTX) as embedder:
        return embedder.embed(TEXTS)


def post(server: Server, path: str = "/v1/embeddings", **body: Any) -> Any:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def rows_of(answer: Any) -> np.ndarray:
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    return np.array([item["embedding"] for item in answer["data"]], np.float32)


def test_they_are_those_of_the_library(server: Server, wanted: np.ndarray) -> None:
    """As base64, which OpenAI's client requests; as floats; from ids; one at a time."""
    client = server.openai.embeddings
    found = client.create(model="tiny", input=TEXTS)
    assert (np.array([one.embedding for one in found.data], np.float32) == wanted).all()
    ids = [server.model.tokenizer.encode(text) for text in TEXTS]
    assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, ids))
    assert (rows_of(post(server, input=TEXTS, encoding_format="float", dimensions=wanted.shape[1])) == wanted).all()
    assert (rows_of(post(server, input=ids)) == wanted).all()
    for i, text in enumerate(TEXTS):
        assert (rows_of(post(server, input=text)) == wanted[i]).all()
        assert (rows_of(post(server, input=ids[i])) == wanted[i]).all()
    raw = post(server, input=TEXTS[0], encoding_format="base64", user="me", model=None)["data"][0]["embedding"]
    assert (np.frombuffer(base64.b64decode(raw), "<f4") == wanted[0]).all()


def test_in_llama_servers_shape(server: Server, wanted: np.ndarray) -> None:
    for path, name in (("/embedding", "content"), ("/embeddings", "input")):
        answer = post(server, path, **{name: TEXTS})
        assert [item["index"] for item in answer] == [0, 1, 2, 3]
        assert (np.array([item["embedding"][0] for item in answer], np.float32) == wanted).all()
    mixed = post(server, "/embedding", content=[TEXTS[0], server.model.tokenizer.encode(TEXTS[1])])
    assert (np.array([item["embedding"][0] for item in mixed], np.float32) == wanted[:2]).all()
    (long,) = post(server, "/embedding", content=TEXTS[0], embd_normalize=-1)
    row = np.array(long["embedding"][0])
    assert abs(np.linalg.norm(row) - 1) > 0.1
    np.testing.assert_allclose(row / np.linalg.norm(row), wanted[0], rtol=1e-4)
    server.error(400, "/embedding", {})
    server.error(400, "/embedding", {"content": "a", "input": "b"})


def test_texts_of_every_shape(server: Server, encoder: Server, wanted: np.ndarray) -> None:
    """Objects with a text or its pieces; a list of tokens and texts, which is one text."""
    encode = server.model.tokenizer.encode
    pieces = {"content": [{"type": "text", "text": "open "}, {"type": "text", "text": "the file"}]}
    listed = [TEXTS[0], pieces, {"prompt_string": TEXTS[2]}, encode(TEXTS[3])]
    for path, name in (("/v1/embeddings", "input"), ("/embedding", "content")):
        answer = post(server, path, **{name: listed})
        rows = [one["embedding"] for one in (answer["data"] if path == "/v1/embeddings" else answer)]
        assert (np.array(rows, np.float32).reshape(wanted.shape) == wanted).all()
    assert (rows_of(post(server, input={"prompt_string": TEXTS[0]})) == wanted[0]).all()
    for one in (server, encoder):
        split = one.model.tokenizer.encode
        want = rows_of(post(one, input=[[*split("open"), 7, 8, *split("the file", add_special=False), 9]]))
        for mixed in (["open", 7, 8, "the file", 9], [["open", 7, 8, "the file", 9]]):
            assert (rows_of(post(one, input=mixed)) == want).all()
    for wrong in (
        {},
        {"prompt_string": "a", "content": [{"type": "text", "text": "a"}]},
        {"content": []},
        {"content": "a"},
        {"content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        [5, {"prompt_string": "a"}],
        [5, [6]],
        [[[5]]],
    ):
        assert "input" in str(server.error(400, "/v1/embeddings", {"input": wrong})["message"]), wrong


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
            "image_url",
        ),
        ({"content": [{"type": "input_image", "image_url": "data:"}]}, "input_image"),
        ({"prompt_string": "<__media__>", "multimodal_data": ["AAAA"]}, "multimodal_data"),
        ({"image": "AAAA"}, "image"),
    ],
)
def test_pictures_have_none(given: dict[str, Any], name: str, server: Server, encoder: Server) -> None:
    for one in (server, encoder):
        for path, field in (("/v1/embeddings", "input"), ("/embedding", "content")):
            error = one.error(400, path, {field: [TEXTS[0], given]})
            assert error["message"] == (
                f"input: {name}: embeddings are of texts, no model here makes any of pictures or sound"
            )


@pytest.mark.parametrize("pooling", list(Pooling))
def test_however_texts_are_cut(pooling: Pooling, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of 1, 7 and 60 tokens; short texts share a pass, a long one takes several."""
    with Embedder(files["q8_0"], n_ctx=N_CTX, pooling=pooling) as embedder:
        wanted = embedder.embed(TEXTS)
    for size in (1, 7, 60):
        monkeypatch.setattr(Slices, "beside_answers", property(lambda _, size=size: size))
        with LoadedModel.load(files["q8_0"], n_ctx=N_CTX, n_seq_max=5) as model:
            server = Server(model, pooling=pooling)
            try:
                assert (rows_of(post(server, input=TEXTS)) == wanted).all(), size
            finally:
                server.close()


def test_beside_answers(server: Server, wanted: np.ndarray) -> None:
    """Answers keep all their sequences, and are the same as alone."""
    body = {"prompt": "State space models", "max_tokens": 60, "ignore_eos": True, "temperature": 0.9, "seed": 1}
    alone = [server.http.post("/v1/completions", json={**body, "seed": s}).json()["choices"][0]["text"] for s in (1, 2)]
    beside: dict[tuple[str, int], Any] = {}

    def answer(seed: int) -> None:
        with httpx.Client(base_url=server.url, timeout=WAIT) as http:
            beside["answer", seed] = http.post("/v1/completions", json={**body, "seed": 1 + seed % 2}).json()

    def embed(i: int) -> None:
        with httpx.Client(base_url=server.url, timeout=WAIT) as http:
            beside["embedding", i] = http.post("/v1/embeddings", json={"input": TEXTS * 4}).json()

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(6)]
    threads += [threading.Thread(target=embed, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    for seed in range(6):
        assert beside["answer", seed]["choices"][0]["text"] == alone[seed % 2]
    for i in range(3):
        assert (rows_of(beside["embedding", i]) == np.concatenate([wanted] * 4)).all()


def test_a_client_that_leaves_ends_it(server: Server) -> None:
    body = json.dumps({"input": ["Keys and values " * 40] * 500}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    embedding = server.served.embedding
    assert embedding is not None
    with socket.create_connection(server.listener.getsockname()) as raw:
        raw.sendall(head.encode() + body)
        until(lambda: embedding.n_waiting)
    until(lambda: not embedding.n_waiting)
    assert server.service.call(lambda: server.model.n_free).result(WAIT) == 5


def test_a_limit_of_time_counts_for_them(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(server.served.settings, timeout=0.3)
    monkeypatch.setattr(server.served, "settings", settings)
    monkeypatch.setattr(server.router, "settings", settings)
    error = server.error(504, "/v1/embeddings", {"input": ["Keys and values " * 40] * 500})
    assert "--timeout" in str(error["message"])
    assert server.service.call(lambda: server.model.n_free).result(WAIT) == 5


def test_what_is_refused(server: Server, wanted: np.ndarray, files: dict[str, Path]) -> None:
    for body, says in (
        ({"input": "a", "dimensions": 999}, f"999 dimensions: the vectors of this model have {wanted.shape[1]} values"),
        ({"input": []}, "found an empty list"),
        ({"input": [[]]}, "text 1 is empty"),
        ({"input": ["a", "word " * 600]}, f"text 2 is too large: it has 1202 tokens, the context has {N_CTX}"),
        ({"input": ["a", "x" * 70_000]}, "70000 characters, a context of 256 tokens 65536 at most"),
        ({"input": [999999]}, "not of the vocabulary"),
        ({"input": ["a"] * 2049}, "2049 texts, this server takes 2048 at a time"),
        ({"input": [[5] * 200] * 1600}, "320000 tokens, this server takes 300000 at a time"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({}, "input: Field required"),
    ):
        assert says in str(server.error(400, "/v1/embeddings", body)["message"]), body
    with LoadedModel.load(files["q8_0"], n_ctx=64, n_seq_max=4) as model:
        without = Server(model)
        try:
            assert "without a sequence" in str(without.error(501, "/v1/embeddings", {"input": "a"})["message"])
        finally:
            without.close()


def test_more_than_may_wait(server: Server) -> None:
    held = threading.Event()
    server.service.call(lambda: held.wait(WAIT))
    threads = [
        threading.Thread(
            target=httpx.post, args=(f"{server.url}/v1/embeddings",), kwargs={"json": {"input": "a"}, "timeout": WAIT}
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    embedding = server.served.embedding
    assert embedding is not None
    until(lambda: embedding.n_waiting == 3)
    response = server.http.post("/v1/embeddings", json={"input": "a"})
    assert response.status_code == 429 and int(response.headers["retry-after"]) > 0
    held.set()
    for thread in threads:
        thread.join(WAIT)


def test_an_encoder(encoder: Server) -> None:
    """It makes embeddings, and refuses requests for text."""
    embedder = encoder.model.embedder  # type: ignore[attr-defined]

    def counted() -> list[int]:
        lines = dict(line.split() for line in encoder.http.get("/metrics").text.splitlines() if line[0] != "#")
        names = ("hybrid:embedding_tokens_total", "llamacpp:prompt_tokens_total", "llamacpp:n_decode_total")
        assert lines["llamacpp:tokens_predicted_total"] == "0"
        return [int(lines[name]) for name in names]

    before = counted()
    found = encoder.openai.embeddings.create(model="tiny", input=[*TEXTS, ""])
    wanted = encoder.service.call(lambda: embedder.embed([*TEXTS, ""])).result(WAIT)
    assert (np.array([one.embedding for one in found.data], np.float32) == wanted).all()
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"prompt": "a"}),
    ):
        assert "is an encoder" in str(encoder.error(400, path, body)["message"])
    assert encoder.http.get("/health").json() == {"status": "ok"}
    meta = encoder.http.get("/v1/models").json()["data"][0]["meta"]
    assert meta["n_vocab"] == embedder.encoder.n_vocab and meta["n_ctx"] == embedder.n_ctx
    n_tokens, n_prompt, n_passes = (b - a for a, b in zip(before, counted(), strict=True))
    assert n_tokens == n_prompt == found.usage.prompt_tokens and n_passes > 0
    ids = encoder.http.post("/tokenize", json={"prompt": "How do I"}).json()["tokens"]
    assert ids == embedder.tokenizer.encode("How do I")
    for given in ("x " * 2000, [70000]):
        encoder.error(400, "/v1/embeddings", {"input": given})


@pytest.mark.parametrize("kind", ["encoder", "generating"])
def test_by_the_command(kind: str, program: Path, bert: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """`hybrid serve` with a pooling other than the model's default gives the same vectors as `hybrid embed`."""
    path = bert if kind == "encoder" else files["q8_0"]
    pooling = Pooling.CLS if kind == "encoder" else Pooling.MEAN
    command = [program, "serve", path, "--unix", tmp_path / "socket"]
    command += ["--pooling", pooling.value, "--parallel", "2", "-c", "40"]
    with started(command) as (process, said):
        assert ("embeddings" if kind == "encoder" else "2 answers at a time") in said.splitlines()[-1]
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "socket")), timeout=WAIT) as client:
            answer = client.post("http://localhost/v1/embeddings", json={"input": TEXTS[:2]}).json()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.wait(WAIT) == 0 and "Traceback" not in process.stderr.read()
    with Embedder(path, pooling=pooling, n_ctx=40) as embedder:
        assert (rows_of(answer) == embedder.embed(TEXTS[:2])).all()


def test_a_model_with_a_vector_of_every_token(tmp_path: Path, data_dir: Path) -> None:
    source = random_checkpoints.write(random_checkpoints.ENCODERS["lfm2-bidirectional"], tmp_path / "model")
    write_modules(source, (60, 12))
    convert(source, tmp_path / "a.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    for pooling, refused in ((None, True), (Pooling.CLS, False)):
        with Embedder(tmp_path / "a.gguf", pooling=pooling) as embedder:
            assert EncoderModel(embedder).refusal.startswith("it makes a vector of every token") == refused
