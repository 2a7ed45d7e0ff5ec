"""POST /page/costs: it refuses bad requests, changes nothing, and gives priority to running answers."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_server import WAIT, Server, serving, until
from scripted_chat import TOOLS, WITH_THOUGHTS, Script, post, scripted, served

from hybrid.cli.serve.page import costs as route
from hybrid.cli.serve.request_log import RequestLog
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import Saver, open_store

pytestmark = pytest.mark.exhaustive

ASKED = [{"role": "user", "content": "What is a state space model? " * 20}]
# a template that refuses an assistant's message at the beginning
STRICT = (
    "{% if messages[0].role == 'assistant' %}{{ raise_exception('an answer to nothing') }}{% endif %}"
    "{{ bos_token }}{% for m in messages %}<|bom|><|{{ m.role }}|> {{ m.content }}<|eom|>{% endfor %}"
    "{% if add_generation_prompt %}<|bom|><|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=2048, n_seq_max=5, checkpoint_budget=64 << 20) as loaded:
        yield loaded


@pytest.fixture
def server(model: LoadedModel) -> Iterator[Server]:
    """A server with an empty cache."""
    assert model.cache is not None
    model.cache.clear()
    with closing(served(model, STRICT)) as server:
        yield server


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted(monkeypatch) as script:
        yield script


def costs(server: Server, *conversations: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = post(server, "/page/costs", conversations=conversations)["costs"]
    return found


def chat(server: Server, messages: Any, **more: Any) -> Any:
    return post(server, "/v1/chat/completions", messages=messages, max_tokens=4, temperature=0, **more)


def test_what_was_read_costs_nothing_more(server: Server) -> None:
    before = costs(server, {"messages": ASKED})[0]
    assert before["reused"] == 0 and before["read"] == before["tokens"] > 100
    answer = chat(server, ASKED)["choices"][0]["message"]
    after, onward, other = costs(
        server,
        {"messages": ASKED},
        {"messages": [*ASKED, answer, {"role": "user", "content": "And?"}]},
        {"messages": [{"role": "user", "content": "Something else"}]},
    )
    assert after == {"tokens": before["tokens"], "reused": before["tokens"], "read": 0}
    assert onward["reused"] >= before["tokens"] and 0 < onward["read"] < 20
    assert other["reused"] <= 2 < other["read"]
    assert costs(server) == []


def test_one_refusal_is_that_one_s(server: Server) -> None:
    """The error has the chat completion's message, and the other conversations get their costs."""
    wrong: list[dict[str, Any]] = [
        {"messages": [{"role": "assistant", "content": "Yes"}], "continue_final_message": False},
        {"messages": [{"role": "user", "content": "long " * 4000}]},
        {"messages": ASKED, "chat_template_kwargs": {"messages": []}},
        {"messages": ASKED, "tools": [{"type": "function"}]},
        {"messages": [*ASKED, {"role": "assistant"}, {"role": "assistant"}]},
    ]
    told = costs(server, {"messages": ASKED}, *wrong, {"messages": ASKED})
    assert told[0] == told[-1] and "tokens" in told[0]
    for body, cost in zip(wrong, told[1:-1], strict=True):
        response = server.http.post("/v1/chat/completions", json=body)
        assert cost == {"error": response.json()["error"]["message"]} and response.status_code == 400
    assert "an answer to nothing" in told[1]["error"] and "exceeds" in told[2]["error"]


def test_pictures_by_name(server: Server) -> None:
    """This model takes none; a name without a picture is a bad URL; odd bodies are refused as ever."""
    part = {"type": "image_url", "image_url": {"url": "picture:a"}}
    one = {"messages": [{"role": "user", "content": [part]}]}
    (told,) = post(server, "/page/costs", conversations=[one], pictures={"a": "data:image/png;base64,AAAA"})["costs"]
    assert "this model takes no pictures" in told["error"]
    for pictures in (["a"], {"a": 1}):
        assert server.error(400, "/page/costs", {"conversations": [one], "pictures": pictures})["param"]
    for odd in ([7], [{"messages": 7}], [{"messages": [7]}], [{"messages": [{"role": "user", "content": [7]}]}]):
        server.error(400, "/page/costs", {"conversations": odd, "pictures": {"a": "b"}})


def test_bodies_that_are_refused(server: Server, model: LoadedModel) -> None:
    one = {"messages": ASKED}
    assert "64" in str(server.error(400, "/page/costs", {"conversations": [one] * 65})["message"])
    error = server.error(400, "/page/costs", {"conversations": [one, {**one, "tools": 1}]})
    assert error["param"] == "conversations.1.tools"
    assert (
        server.error(400, "/page/costs", {"conversations": [{"messages": []}]})["param"] == "conversations.0.messages"
    )
    assert server.error(400, "/page/costs", {})["param"] == "conversations"
    assert len(costs(server, *[one] * 64)) == 64
    assert server.http.get("/page/costs").status_code == 405
    with serving(model, keys=("secret",)) as locked:
        assert locked.http.post("/page/costs", json={"conversations": []}).status_code == 401
    evil = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    assert server.http.post("/page/costs", content=b"{}", headers=evil).status_code == 403


def test_nothing_changes(server: Server, model: LoadedModel) -> None:
    for question in ("What is it?", "And what does it forget?"):
        chat(server, [{"role": "user", "content": question * 5}])
    cache, ledger = model.cache, server.served.maker.ledger
    assert cache is not None

    def state() -> Any:
        nodes = [(n.start, n.tokens.tolist(), n.used, n.seconds, sorted(n.checkpoints)) for n in cache.tree]
        points = [(p.position, p.used) for n in cache.tree for p in n.checkpoints.values()]
        figures = server.service.batcher.figures
        return cache.clock, cache.sizes(), nodes, points, [e.said for e in ledger._used], repr(figures)

    before = state()
    asked = {"role": "user", "content": "What is it?" * 5}
    told = costs(server, {"messages": [asked]}, {"messages": [asked, *ASKED]}, {"messages": ASKED, "tools": TOOLS})
    assert [cost["read"] > 0 for cost in told] == [False, True, True]
    assert state() == before


def test_what_is_on_disk_is_not_read(files: dict[str, Path], tmp_path: Path) -> None:
    """A restarted server: its memory is empty, and its stored answers are known."""

    def run(asks: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        with LoadedModel.load(files["q8_0"], n_ctx=2048, n_seq_max=4, checkpoint_budget=64 << 20) as model:
            store = open_store(model, tmp_path, 1 << 30, pytest.fail)
            store.files.list_all()
            server = Server(model, store=store)
            saver = Saver(server.service, store, {})
            try:
                told = costs(server, {"messages": ASKED})[0]
                usage = chat(server, ASKED)["usage"]
            finally:
                server.close()
                saver.close(60)
                store.folder.close()
            return told, usage

    cold, _ = run(True)
    warm, usage = run(False)
    assert cold["reused"] == 0 < warm["reused"] == usage["prompt_tokens_details"]["cached_tokens"]


def test_a_look_is_short(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work runs between lookups: a request with 64 long texts does not block sampling."""
    turns: list[str] = []

    def known(ids: Any, owner: bytes) -> int:
        turns.append("look")
        time.sleep(2 * route.LOOK_SECONDS)
        if len(turns) == 1:
            server.service.call(lambda: turns.append("other work"))
        return 0

    monkeypatch.setattr(server.service, "known", known)
    assert len(costs(server, *[{"messages": ASKED}] * 8)) == 8
    assert turns == ["look", "other work", *["look"] * 7]


def test_beside_an_answer_half_of_the_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an answer runs, one conversation is encoded at a time, whoever asks, then encoding pauses for the time it
    took."""
    spans: list[tuple[float, float]] = []

    def encoded(*_: Any) -> Any:
        begin = time.monotonic()
        time.sleep(0.05)
        spans.append((begin, time.monotonic()))
        return np.zeros(1, np.int32)

    monkeypatch.setattr(route, "encoded", encoded)
    monkeypatch.setattr(type(server.service), "n_jobs", property(lambda _: 1))
    asking = [threading.Thread(target=costs, args=(server, *[{"messages": ASKED}] * 2)) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(spans) == 4
    for (_, end), (begin, _) in pairwise(spans):
        assert begin - end >= 0.04


def test_a_page_that_hangs_up_is_no_fault(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cancels and repeats requests whenever something changes; only refused requests are logged."""
    lines: list[RequestLog] = []
    begun, go = threading.Event(), threading.Event()

    def encoded(*_: Any) -> Any:
        begun.set()
        go.wait(WAIT)
        return np.zeros(1, np.int32)

    monkeypatch.setattr(route, "encoded", encoded)
    with closing(served(model, STRICT, log=lines.append)) as server:
        body = json.dumps({"conversations": [{"messages": ASKED}] * 2}).encode()
        head = f"POST /page/costs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(server.listener.getsockname()) as raw:
            raw.sendall(head.encode() + body)
            assert begun.wait(WAIT)
        until(lambda: not server.server.server_state.connections)
        assert server.router.n_running == 1
        go.set()
        until(lambda: server.router.n_running == 0)
        server.error(400, "/page/costs", {"conversations": 3})
        until(lambda: lines)
    assert [(line.route, line.status) for line in lines] == [("/page/costs", 400)]


def test_thoughts_and_tools_change_the_price(model: LoadedModel, script: Script) -> None:
    with closing(served(model, WITH_THOUGHTS)) as server:
        ways: list[dict[str, Any]] = [
            {"messages": ASKED},
            {"messages": ASKED, "tools": TOOLS},
            {"messages": ASKED, "reasoning_effort": "none"},
            {"messages": ASKED, "add_generation_prompt": False},
        ]
        told = [cost["tokens"] for cost in costs(server, *ways)]
        assert len(set(told)) == 4
        for way, n in zip(ways, told, strict=True):
            counted = post(server, "/v1/chat/completions/input_tokens", **way)
            assert counted["input_tokens"] == n
