"""A server's limits for slow, misbehaving or foreign clients, and for long answers."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import pytest
from http_server import WAIT, Server, drawing_held, serving, until
from pydantic import ValidationError

from hybrid.cli.serve import connections, guards, request_jobs
from hybrid.cli.serve.app import ENDPOINTS
from hybrid.cli.serve.connections import Bounds
from hybrid.cli.serve.jobs import Maker
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

PROMPT = "State space models keep what they have read"
LONG = {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True}
CLOSE = "Connection: close\r\n"  # as urllib sends it
# one limit is short, the others do not matter
HEAD, BODY = Bounds(head_seconds=0.5, linger_seconds=0.5), Bounds(body_seconds=0.5, linger_seconds=0.5)
UNREAD = Bounds(unread_seconds=0.5)


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as loaded:
        yield loaded
        assert loaded.n_free == 4


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    with serving(model) as one:
        yield one


def request(server: Server, body: bytes, head: str = "") -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: {server.url[7:]}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode()
        + body
    )


def everything(raw: socket.socket) -> bytes:
    """Receive everything until the connection ends."""
    raw.settimeout(WAIT)
    said = b""
    while part := raw.recv(1 << 16):
        said += part
    return said


# --- time ---
def test_an_answer_that_takes_longer_than_timeout_ends(model: LoadedModel) -> None:
    with serving(model, timeout=0.3) as server:
        held = threading.Event()
        server.service.call(lambda: held.wait(WAIT))
        error = server.error(504, "/v1/completions", LONG)
        assert "the answer took more than the 0.3 s of --timeout" in str(error["message"])
        with server.http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
            assert response.status_code == 200
            lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        assert json.loads(lines[-1][6:])["error"]["code"] == 504, "the head of a stream is sent before its answer"
        held.set()
        until(lambda: server.service.n_jobs == 0)
        # eventually: on a busy machine 0.3 s may be too little for one token
        until(lambda: server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}).status_code == 200)


def test_what_does_not_come_in_time(model: LoadedModel) -> None:
    """Heads and bodies, also byte by byte: single bytes do not keep a connection open."""
    for bounds, starts in (
        (HEAD, (b"", b"GET /health HTTP/1.1\r\nHo", b"GET /health HTTP/1.1\r\nX: ")),
        (BODY, (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx",)),
    ):
        with serving(model, bounds=bounds) as server:
            address = server.listener.getsockname()
            for start in starts:
                with socket.create_connection(address) as raw:
                    raw.sendall(start)
                    said, says = everything(raw), b"head" if bounds is HEAD else b"body"
                assert said.startswith(b"HTTP/1.1 408 ") and b"the " + says in said and b"did not come within" in said
            with socket.create_connection(address) as raw, pytest.raises(OSError):
                raw.sendall(starts[-1])
                for _ in range(50 * WAIT):
                    raw.sendall(b"y")
                    time.sleep(0.02)
            until(lambda server=server: server.router.n_running == 0)
    # the same on a connection that has had an answer
    with serving(model, bounds=HEAD) as server, socket.create_connection(server.listener.getsockname()) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(1 << 16).startswith(b"HTTP/1.1 200")
        time.sleep(2 * HEAD.head_seconds)  # an idle connection may stay
        raw.sendall(b"GET /health HTTP/1.1\r\n")
        assert b"HTTP/1.1 408" in everything(raw)


def test_a_body_that_is_refused_early_is_not_read_for_ever(model: LoadedModel) -> None:
    with serving(model, bounds=BODY) as server, socket.create_connection(server.listener.getsockname()) as raw:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {guards.MOST_BODY + 1}\r\n\r\n"
        raw.sendall(head.encode() + b"x" * 1000)
        said = everything(raw)
        assert said.startswith(b"HTTP/1.1 413 ") and said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("head", ["", CLOSE, f"{CLOSE}Expect: 100-continue\r\n"])
def test_a_client_that_writes_all_before_it_reads(server: Server, head: str) -> None:
    """The refusal of its head or body, sent long before its last byte arrives, reaches it."""
    body = b"x" * (guards.MOST_BODY + (8 << 20))
    chunk = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))
    begin = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}".encode()
    for sent, status in (
        (request(server, body, head), 413),
        (begin + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40 + b"0\r\n\r\n", 413),
        (begin + b"X: " + b"a" * (4 << 20), 431),
    ):
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.settimeout(WAIT)
            raw.sendall(sent)
            said = everything(raw)
            assert said.startswith(b"HTTP/1.1 %d " % status) or b"\r\n\r\nHTTP/1.1 %d " % status in said, said[:200]
            assert b"connection: close" in said.lower() and said.endswith(b"}"), said
    until(lambda: server.router.n_running == 0)


def test_who_sends_without_end_is_cut_off(model: LoadedModel) -> None:
    """After the answer the client has `linger_seconds`, and may send `most_dropped` bytes."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{CLOSE}Content-Length: {1 << 40}\r\n\r\n".encode()
    for bounds in (Bounds(linger_seconds=0.2), Bounds(linger_seconds=WAIT, most_dropped=1 << 20)):
        with serving(model, bounds=bounds) as server, socket.create_connection(server.listener.getsockname()) as raw:
            raw.settimeout(WAIT)
            raw.sendall(head)
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
            with pytest.raises(OSError):
                while True:
                    raw.sendall(b"x" * (1 << 16))
            until(lambda server=server: not server.server.server_state.connections)
    # a lingering connection makes room for a new one
    with serving(model, bounds=Bounds(linger_seconds=WAIT, most_connections=1)) as server:
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.sendall(head)
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
            assert server.http.get("/health").status_code == 200
        # and does not delay the server's end
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.sendall(head)
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
            server.server.should_exit = True
            server.thread.join(WAIT)
            assert not server.thread.is_alive()


def test_an_error_of_ours_says_that_the_connection_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection does end: a client that keeps connections must not send its next request into a closed one."""
    monkeypatch.setattr(Maker, "jobs", lambda *_, **__: 1 / 0)
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/messages", BODIES["messages"])):
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.sendall(request(server, json.dumps(body).encode()).replace(b"/v1/completions", path.encode()))
            head, _, body = everything(raw).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 500 ") and b"\r\nconnection: close" in head.lower(), head
            assert json.loads(body)["error"]["message"] == "an error inside the server"


# --- work that a client chooses ---
def test_what_is_listed_of_tokens_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole answer, and in the queue for a client; a stream that is read may list any number."""
    monkeypatch.setattr("hybrid.cli.serve.streaming.MOST_LISTED", 300)
    monkeypatch.setattr(request_jobs, "MOST_LISTED", 300)
    some = {"prompt": PROMPT, "n_predict": 5, "ignore_eos": True, "n_probs": 50}
    listed = server.http.post("/completion", json=some).json()["completion_probabilities"]
    assert sum(1 + len(one["top_logprobs"]) for one in listed) == 255
    error = server.error(400, "/completion", {**some, "n_predict": 400})
    assert "lists more than 300 candidates of its tokens (n_probs" in str(error["message"])
    until(lambda: server.service.n_jobs == 0)
    streamed = {**some, "n_predict": 10, "stream": True, "speculate": False}
    with server.http.stream("POST", "/completion", json=streamed) as response:
        lines = [line for line in response.iter_lines() if "top_logprobs" in line]
    assert len(lines) == 10


def test_bodies_of_many_chunks(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests run between parts of a body, and the number of its chunks is limited."""
    monkeypatch.setattr(connections, "MOST_CHUNKS", 20_000)
    sizes: list[int] = []
    received = connections.Connection.data_received
    monkeypatch.setattr(
        connections.Connection, "data_received", lambda self, data: (sizes.append(len(data)), received(self, data))[1]
    )
    body = json.dumps({"content": "x" * 15_000}).encode()
    for n, status in ((15_000, b"200"), (25_000, b"413")):
        sent = body + b" " * (n - len(body))
        with socket.create_connection(server.listener.getsockname()) as raw:
            head = (
                b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            with suppress(ConnectionError):  # it is refused before it has arrived completely
                raw.sendall(head + b"".join(b"1\r\n%c\r\n" % byte for byte in sent) + b"0\r\n\r\n")
            with suppress(ConnectionError):
                assert raw.recv(1 << 16).startswith(b"HTTP/1.1 " + status)
    assert 0 < max(sizes) <= connections.MOST_RECEIVED
    assert server.http.get("/health").status_code == 200


def test_lists_of_a_client_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.cli.serve.conversations.MOST_MESSAGES", 8)
    monkeypatch.setattr("hybrid.cli.serve.llama_server.tokens.MOST_TOKENS", 8)
    messages = [{"role": "user", "content": "Hi"}] * 9
    for path, body in (
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 1}),
        ("/v1/responses", {"input": messages, "max_output_tokens": 1}),
        ("/apply-template", {"messages": messages}),
    ):
        assert server.error(400, path, body)["message"] == "9 messages, this server takes 8 at a time"
    assert server.error(413, "/detokenize", {"tokens": [5] * 9})["message"] == "9 tokens: expected 8 at most"
    assert server.http.post("/detokenize", json={"tokens": [5] * 8}).status_code == 200
    error = server.error(400, "/v1/completions", {"prompt": PROMPT, "stop": [f"{i}x" for i in range(100000)]})
    assert "stop: 100000 strings of" in str(error["message"]) and "expected at most 1024" in str(error["message"])


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_stops_reading_is_dropped(model: LoadedModel, stream: bool) -> None:
    """Its job is cancelled; in a stream before the answer is complete."""
    with serving(model, bounds=UNREAD) as server:
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(server.listener.getsockname())
            body = {**LONG, "logprobs": 20, "stream": stream}
            with drawing_held(server, n_tokens=400) if stream else nullcontext():
                raw.sendall(request(server, json.dumps(body).encode()))
                until(lambda: server.service.n_jobs)
                jobs = list(server.service._jobs)
                until(lambda: not server.server.server_state.connections)
            until(lambda: jobs[0].done)
            if stream:
                assert jobs[0].result.reason == "interrupt" and len(jobs[0].result.ids) < 450


def test_an_answer_does_not_end_in_what_the_system_keeps_for_a_client(model: LoadedModel) -> None:
    """A client that reads nothing loses its slot within the limits, however much of its answer the system would
    buffer."""
    with serving(model, bounds=UNREAD) as server:
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(server.listener.getsockname())
            with drawing_held(server, n_tokens=400):
                raw.sendall(request(server, json.dumps({**LONG, "logprobs": 20, "n": 3, "stream": True}).encode()))
                until(lambda: server.service.n_jobs == 3)
                jobs = list(server.service._jobs)
                until(lambda: not server.server.server_state.connections)
            until(lambda: all(job.done for job in jobs))
        assert "interrupt" in {job.result.reason for job in jobs}
        assert server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}).status_code == 200


def test_streams_that_nobody_reads_keep_nobody_waiting(model: LoadedModel) -> None:
    """They generate a limited number of tokens ahead, free their slots, and continue when they are read."""
    body = {**LONG, "temperature": 0}
    with serving(model, bounds=Bounds(unread_seconds=WAIT)) as server, ExitStack() as stack:
        want = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        raws = [stack.enter_context(socket.socket()) for _ in range(5)]
        for raw in raws:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(server.listener.getsockname())
            raw.sendall(request(server, json.dumps({**body, "stream": True}).encode(), CLOSE))
        until(lambda: sum(job.paused for job in list(server.service._jobs)) == 5)
        jobs = list(server.service._jobs)
        assert server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 3}).status_code == 200
        until(lambda: not server.service.batcher.busy)
        assert not any(job.done for job in jobs), "another answer did not wait for theirs"
        assert max(len(job.result.ids) for job in jobs) < 450
        for raw in raws:
            lines = [line[6:] for line in everything(raw).splitlines() if line.startswith(b"data: {")]
            choices = [choice for line in lines for choice in json.loads(line)["choices"]]
            assert "".join(choice["text"] for choice in choices) == want
        assert all(job.done and len(job.result.ids) == 450 for job in jobs)


def test_what_waits_for_a_slow_reader_is_bounded(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is interrupted if it cannot be set aside; other answers just pause."""
    monkeypatch.setattr(request_jobs, "MOST_UNREAD", 20)
    with serving(model) as server:
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(server.listener.getsockname())
            raw.sendall(request(server, json.dumps({**LONG, "logprobs": 20, "stream": True}).encode()))
            until(lambda: server.service.n_jobs)
            (job,) = server.service._jobs
            until(lambda: job.done)
            assert job.result.reason == "interrupt" and len(job.result.ids) < 450
            # it reads after all: the part that was sent, then the reason for the end
            raw.settimeout(WAIT)
            said = b""
            while b"reads too slowly: 20 tokens waited" not in said:
                part = raw.recv(1 << 16)
                assert part, said[-500:]
                said += part
        until(lambda: server.router.n_running == 0)


# --- size and number ---
def test_heads_and_what_is_not_http(server: Server) -> None:
    for sent, status, says in (
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", 431, b"larger than 16384 bytes"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000, 431, b"larger than 16384 bytes"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + CLOSE.encode() + b"X: " + b"a" * 50_000 + b"\r\n\r\n", 431, b"16384"),
        (b"GET /health?" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: x\r\n" + CLOSE.encode() + b"\r\n", 431, b"16384"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, b"Host"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"Host"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", 400, b""),
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, b""),
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, b""),
    ):
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.sendall(sent)
            head, _, body = everything(raw).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), head
            assert json.loads(body)["error"]["code"] == status and says in body, body
    assert server.http.get("/health").status_code == 200


def test_there_are_so_many_connections(model: LoadedModel) -> None:
    """An idle connection is closed for a new one; without an idle one: 503. A full queue leaves room for refusals."""
    assert Bounds.of(6).most_connections > 6
    with serving(model, bounds=Bounds(most_connections=3)) as server:
        address = server.listener.getsockname()
        raws = [socket.create_connection(address) for _ in range(3)]
        until(lambda: len(server.server.server_state.connections) == 3)
        with socket.create_connection(address) as raw:
            said = everything(raw)
            assert said.startswith(b"HTTP/1.1 503 ") and b"3 connections at a time" in said
        raws[1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        while not said.endswith(b"}"):
            said += raws[1].recv(1 << 16)
        assert said.startswith(b"HTTP/1.1 200")
        assert server.http.get("/health").status_code == 200
        assert everything(raws[1]) == b"", "it was idle"
        for raw in raws:
            raw.close()


def test_silent_connections_make_room_for_those_that_ask(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent ones have not sent anything. One timer serves all."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
    with serving(model, bounds=Bounds(most_connections=20, head_seconds=WAIT)) as server:
        address = server.listener.getsockname()
        raws = [socket.create_connection(address) for _ in range(20)]
        until(lambda: len(server.server.server_state.connections) == 20)
        loop = next(iter(server.server.server_state.connections)).loop  # type: ignore[union-attr]
        timers = [timer for timer in loop._scheduled if "_look" in repr(timer) and not timer.cancelled()]  # type: ignore[attr-defined]
        assert len(timers) == 1
        assert [server.http.get("/health").status_code for _ in range(3)] == [200] * 3
        assert everything(raws[0]) == b"", "the one that was silent for longest"
        assert len(server.server.server_state.connections) <= 20
        looks: list[object] = []
        is_idle = connections.Connection._is_idle
        monkeypatch.setattr(
            connections.Connection, "_is_idle", lambda self, now: (looks.append(self), is_idle(self, now))[1]
        )
        raws += [socket.create_connection(address) for _ in range(100)]
        until(lambda: len(looks) >= 80 and len(server.server.server_state.connections) <= 20)
        assert len(looks) <= 100, "each looks at the one that was used longest ago, not at all of them"
        for raw in raws:
            raw.close()


def test_bodies_together(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MOST_BODIES", 30_000)
    with serving(model) as server:
        held = [socket.create_connection(server.listener.getsockname()) for _ in range(3)]
        for raw in held:
            raw.sendall(request(server, b"x" * 10_000)[:-1])
        until(lambda: server.router.n_running == 3)
        small = {"prompt": "x", "max_tokens": 1}  # it is answered until the others' bytes have all arrived
        until(lambda: server.http.post("/v1/completions", json=small).status_code == 429)
        assert "too large together" in str(server.error(429, "/v1/completions", small)["message"])
        for raw in held:
            raw.close()
        until(lambda: server.router.n_running == 0)
        assert server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}).status_code == 200


def test_texts_that_no_context_holds_are_not_encoded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding a text of 30 MB takes gigabytes."""
    long = "x" * (1 << 21)
    monkeypatch.setattr(type(server.model.tokenizer), "_encode_text", lambda *_: pytest.fail("it was encoded"))
    messages = [{"role": "user", "content": long}]
    bodies = ({"prompt": long}, {"prompt": [long, "a"]}, {"messages": messages})
    for path, body in zip(("completions", "completions", "chat/completions"), bodies, strict=True):
        error = server.error(400, f"/v1/{path}", body)
        assert "characters, a context of 512 tokens 131072 at most" in str(error["message"])
    assert "expected 1048576 at most" in str(server.error(413, "/tokenize", {"content": long})["message"])


def test_a_body_that_is_wrong_all_over(server: Server) -> None:
    """The number of errors is limited: each of 300 000 would take a thousand bytes, and streams would wait
    meanwhile."""
    n = 20_000
    for endpoint in ENDPOINTS:
        for name in endpoint.schema.model_fields if endpoint.schema is not None else ():
            for value in ([1] * n + ["x", {}], [1.5] * n, [{}] * n, [["x"]] * n):
                try:
                    endpoint.schema.model_validate({name: value})
                except ValidationError as error:
                    assert error.error_count() < 30, (endpoint.paths, name)
    wrong = server.error(400, "/v1/completions", {str(i): 1 for i in range(n)})
    assert f"has {n} fields, expected at most 16384" in str(wrong["message"])
    many = {"messages": [{"role": "user", "content": "x", "y": 1}] * (1 << 18)}
    assert "more than 131072 objects" in str(server.error(400, "/v1/chat/completions", many)["message"])
    unknown = {"prompt": "x", **{str(i): 1 for i in range(n // 10)}}
    warnings = server.http.post("/v1/completions", json={**unknown, "max_tokens": 1}).json()["usage"]["warnings"]
    assert len(warnings) == 21 and warnings[19] == "19 is ignored: this server has no such field"
    assert "prompt" in str(server.error(400, "/v1/completions", {"prompt": [1] * n + ["x"]})["message"])


BODIES: dict[str, dict[str, object]] = {  # valid bodies, by the fields that their schemas need
    "messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "prompt": {"prompt": "a", "max_tokens": 1},
    "input": {"input": "a", "max_output_tokens": 1},
    "tokens": {"tokens": [1]},
    "conversations": {"conversations": [{"messages": [{"role": "user", "content": "a"}]}]},
}


NUMBERS = [given for value in (2**70, -(2**70), 10**400) for given in (value, [value], [[value, 1.0]], {"1": value})]


@pytest.mark.parametrize("several", [1, pytest.param(len(NUMBERS), marks=pytest.mark.matrix)])
def test_numbers_that_nothing_holds(several: int, server: Server) -> None:
    """In every field that may be a number: an error of the client, or the same as with a number within the limits.
    several: how many of the numbers each field gets, in turn."""
    numbers = itertools.cycle(NUMBERS)
    for endpoint in (each for each in ENDPOINTS if each.schema is not None):
        fields = endpoint.schema.model_fields if endpoint.schema is not None else {}
        body = next((each for name, each in BODIES.items() if name in fields and fields[name].is_required()), {})
        for name in fields:
            for given in itertools.islice(numbers, several):
                response = server.http.post(endpoint.paths[0], json={**body, name: given})
                assert response.status_code != 500, (endpoint.paths[0], name, given, response.text)
    assert server.http.get("/health").status_code == 200 and server.service.fault is None


def test_settings_that_leave_no_token(server: Server) -> None:
    """The error is the client's, in the status and in the last event of a stream."""
    n_vocab = server.model.n_vocab
    never: dict[str, object] = {"logit_bias": {str(i): False for i in range(n_vocab)}}
    all_but_one = {"logit_bias": {str(i): False for i in range(n_vocab - 1)}, "grammar": 'root ::= "yes" | "no"'}
    for path, body in (("/v1/completions", BODIES["prompt"]), ("/v1/chat/completions", BODIES["messages"])):
        for more, says in ((never, "logit_bias forbids every token"), (all_but_one, "fits the grammar here")):
            error = server.error(400, path, {**body, **more})
            assert says in str(error["message"]) and error["type"] == "invalid_request_error"
            events = server.http.post(path, json={**body, **more, "stream": True}).text.splitlines()
            last = json.loads([line for line in events if line.startswith("data: {")][-1][6:])
            assert last["error"]["code"] == 400 and says in last["error"]["message"]
    assert server.http.post("/v1/completions", json=BODIES["prompt"]).status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_body(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(server.listener.getsockname()) as raw:
        raw.sendall(request(server, b"x" * 1000)[:-10])
        until(lambda: server.router.n_running == 1)
    until(lambda: server.router.n_running == 0)
    server.http.get("/health")
    assert not caplog.records, "nothing is wrong with the server"


# --- methods and pages ---
def test_methods(server: Server) -> None:
    for method in ("HEAD", "OPTIONS"):
        answer = server.http.request(method, "/health")
        assert (answer.status_code, answer.content[:1]) == ((200, b"") if method == "HEAD" else (405, b"{"))
        answer = server.http.request(method, "/v1/completions")
        assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_pages_of_others_are_refused(server: Server) -> None:
    """Whatever name they use for this server, and whatever content type they claim."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1})
    port = server.listener.getsockname()[1]
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "[::1",
        "",
        "localhost.evil.example",
    ):
        answer = server.http.post("/v1/completions", content=body, headers={"Host": host})
        assert answer.status_code == 403 and "is not a name of this server" in answer.text, host
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "127.0.0.1:1"):
        assert server.http.post("/v1/completions", content=body, headers={"Host": host}).status_code == 200
    for origin in ("https://evil.example", "null", f"http://localhost:{port}", f"https://127.0.0.1:{port}", ""):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        answer = server.http.post("/v1/completions", content=body, headers=headers)
        assert answer.status_code == 403 and "--cors" in answer.text, origin
    # sent by curl -d, and by a page of this server
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {"Origin": server.url}):
        assert server.http.post("/v1/completions", content=body, headers=headers).status_code == 200


def test_pages_that_may_ask(model: LoadedModel) -> None:
    page = {"Origin": "https://page.example"}
    asked = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    body = {"prompt": PROMPT, "max_tokens": 1}
    for cors in (("https://page.example",), ("*",)):
        with serving(model, cors=cors) as server:
            assert server.http.options("/v1/completions", headers=asked).status_code == 200
            answer = server.http.post("/v1/completions", json=body, headers=page)
            assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] in (*cors, "*")
            answer = server.http.post("/v1/completions", json=body, headers={"Origin": "https://other.example"})
            assert answer.status_code == (200 if cors == ("*",) else 403)
    with serving(model, keys=("k",)) as server:  # with a key any origin may ask
        headers = {"Authorization": "Bearer k", "Origin": "app://notes", "Host": "models.example"}
        assert server.http.post("/v1/completions", json=body, headers=headers).status_code == 200
