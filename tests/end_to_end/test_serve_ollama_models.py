"""ollama's API: models, embeddings and status, by its own client; LangChain; the requests of Open WebUI."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import random_checkpoints
from http_server import WAIT, Server, serving
from ollama_requests import GREEDY, TALK, asked, refused, wanted
from scripted_chat import LOOK

from hybrid.cli.serve.embedding import EncoderModel, EncoderService
from hybrid.convert import convert
from hybrid.infer.evaluate.embed import Embedder

if TYPE_CHECKING:
    import ollama

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def client(server: Server) -> "Iterator[ollama.Client]":
    """ollama's client, connected to this server."""
    with pytest.importorskip("ollama").Client(host=server.url, timeout=WAIT) as client:
        yield client


# --- models ---
def test_models_by_its_client(server: Server, client: "ollama.Client") -> None:
    (model,) = client.list().models
    assert (
        model.model == "tiny:latest"
        and model.size == server.model.path.stat().st_size
        and len(model.digest or "") == 64
    )
    assert model.details and (model.details.family, model.details.quantization_level) == ("jamba", "Q8_0")
    assert model.details.parameter_size == "11.40M" and model.modified_at is not None
    (loaded,) = client.ps().models
    assert loaded.model == "tiny:latest" and loaded.expires_at and loaded.expires_at.year > 2100
    assert (loaded.context_length, loaded.size_vram, loaded.digest) == (512, 0, model.digest)
    for name in ("tiny", "tiny:latest"):
        facts = client.show(name)
        assert facts.capabilities == ["completion", "tools"]
        assert facts.template == server.model.chat_template.source  # type: ignore[union-attr]
        info = facts.modelinfo or {}
        assert info["general.architecture"] == "jamba" and info["jamba.block_count"] == 8
        assert info["jamba.context_length"] == 512, "of the server: no request can have more"
        assert info["tokenizer.ggml.tokens"] == [] and info["general.parameter_count"] == server.model.n_params
    long = asked(server, "/api/show", name="tiny", verbose=True)
    assert len(long["model_info"]["tokenizer.ggml.tokens"]) == server.model.n_vocab
    shapes = {tensor["name"]: tensor["shape"] for tensor in long["tensors"]}
    assert shapes["token_embd.weight"] == [256, server.model.n_vocab]
    assert refused(server, 404, "/api/show", model="llama3") == "model: there is no llama3 here, only tiny"
    assert refused(server, 400, "/api/show") == "model is required"


def test_any_name_is_answered(server: Server) -> None:
    """As by the other APIs: clients have names of their own."""
    assert asked(server, "/api/generate", model="llama3", prompt="Hi", options=GREEDY)["model"] == "tiny:latest"


@pytest.mark.parametrize("path", ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/sha256:00"])
def test_models_do_not_change(server: Server, path: str) -> None:
    text = refused(server, 501, path, model="llama3")
    assert text == refused(server, 501, "/api/delete", "DELETE", model="llama3") and "`hybrid pull NAME`" in text


def test_status(server: Server) -> None:
    version = server.http.get("/api/version").json()
    assert version["version"].count(".") == 2 and version["hybrid"]
    assert server.http.head("/api/version").status_code == server.http.head("/").status_code == 200
    program = server.http.get("/", headers={"Accept": "application/json"})
    assert program.text == "Ollama is running" and program.headers["vary"] == "Accept"
    for accept in ("*/*", "text/html,application/xml;q=0.9"):
        assert "<html" in server.http.get("/", headers={"Accept": accept}).text
    with serving(server.model, page=False) as bare:
        assert bare.http.get("/").text == "Ollama is running" and bare.http.head("/").status_code == 200


def test_errors_have_its_shape(server: Server) -> None:
    assert refused(server, 404, "/api/chats") == "there is no route /api/chats. Use /api/chat."
    assert server.http.get("/api/chat").json()["error"] == "/api/chat takes POST; found GET"
    with serving(server.model, keys=("secret",)) as locked:
        assert refused(locked, 401, "/api/tags", "GET") == "a key is needed: Authorization: Bearer KEY"


# --- embeddings ---
def test_embeddings_by_its_client(server: Server, client: "ollama.Client") -> None:
    texts = ["how to read a file", "opening files"]
    theirs = server.http.post("/v1/embeddings", json={"input": texts}).json()["data"]
    found = client.embed("tiny", texts)
    assert [list(row) for row in found.embeddings] == [one["embedding"] for one in theirs]
    assert found.prompt_eval_count and found.total_duration
    assert client.embed("tiny", texts[0]).embeddings[0] == found.embeddings[0]
    assert client.embed("tiny", "").embeddings == client.embed("tiny", []).embeddings == []
    short = np.array(client.embed("tiny", texts, dimensions=5).embeddings)
    full = np.array(found.embeddings)[:, :5]
    np.testing.assert_allclose(short, full / np.linalg.norm(full, axis=1, keepdims=True), rtol=1e-6)
    old = np.array(client.embeddings("tiny", texts[0]).embedding)
    np.testing.assert_allclose(old / np.linalg.norm(old), found.embeddings[0], rtol=1e-5)
    assert client.embeddings("tiny", "").embedding == []
    cut = client.embed("tiny", "word " * 600)
    assert cut.prompt_eval_count == 512
    assert "the context has 512" in refused(server, 400, "/api/embed", input="word " * 600, truncate=False)


def test_an_encoder(data_dir: Path, tmp_path: Path) -> None:
    source = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], tmp_path / "model")
    convert(source, tmp_path / "bert.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    with Embedder(tmp_path / "bert.gguf") as embedder:
        server = Server(EncoderModel(embedder), EncoderService())  # type: ignore[arg-type]
        try:
            (model,) = server.http.get("/api/tags").json()["models"]
            assert model["capabilities"] == asked(server, "/api/show", model="tiny")["capabilities"] == ["embedding"]
            assert len(asked(server, "/api/embed", input=["one", "two"])["embeddings"]) == 2
            assert "is an encoder" in refused(server, 400, "/api/chat", messages=TALK)
        finally:
            server.close()


# --- other clients ---
# What Open WebUI sends to an ollama (backend/open_webui/routers/ollama.py, utils/payload.py): it finds the models by
# tags, marks the loaded ones by ps, adds ":latest" to names without a tag and looks the result up among the tags.
OPEN_WEBUI: list[tuple[str, str, Any]] = [
    ("GET", "/api/version", None),
    ("GET", "/api/tags", None),
    ("GET", "/api/ps", None),
    ("POST", "/api/show", {"model": "tiny:latest"}),
    (
        "POST",
        "/api/chat",
        {
            "model": "tiny:latest",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello", "images": []},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": {"what": "here"}}}
                ]},
                {"role": "tool", "content": "Nothing.", "tool_call_id": "call_1"},
            ],
            "stream": True,
            "options": {
                "temperature": 0, "top_p": 0.9, "seed": 5, "stop": ["###"], "num_predict": 5, "repeat_penalty": 1.1,
                "mirostat": 0, "num_ctx": 512, "num_keep": 24, "num_thread": 2, "use_mmap": True, "think": False,
            },
            "keep_alive": "5m",
            "format": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        },
    ),
    ("POST", "/api/chat", {"model": "tiny:latest", "messages": TALK, "stream": False, "think": False, "tools": [LOOK]}),
    ("POST", "/api/generate", {"model": "tiny:latest", "prompt": "A title?", "stream": True, "raw": False}),
    ("POST", "/api/generate", {"model": "tiny:latest", "keep_alive": 0, "prompt": ""}),
    ("POST", "/api/embed", {"model": "tiny:latest", "input": ["a", "bc"], "truncate": True}),
    ("POST", "/api/embeddings", {"model": "tiny:latest", "prompt": "a", "keep_alive": -1}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OPEN_WEBUI)))
def test_open_webui(server: Server, number: int) -> None:
    method, path, body = OPEN_WEBUI[number]
    if body is not None and path in ("/api/chat", "/api/generate"):
        body = {**body, "options": {"num_predict": 5, **body.get("options", {})}}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer key"}
    headers |= {"X-OpenWebUI-User-Name": "Somebody", "X-OpenWebUI-Chat-Id": "1"}
    response = server.http.request(method, path, headers=headers, content=None if body is None else json.dumps(body))
    assert response.status_code == 200, response.text
    found = [json.loads(line) for line in response.text.splitlines()]
    if path in ("/api/tags", "/api/ps"):
        assert [model["name"] for model in found[0]["models"]] == ["tiny:latest"]
        if path == "/api/ps":
            assert datetime.fromisoformat(found[0]["models"][0]["expires_at"]).timestamp() > 2**32
    elif path == "/api/version":
        assert tuple(map(int, found[0]["version"].split("."))) > (0, 9)
    elif path in ("/api/chat", "/api/generate"):
        assert found[-1]["done"] and "error" not in response.text
        assert all(model["model"] == "tiny:latest" for model in found)


@pytest.mark.matrix
def test_langchain_by_ollama(server: Server) -> None:
    langchain = pytest.importorskip("langchain_ollama")
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    system = {"role": "system", "content": "Be brief."}
    text = wanted(server, [system, *TALK])
    talk = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hi."), HumanMessage("State space models")]
    common: dict[str, Any] = {"base_url": server.url, "model": "tiny"}
    chat = langchain.ChatOllama(**common, temperature=0, num_predict=12, validate_model_on_init=True)
    answer = chat.invoke(talk)
    assert answer.content == text and answer.usage_metadata["output_tokens"] == 12
    assert answer.response_metadata["done_reason"] == "length"
    assert "".join(str(part.content) for part in chat.stream(talk)) == text
    assert [answer.content for answer in chat.batch([talk, talk])] == [text] * 2
    schema = {"title": "Age", "type": "object", "properties": {"age": {"enum": [1, 5]}}, "required": ["age"]}
    assert chat.with_structured_output(schema, method="json_schema").invoke(talk)["age"] in (1, 5)
    assert chat.bind_tools([LOOK]).invoke(talk).content
    embeddings = langchain.OllamaEmbeddings(**common)
    text_model = langchain.OllamaLLM(**common, temperature=0, num_predict=12)
    vectors = embeddings.embed_documents(["a", "bc"])
    asked = server.http.post("/v1/embeddings", json={"input": ["a", "bc"]}).json()["data"]
    assert vectors == [one["embedding"] for one in asked]
    assert text_model.invoke("Hello") == wanted(server, TALK[:1])
    for each in (chat, embeddings, text_model):
        each._client.close()  # nothing else closes its connections
