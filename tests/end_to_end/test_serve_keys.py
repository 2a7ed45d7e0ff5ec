"""Two keys on one server: neither learns the other's texts from any byte of any route, nor from counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT, Server, drawing_held, until

from hybrid.cli.serve.client import owner_of
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import open_store
from hybrid.infer.memory.pins import PARTY_BYTES

pytestmark = pytest.mark.exhaustive

MINE, OTHERS = ({"Authorization": f"Bearer {key}"} for key in ("first key", "second key"))
WORDS = ("zyzzyvas", "quokkabell", "oxbowlake")  # words that only the first key sends
SECRET = " ".join(WORDS)
COUNTS = ("cached_tokens", "reused", "cache_read_input_tokens", "cache_n", "drawn")
# routes that generate, and routes that only read a conversation; each gets its own text
DRAWING = (
    "/v1/completions",
    "/completion",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
)
LOOKING = (
    "/page/costs",
    "/v1/messages/count_tokens",
    "/v1/chat/completions/input_tokens",
    "/v1/responses/input_tokens",
    "/apply-template",
    "/tokenize",
    "/v1/embeddings",
    "/embedding",
    "/detokenize",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/infill",
    "/v1/rerank",
    "/v1/score",
    "/classify",
    "/embed",
    "/similarity",
)
HARMLESS = {
    ("post", "/models/load"): {"model": "tiny"},
    ("post", "/models/unload"): {"model": "tiny"},
    ("post", "/lora-adapters"): [],
}


def beginning(path: str) -> str:
    """A prefix that both keys send to the path, word for word."""
    return f"A memo by Dana of what was said of {path} in the meeting of this week, which nobody else has seen yet:"


def body(path: str, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "/v1/completions": {"prompt": text, "max_tokens": 2},
        "/completion": {"prompt": text, "n_predict": 2},
        "/v1/chat/completions": {"messages": messages, "max_tokens": 2},
        "/v1/responses": {"input": text, "max_output_tokens": 2},
        "/v1/responses/input_tokens": {"input": text},
        "/v1/messages": {"messages": messages, "max_tokens": 2},
        "/api/chat": {"messages": messages, "stream": False, "options": {"num_predict": 2}},
        "/api/generate": {"prompt": text, "stream": False, "options": {"num_predict": 2}},
        "/api/embed": {"input": text},
        "/api/embeddings": {"prompt": text},
        "/api/show": {"model": "tiny"},
        "/page/costs": {"conversations": [{"messages": messages}]},
        "/tokenize": {"content": text},
        "/v1/embeddings": {"input": text},
        "/embedding": {"content": text},
        "/detokenize": {"tokens": [5, 6, 7]},
        "/infill": {"input_prefix": text, "input_suffix": text},
        "/v1/rerank": {"query": text, "documents": [text]},
        "/classify": {"input": text},
        "/embed": {"inputs": text},
        "/similarity": {"inputs": {"source_sentence": text, "sentences": [text]}},
        "/v1/score": {"text_1": text, "text_2": text},
    }.get(path, {"messages": messages})


def counts(value: Any) -> list[tuple[str, int]]:
    """All counts of reused tokens within an answer."""
    if isinstance(value, list):
        return [found for each in value for found in counts(each)]
    if not isinstance(value, dict):
        return []
    own = [(name, n) for name, n in value.items() if name in COUNTS and isinstance(n, int)]
    return own + counts([*value.values()])


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=5, checkpoint_budget=64 << 20) as loaded:
        yield loaded


@pytest.fixture
def server(model: LoadedModel, tmp_path: Path) -> Iterator[Server]:
    assert model.cache is not None
    model.cache.clear()
    store = open_store(model, tmp_path, 1 << 30, print)
    store.files.list_all()
    server = Server(model, keys=("first key", "second key"), store=store)
    yield server
    server.close()
    store.folder.close()


def post(server: Server, path: str, given: dict[str, Any], key: dict[str, str]) -> Any:
    response = server.http.post(path, json=given, headers=key)
    assert response.status_code == 200, response.text
    return response.json()


def told(server: Server) -> None:
    """Send the first key's secrets to every route; keep one, and save a slot."""
    for path in DRAWING + LOOKING:
        route = path if path in DRAWING else "/v1/chat/completions"
        for text in (beginning(path), f"{beginning(path)} {SECRET}"):
            post(server, route, body(route, text), MINE)
    kept = {**body("/v1/completions", f"{SECRET} is kept"), "cache": {"keep": True}, "id_slot": 0}
    assert post(server, "/v1/completions", kept, MINE)["usage"]["cache"]["kept"]
    assert post(server, "/slots/0?action=save", {"filename": "mine.bin"}, MINE)["n_saved"] > 0


def requests(server: Server) -> Iterator[tuple[str, str, Any]]:
    """(method, path, body) for every route of the document, with bodies and IDs that could reveal something. Slots come
    first, before the second key has a text in one."""
    paths = server.http.get("/openapi.json", headers=OTHERS).json()["paths"]
    for path, methods in sorted(paths.items(), key=lambda one: one[0] != "/slots/{id}"):
        for method in methods:
            if path == "/slots/{id}":
                for at in range(12):
                    action = ("save", "restore", "erase")[at // 4]
                    yield method, f"/slots/{at % 4}?action={action}", {"filename": "mine.bin"}
            elif path == "/v1/conversations/{id}":
                for name in range(200):
                    yield method, f"/v1/conversations/c{name}", None
            elif path.startswith("/v1/responses/{id}"):
                mine = owner_of(b"first key", "")
                for name in [one.id for one in server.served.settings.stored._held.values() if one.owner == mine]:
                    yield method, path.replace("{id}", name), None
            elif path == "/v1/models/{name}":
                yield method, "/v1/models/tiny", None
            elif (method, path) in HARMLESS:
                yield method, path, HARMLESS[method, path]
            elif method == "post":
                yield method, path, body(path, beginning(path))
                assert path in DRAWING + LOOKING, "a new route: say here what it takes"
            else:
                yield method, path, None


def ids_of(server: Server) -> str:
    """The secret's tokens, comma-separated without spaces."""
    return ",".join(map(str, server.model.tokenizer.encode(f" {SECRET}", add_special=False)))


def check(response: httpx.Response, ids: str) -> None:
    """The response has no part of the secret, as text or tokens, and counts no reused tokens."""
    said = response.content.decode().lower() + str(response.headers).lower()
    assert not [word for word in WORDS if word in said], (response.request.url, said[:2000])
    assert ids not in said.replace(" ", "")
    if "json" in response.headers.get("content-type", ""):
        found = [count for count in counts(response.json()) if count[1]]
        assert not found, (response.request.url, found)


def test_no_route_tells_one_key_what_another_said(server: Server) -> None:
    told(server)
    ids = ids_of(server)
    own = server.http.get("/v1/conversations?limit=1000", headers=MINE)
    assert any(word in own.text for word in WORDS), "the search finds it where it is"
    stream = {**body("/v1/completions", f"{SECRET} goes on"), "max_tokens": 20, "ignore_eos": True, "stream": True}
    statuses = []
    stream["dry_sequence_breakers"] = [SECRET]
    with (
        drawing_held(server, n_tokens=1),
        server.http.stream("POST", "/v1/completions", json=stream, headers=MINE),
    ):
        until(lambda: WORDS[0] in server.http.get("/slots", headers=MINE).text)  # its own stream's settings
        check(server.http.get("/slots", headers=OTHERS), ids)
    until(lambda: server.service.n_jobs == 0)
    for method, path, given in requests(server):
        response = server.http.request(method, path, json=given, headers=OTHERS)
        check(response, ids)
        statuses.append((method, path, response.status_code))
    of_slots = [status for _, path, status in statuses if path.startswith("/slots/")]
    assert of_slots == [400] * 8 + [200] * 4, "nothing to save or restore"
    assert all(status == 404 for method, path, status in statuses if path in _names(own.json()))
    of_responses = [status for _, path, status in statuses if path.startswith("/v1/responses/resp_")]
    assert of_responses == [404] * 8, "four routes, two responses"
    # everything of the first key is still there
    after = server.http.get("/v1/conversations?limit=1000", headers=MINE).json()
    assert _names(own.json()) <= _names(after) and any(one["kept"] for one in after["data"])
    assert post(server, "/slots/1?action=restore", {"filename": "mine.bin"}, MINE)["n_restored"] > 0
    for path in DRAWING:
        found = dict(counts(post(server, path, body(path, beginning(path)), MINE)))
        assert any(found.values()), "what is the key's own is found"


def _names(listed: Any) -> set[str]:
    return {f"/v1/conversations/{one['id']}" for one in listed["data"]}


def test_a_listing_has_what_the_key_began(server: Server) -> None:
    told(server)
    text = beginning("/v1/completions")
    first = post(server, "/v1/completions", body("/v1/completions", text), OTHERS)["usage"]["cache"]
    listed = server.http.get("/v1/conversations", headers=OTHERS).json()
    assert [one["id"] for one in listed["data"]] == [first["conversation"]] and listed["n_conversations"] == 1
    assert listed["kept_bytes"] == 0 and listed["tokens"] == listed["data"][0]["tokens"]
    assert server.http.delete(f"/v1/conversations/{first['conversation']}", headers=OTHERS).status_code == 200
    again = post(server, "/v1/completions", body("/v1/completions", text), MINE)["usage"]["cache"]
    assert again["reused"] > 0, "the first key has the same text still"


def test_a_salt_separates_too(server: Server) -> None:
    given = body("/v1/completions", beginning("/v1/completions"))
    salted = {**given, "cache_salt": "one"}
    post(server, "/v1/completions", given, MINE)
    for asked, reused in ((salted, False), (salted, True), ({**given, "cache_salt": "two"}, False), (given, True)):
        assert (post(server, "/v1/completions", asked, MINE)["usage"]["cache"]["reused"] > 0) is reused, asked
    for query, some in (("", True), ("?cache_salt=one", True), ("?cache_salt=other", False)):
        assert bool(server.http.get(f"/v1/conversations{query}", headers=MINE).json()["data"]) is some
    chat = {**body("/v1/messages", beginning("/v1/messages")), "cache_salt": "one"}
    assert post(server, "/v1/messages", chat, MINE)["usage"]["cache_read_input_tokens"] == 0
    assert post(server, "/v1/messages", chat, MINE)["usage"]["cache_read_input_tokens"] > 0
    answer = {**body("/v1/responses", beginning("/v1/messages")), "cache_salt": "two"}
    assert post(server, "/v1/responses", answer, MINE)["usage"]["cache"]["reused"] == 0
    asked = body("/v1/chat/completions", beginning("/v1/chat/completions"))
    post(server, "/v1/chat/completions", {**asked, "cache_salt": "three"}, MINE)
    looked = {"conversations": [{"messages": asked["messages"]}]}
    for salt, some in ((None, False), ("three", True), ("four", False)):
        (cost,) = post(server, "/page/costs", {**looked, "cache_salt": salt}, MINE)["costs"]
        assert (cost["reused"] > 0) is some, salt


def test_owners_of_one_key_share_its_room(server: Server) -> None:
    cache = server.model.cache
    assert cache is not None and cache.pins.n_parties == 2
    mine, salted, others = (owner_of(key, salt)[:PARTY_BYTES] for key, salt in ((b"a", ""), (b"a", "b"), (b"c", "b")))
    assert mine == salted != others
    assert len({owner_of(key, salt) for key in (b"", b"a", b"b") for salt in ("", "a", "b")}) == 9


def test_answers_are_their_own(server: Server) -> None:
    """An answer to one key, sent by another, is encoded by the tokenizer: its sampled tokens are not used."""
    messages = [{"role": "user", "content": "Who was there?"}]
    sampled = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 11, "max_tokens": 24}
    first = post(server, "/v1/chat/completions", {"messages": messages, **sampled}, MINE)
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    route = "/v1/chat/completions/input_tokens"
    n_mine, n_others = (post(server, route, {"messages": messages}, key)["input_tokens"] for key in (MINE, OTHERS))
    assert n_mine != n_others
    assert (
        post(server, "/v1/chat/completions", {"messages": messages, **sampled}, OTHERS)["usage"]["cache"]["drawn"] == 0
    )
    assert post(server, "/v1/chat/completions", {"messages": messages, **sampled}, MINE)["usage"]["cache"]["drawn"] > 0


def test_keys_may_share(model: LoadedModel) -> None:
    assert model.cache is not None
    model.cache.clear()
    server = Server(model, keys=("first key", "second key"), shared=True)
    try:
        given = {**body("/v1/completions", beginning("/v1/completions")), "seed": 1}  # the same answer twice
        post(server, "/v1/completions", given, MINE)
        assert post(server, "/v1/completions", given, OTHERS)["usage"]["cache"]["processed"] == 0
        listed = server.http.get("/v1/conversations", headers=OTHERS, timeout=WAIT)
        assert json.loads(listed.content)["n_conversations"] == 1
    finally:
        server.close()
