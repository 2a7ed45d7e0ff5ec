"""Adapters of requests: chosen by `model` and `lora`, listed, set, kept apart in the prompt cache; activated ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from adapters import write_adapter
from http_server import Server
from scripted_chat import post

from hybrid.cli.serve.adapters import AdapterName
from hybrid.infer import LoadedModel
from hybrid.infer.engine.applied import Applied

PROMPT = "The state of a layer is a small array that"
ASKED = {"prompt": PROMPT, "n_predict": 12, "temperature": 0}
NAMES = [AdapterName("first", 0.5), AdapterName("org/second", applied=False), AdapterName("asked", applied=False)]
BASE = [{"id": 0, "scale": 0}]  # without adapters
N_INVOCATION = 3  # tokens at the end of PROMPT


@pytest.fixture(scope="module")
def model(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    base, folder = files["q8_0"], tmp_path_factory.mktemp("adapters")
    paths = [folder / name for name in ("first.gguf", "second.gguf", "asked.gguf")]
    with LoadedModel.load(base, n_ctx=64) as plain:
        ids = plain.tokenizer.encode(PROMPT)[-N_INVOCATION:]
    for seed, path in enumerate(paths):
        keys = {"adapter__alora__invocation_tokens": ids} if path.stem == "asked" else {}
        write_adapter(path, base, 4, seed=seed, size=0.2, **keys)
    with LoadedModel.load(
        base, n_ctx=256, n_seq_max=5, checkpoint_budget=64 << 20, lora=paths, activated=True
    ) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def served(model: LoadedModel) -> Iterator[Server]:
    server = Server(model, names=NAMES)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server(served: Server) -> Iterator[Server]:
    """With an empty prompt cache, and the scales of its options."""
    cache = served.model.cache
    assert cache is not None
    served.service.call(cache.clear).result()
    served.served.maker.ledger.clear()
    yield served
    served.served.adapters.set({0: 0.5})


def expected(server: Server, applied: Applied) -> str:
    """The answer to ASKED, by the library."""

    def read() -> str:
        model = server.model
        seq = model.sequence()
        seq.use(applied)
        logits, ids = seq.prefill(model.tokenizer.encode(PROMPT)), []
        while len(ids) < ASKED["n_predict"]:  # type: ignore[operator]
            ids.append(int(logits.argmax()))
            logits = seq.decode(ids[-1])
        seq.close(remember=False)
        return model.tokenizer.decode(ids).strip()

    return server.service.call(read).result()


def content(server: Server, **more: Any) -> str:
    text: str = post(server, "/completion", **ASKED, **more)["content"]
    return text.strip()


def test_a_request_chooses(server: Server) -> None:
    wanted = {scales: expected(server, Applied.of(dict(scales))) for scales in (
        (), ((0, 0.5),), ((0, 1.0),), ((1, 1.0),), ((0, 0.25), (1, -1.0)),
    )}  # fmt: skip
    assert len(set(wanted.values())) == len(wanted)
    default = wanted[(0, 0.5),]
    asked: list[tuple[dict[str, Any], str]] = [
        ({}, default),
        ({"model": "tiny"}, default),
        ({"model": "gpt-4o"}, default),  # clients that cannot be told a name
        ({"model": "first"}, default),
        ({"model": "tiny:org/second"}, wanted[(1, 1.0),]),
        ({"model": "org/second"}, wanted[(1, 1.0),]),
        ({"lora": []}, default),
        ({"lora": [{"id": 0, "scale": 0}]}, wanted[()]),
        ({"lora": [{"id": 0}]}, wanted[(0, 1.0),]),
        ({"lora": [{"id": "org/second", "scale": -1}, {"id": 0, "scale": 0.25}]}, wanted[(0, 0.25), (1, -1.0)]),
    ]
    for body, text in asked:
        assert content(server, **body) == text, body
    with ThreadPoolExecutor(4) as threads:  # together, with an empty cache
        server.service.call(server.model.cache.clear).result()  # type: ignore[union-attr]
        bodies = [asked[i] for i in (0, 4, 7, 9)]
        got = list(threads.map(lambda each: content(server, cache_prompt=False, **each[0]), bodies))
    assert got == [text for _, text in bodies]
    answer = post(server, "/completion", **ASKED, model="tiny:first")
    assert answer["model"] == "tiny:first" and answer["generation_settings"]["lora"] == [{"id": 0, "scale": 0.5}]


def test_in_conversations(server: Server) -> None:
    texts = {}
    for name in ("tiny", "org/second"):
        messages = [{"role": "user", "content": "What is a state?"}]
        for path, more in (("/v1/chat/completions", {}), ("/v1/messages", {})):
            answer = post(server, path, model=name, messages=messages, max_tokens=8, temperature=0, **more)
            texts[name, path] = answer["choices"][0]["message"]["content"] if "choices" in answer else answer["content"]
            assert answer["model"] == ("tiny" if name == "tiny" else "tiny:org/second")
        done = post(server, "/v1/responses", model=name, input="What is a state?", max_output_tokens=8)
        assert done["model"] == answer["model"]
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert texts["tiny", path] != texts["org/second", path]


def test_listed_and_set(server: Server) -> None:
    def get(path: str) -> Any:
        return server.http.get(path).json()

    base, *adapters = get("/v1/models")["data"]
    assert [one["id"] for one in adapters] == [name.name for name in NAMES]
    assert adapters[1]["parent"] == base["id"] == "tiny" and adapters[1]["root"] == "second.gguf"
    assert get("/v1/models/tiny:org/second") == get("/v1/models/org/second") == adapters[1]
    listed = get("/lora-adapters")
    assert [(one["id"], one["path"], one["scale"]) for one in listed] == [
        (0, "first.gguf", 0.5), (1, "second.gguf", 0.0), (2, "asked.gguf", 0.0),
    ]  # fmt: skip
    said = listed[2]["alora_invocation_string"]
    assert said and PROMPT.endswith(said) and len(listed[2]["alora_invocation_tokens"]) == N_INVOCATION
    response = server.http.post("/lora-adapters", json=[{"id": 1, "scale": 1.0}])
    assert response.json() == {"success": True}
    assert [one["scale"] for one in get("/lora-adapters")] == [0.0, 1.0, 0.0]
    assert content(server) == expected(server, Applied.of({1: 1.0})) == content(server, model="org/second")
    assert content(server, model="first") == expected(server, Applied.of({0: 0.5}))
    for wrong in ([{"id": 3}], {"id": 0}, [{"id": 0, "scale": "much"}], [{"scale": 1}]):
        server.error(400, "/lora-adapters", wrong)
    assert [one["scale"] for one in get("/lora-adapters")] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        ({"model": "tiny:secnd"}, 404, "model", "there is no adapter secnd: there are first, org/second, asked"),
        ({"model": "tiny:frst"}, 404, "model", "there is no adapter frst: there are first"),
        ({"model": "org/secnd"}, 404, "model", "there is no adapter org/secnd: there are org/second"),
        ({"lora": [{"id": 3, "scale": 1}]}, 400, "lora", "there is no adapter 3: there are first, org/second, asked"),
        ({"lora": [{"id": "frist"}]}, 400, "lora", "there is no adapter frist: there are first"),
        ({"model": "first", "lora": [{"id": 0}]}, 400, "lora", "model and lora both choose adapters"),
        ({"lora": [{"id": 0}, {"id": "asked"}]}, 400, "lora", "is chosen alone"),
        ({"lora": [{"id": 0, "scale": 1e9}]}, 400, "lora.0.scale", "less than or equal"),
        ({"lora": [{}]}, 400, "lora.0.id", ""),
    ],
)
def test_what_cannot_be_chosen(server: Server, body: dict[str, Any], status: int, param: str, says: str) -> None:
    error = server.error(status, "/completion", {**ASKED, **body})
    assert str(error["param"]).startswith(param) and says in str(error["message"]), error


def test_the_cache_keeps_texts_apart(server: Server) -> None:
    def usage(name: str) -> dict[str, Any]:
        told: dict[str, Any] = post(server, "/v1/completions", prompt=PROMPT, max_tokens=4, temperature=0, model=name)
        cache: dict[str, Any] = told["usage"]["cache"]
        return cache

    n = usage("org/second")["processed"]
    assert n > 8
    again, other = usage("org/second"), usage("first")
    assert again["reused"] == n
    assert other["reused"] == 0 and "another adapter, or none, has read it up to token" in other["reason"]
    assert usage("first")["reused"] == n


def test_an_activated_adapter_reads_from_its_invocation_on(server: Server) -> None:
    tokenizer = server.model.tokenizer
    ids = tokenizer.encode(PROMPT)
    start = len(ids) - N_INVOCATION
    wanted = expected(server, Applied.of({2: 1.0}, start))
    base = content(server, lora=BASE)
    assert wanted != base
    server.service.call(server.model.cache.clear).result()  # type: ignore[union-attr]
    assert content(server, model="asked") == wanted
    # continues the base's text, which ends before the invocation
    server.service.call(server.model.cache.clear).result()  # type: ignore[union-attr]
    beginning = {"prompt": ids[:start], "n_predict": 1, "lora": BASE}
    post(server, "/completion", **beginning)
    answer = post(server, "/completion", **ASKED, model="asked")
    assert answer["content"].strip() == wanted and answer["timings"]["cache_n"] == start
    # without the invocation it is the base
    other = {"prompt": "The state", "n_predict": 8, "temperature": 0}
    plain = post(server, "/completion", **other, lora=BASE)
    answer = post(server, "/completion", **other, model="asked")
    assert answer["content"] == plain["content"] and answer["generation_settings"]["lora"] == []


def test_embeddings_have_the_adapter_of_their_model(server: Server) -> None:
    def vector(**body: Any) -> Any:
        return post(server, "/v1/embeddings", input=PROMPT, **body)["data"][0]["embedding"]

    default, own = vector(), vector(model="org/second")
    assert default != own and vector(model="tiny:first") == default and vector(model="tiny") == default
    server.http.post("/lora-adapters", json=[{"id": 1}])
    assert vector() == own
    server.error(400, "/v1/embeddings", {"input": PROMPT, "model": "asked"})
