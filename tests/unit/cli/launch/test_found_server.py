"""The model of a running server."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from hybrid.cli.launch.found_server import FoundServer, found_server
from hybrid.cli.options import running_server as module
from hybrid.cli.options.running_server import server_url
from hybrid.quant.ggml.errors import HybridError, UsageError

MODEL = {
    "id": "tiny",
    "capabilities": ["completion"],
    "architecture": {"input_modalities": ["text"]},
    "meta": {"n_ctx": 512},
}
SEEING = {**MODEL, "id": "eyes", "architecture": {"input_modalities": ["text", "image"]}}
Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Starts a server that answers every request with a status and a body; returns its URL."""
    started: list[HTTPServer] = []

    def start(status: int, body: Any, key: str | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                right = self.path == "/v1/models" and self.headers.get("Authorization") == (key and f"Bearer {key}")
                self.send_response(status if right else 401)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        started.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_models(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # no proxy reaches this machine
    url = answering(200, {"data": [MODEL, SEEING]})
    assert found_server(url, None, None) == FoundServer(url, "tiny", 512, None, False)
    assert found_server(url, "eyes", None) == FoundServer(url, "eyes", 512, None, True)
    with pytest.raises(HybridError, match=r" has no model other\. It has: tiny, eyes\.$"):
        found_server(url, "other", None)
    asleep = {**MODEL, "id": "asleep", "state": "asleep", "meta": {"n_ctx_train": 9}, "aliases": ["other", "third"]}
    vectors = {**MODEL, "id": "vectors", "capabilities": ["embedding"], "state": "loaded"}
    many = answering(200, {"data": [vectors, asleep, {**SEEING, "state": "loaded"}]})
    assert found_server(many, None, None).model == "eyes"
    assert found_server(many, "third", None) == FoundServer(many, "asleep", None, None, False)
    asleep_only = answering(200, {"data": [vectors, asleep]})
    assert found_server(asleep_only, None, None).model == "asleep"
    other = answering(200, {"data": [{"id": "theirs"}]}, "secret")
    found = found_server(other, None, "secret")
    assert found == FoundServer(other, "theirs", None, "secret", False) and "secret" not in repr(found)
    assert (found.token, FoundServer(url, "tiny").token, found.openai) == ("secret", "none", f"{other}/v1")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, {}, "/v1/models: status 404. Is it a server of `hybrid serve`?"),
        (200, b"<html>", "/v1/models: expected a list of models, found something else."),
        (200, {"data": []}, "found something else"),
        (200, [], "found something else"),
        (200, {"data": [5]}, "found something else"),
        (200, {"data": [{**MODEL, "capabilities": ["embedding"]}]}, "tiny makes embeddings only."),
    ],
)
def test_other_answers(answering: Answering, status: int, body: Any, says: str) -> None:
    with pytest.raises(HybridError) as error:
        found_server(answering(status, body), None, None)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_keys(answering: Answering) -> None:
    url = answering(200, {"data": [MODEL]}, "secret")
    with pytest.raises(HybridError, match=r"asks for a key\. Give a file with its key \(--api-key-file\)\.$"):
        found_server(url, None, None)
    with pytest.raises(HybridError, match="does not take this key"):
        found_server(url, None, "wrong")


def test_nobody_answers(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HybridError) as error:
        found_server("http://127.0.0.1:9", None, None)
    assert str(error.value) == (
        "no server answers at http://127.0.0.1:9 (Connection refused). Start one: `hybrid serve MODEL --port 9`."
    )
    monkeypatch.setattr(module, "SECONDS", 0.01)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # accepts, and says nothing
    try:
        with pytest.raises(HybridError, match="no answer in time"):
            found_server(f"http://127.0.0.1:{server.server_port}", None, None)
    finally:
        server.server_close()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("127.0.0.1:8080", "http://127.0.0.1:8080"), ("http://box:5/", "http://box:5"), ("https://box/v1/", "https://box"),
     ("[::1]:80", "http://[::1]:80"), ("localhost", "http://localhost")],
)  # fmt: skip
def test_urls(text: str, wanted: str) -> None:
    assert server_url(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "ftp://box", "http://", "http://box:99999", "http://box/page", "http://me:x@box", "a b://"]
)
def test_what_is_no_url(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--url .*: expected the address of a server"):
        server_url(text)
