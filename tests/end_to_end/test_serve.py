"""`hybrid serve` over a real socket, as clients use it."""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from http_server import WAIT, Server, started, until

from hybrid.cli.main import run
from hybrid.cli.options.server_options import GRACE
from hybrid.cli.serve import guards
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams

PROMPT = "State space models keep what they have read"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as model:
        server = Server(model)
        yield server
        server.close()
        assert model.n_free == 4


def alone(model: LoadedModel, ids: list[int], n: int, seed: int) -> str:
    """The answer of `generate` to the prompt alone."""
    seq = model.sequence()
    answer = generate(seq, ids, Sampler(SamplingParams(temp=0.9, seed=seed), model.n_vocab), max_tokens=n)
    for _ in answer:
        pass
    seq.close(remember=False)
    return answer.result.text


def test_completions_by_openais_client(server: Server) -> None:
    create, asked = server.openai.completions.create, {"model": "tiny", "prompt": PROMPT, "max_tokens": 12}
    whole = create(**asked, temperature=0.9, seed=7, logprobs=2)
    ids = server.model.tokenizer.encode(PROMPT)
    want = server.service.call(lambda: alone(server.model, ids, 12, 7)).result(WAIT)
    choice = whole.choices[0]
    assert choice.text == want and choice.finish_reason == "length"
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(ids), 12)
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    assert len(choice.logprobs.token_logprobs) == 12 and max(choice.logprobs.token_logprobs) <= 0
    assert choice.logprobs.top_logprobs is not None and all(
        2 <= len(top) <= 3 for top in choice.logprobs.top_logprobs
    ), "the likeliest two, and the one drawn"
    events = list(create(**asked, temperature=0.9, seed=7, stream=True, stream_options={"include_usage": True}))
    assert "".join(e.choices[0].text for e in events if e.choices) == want
    assert events[-1].usage is not None and events[-1].usage.prompt_tokens_details is not None
    assert events[-1].usage.prompt_tokens_details.cached_tokens == len(ids), "read once"
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "length"


def test_chat_by_openais_client(server: Server) -> None:
    create = server.openai.chat.completions.create
    whole = create(  # fields without effect are accepted
        user="me",
        store=True,
        metadata={"a": "b"},
        service_tier="auto",
        prompt_cache_key="k",
        verbosity="low",
        model="tiny",
        messages=HELLO,
        max_tokens=10,
        temperature=0,
        logprobs=True,
        top_logprobs=3,
    )  # type: ignore[arg-type]
    text = whole.choices[0].message.content
    assert text and whole.choices[0].message.role == "assistant" and whole.id.startswith("chatcmpl-")
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert all(token.token == token.top_logprobs[0].token for token in logprobs.content), "greedy: the likeliest"
    events = list(create(model="tiny", messages=HELLO, max_tokens=10, temperature=0, stream=True))  # type: ignore[arg-type]
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(e.choices[0].delta.content or "" for e in events) == text
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert create(model="tiny", messages=parts, max_tokens=10, temperature=0).choices[0].message.content == text  # type: ignore[arg-type]


def test_several_prompts_and_answers(server: Server) -> None:
    asked = {"model": "tiny", "max_tokens": 6, "temperature": 0.9, "seed": 3}
    many = server.openai.completions.create(**asked, prompt=[PROMPT, "Memory"], n=2)  # type: ignore[call-overload]
    single = [
        server.openai.completions.create(**{**asked, "seed": seed}, prompt=prompt).choices[0].text  # type: ignore[call-overload]
        for prompt in (PROMPT, "Memory")
        for seed in (3, 4)
    ]
    assert [choice.text for choice in many.choices] == single
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    ids = server.model.tokenizer.encode(PROMPT)
    assert server.openai.completions.create(**asked, prompt=ids).choices[0].text == single[0]  # type: ignore[call-overload]


def test_what_is_refused_is_named(server: Server) -> None:
    path = "/v1/completions"
    for body, says, param in (
        ({"prompt": "a", "top_p": 7}, "top_p = 7.0, expected a number above 0", "top_p"),
        ({"prompt": 5}, "prompt: Input should be", "prompt"),
        ({}, "prompt: Field required", "prompt"),
        (
            {"prompt": "a", "temperature": "hot"},
            "temperature: Input should be a valid number; found 'hot'",
            "temperature",
        ),
        ({"prompt": "a", "n": 1000}, "n: Input should be less than or equal to 64", "n"),
        ({"prompt": []}, "found an empty list", "prompt"),
        ({"prompt": ["a"] * 7}, "7 prompts, this server takes 6 at a time", "prompt"),
        ({"prompt": "a", "n": 7}, "asks for 7 answers, this server takes 6 at a time", "n"),
        ({"prompt": [999999]}, "token 999999 is outside this model's vocabulary", None),
        ({"prompt": "word " * 600}, "exceeds the available context size of 512", None),
        ({"prompt": "a", "logit_bias": {"dog": "much"}}, "found 'much'", "logit_bias.dog"),
        ({"prompt": "a", "stream": 5}, "found 5", "stream"),
        (b'{\n"a": bad}', "the body is not JSON: Expecting value (line 2, column 6)", None),
        (b'{"a": NaN}', "the body is not JSON: NaN is no number of JSON", None),
        (b'{"a": "\xff"}', "the body is not JSON: byte 7 is not UTF-8", None),
        (b"", "the body is empty", None),
        (b"[" * 100_000, "the body is not JSON: too many lists or objects inside each other", None),
        ([], "Input should be", None),
    ):
        error = server.error(400, path, body)
        assert says in str(error["message"]) and error["param"] == param, error
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    error = server.error(400, "/v1/chat/completions", {"messages": image})
    assert error["param"] == "messages.0.content.0" and "this model takes no pictures" in str(error["message"])
    assert "Field required" in str(server.error(400, "/v1/chat/completions", {})["message"])
    for wrong, says in {
        "/nothing": "there is no route /nothing. GET /openapi.json lists all routes.",
        "/v1/chat/completion": "there is no route /v1/chat/completion. Use /v1/chat/completions.",
        "/v1/engines/": "there is no route /v1/engines/. Use GET /v1/models.",
    }.items():
        assert (error := server.http.post(wrong, json={}).json()["error"])["code"] == 404
        assert error["message"] == says
    wrong = server.http.delete("/v1/models")
    assert wrong.status_code == 405
    assert wrong.json()["error"]["message"] == f"/v1/models takes {wrong.headers['allow']}; found DELETE"
    other = server.http.post("/v1/conversations/c1")
    assert other.status_code == 405 and set(other.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


def test_numbers_and_nulls_as_clients_write_them(server: Server) -> None:
    """16.0 counts as an integer, 1 as a number, null as absent; NaN is not JSON."""
    plain = {"prompt": "State", "max_tokens": 3, "temperature": 0}
    text = server.http.post("/v1/completions", json=plain).json()["choices"]
    nothing = dict.fromkeys(("n", "stop", "stream", "logit_bias", "ignore_eos", "stream_options", "seed", "tools"))
    for more in ({"max_tokens": 3.0, "top_k": 1.0, "temperature": 1}, nothing):
        answer = server.http.post("/v1/completions", json={**plain, **more})
        assert answer.status_code == 200 and answer.json()["choices"] == text, answer.text
    server.error(400, "/v1/completions", {"prompt": "a", "max_tokens": 2.5})
    server.error(400, "/v1/completions", {"prompt": "a", "max_tokens": True})
    server.error(400, "/v1/completions", b'{"prompt": "a", "temperature": NaN}')
    server.error(400, "/v1/completions", b'{"prompt": "a", "temperature": 1e999}')
    server.error(400, "/v1/completions", {"prompt": None})
    half = server.http.post("/tokenize", content=b'{"content": "a\\ud83d b"}').json()["tokens"]
    assert half == server.http.post("/tokenize", json={"content": "a\ufffd b"}).json()["tokens"]


def test_about_the_server(server: Server) -> None:
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.openai.models.list().data[0].id == server.openai.models.retrieve("tiny").id == "tiny"
    assert server.http.get("/v1/models/other").status_code == 404
    tokens = server.http.post("/tokenize", json={"content": PROMPT}).json()["tokens"]
    assert server.http.post("/detokenize", json={"tokens": tokens}).json()["content"].strip() == PROMPT
    asked = server.http.post("/tokenize", json={"prompt": PROMPT}).json()
    assert asked["tokens"] == server.model.tokenizer.encode(PROMPT) and asked["max_model_len"] == 512
    pieces = server.http.post("/tokenize", json={"content": PROMPT, "with_pieces": True}).json()["tokens"]
    assert [entry["id"] for entry in pieces] == tokens
    server.error(400, "/tokenize", {})
    server.error(400, "/detokenize", {"tokens": [99999]})
    assert server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).status_code == 200
    lines = server.http.get("/metrics").text.splitlines()
    values = dict(line.split() for line in lines if not line.startswith("#"))
    assert int(values["llamacpp:tokens_predicted_total"]) > 0 and values["llamacpp:requests_deferred"] == "0"


def test_a_client_that_leaves_frees_its_place(server: Server) -> None:
    """During a stream, and while a whole answer is generated."""
    body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        assert next(response.iter_lines()).startswith("data: ")
    with socket.create_connection(server.listener.getsockname()) as raw:
        content = json.dumps({**body, "stream": False, "prompt": "Another prompt"}).encode()
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content) + content
        )
        until(lambda: server.service.n_jobs)
    until(lambda: not server.service.n_jobs)


def test_a_full_queue_says_when_to_come_back(server: Server) -> None:
    held = threading.Event()
    server.service.call(lambda: held.wait(WAIT))  # blocks all answers
    first = threading.Thread(
        target=server.http.post, args=("/v1/completions",), kwargs={"json": {"prompt": [PROMPT] * 5, "max_tokens": 4}}
    )
    first.start()
    until(lambda: server.service.n_jobs == 5)
    with httpx.Client(base_url=server.url, timeout=WAIT) as other:
        response = other.post("/v1/completions", json={"prompt": [PROMPT] * 2, "max_tokens": 4})
        assert response.status_code == 429 and int(response.headers["retry-after"]) > 0
        held.set()
        first.join(WAIT)
        until(lambda: not server.service.n_jobs)  # the accepted part of the refused request is cancelled
        assert other.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).status_code == 200


def test_keys_sizes_and_origins(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MOST_BODY", 10_000)
    with LoadedModel.load(files["q8_0"], n_ctx=128, n_seq_max=4) as model:
        server = Server(model, keys=("secret", "other"), cors=("https://page.example",))
        try:
            assert server.http.get("/health").status_code == 200
            assert server.http.get("/v1/models").status_code == 401
            for given in ({"Authorization": "Bearer other"}, {"x-api-key": "secret"}):
                assert server.http.get("/v1/models", headers=given).status_code == 200
            assert server.http.get("/v1/models", headers={"Authorization": "Bearer secre"}).status_code == 401
            key = {"Authorization": "Bearer secret"}
            server.error(413, "/v1/completions", {"prompt": "x" * 20_000}, **key)
            chunks = (b"x" * 1000 for _ in range(20))  # sent without a length
            assert server.http.post("/v1/completions", content=chunks, headers=key).status_code == 413
            answer = server.http.get("/v1/models", headers={**key, "Origin": "https://page.example"})
            assert answer.headers["access-control-allow-origin"] == "https://page.example"
            asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
            assert server.http.options("/v1/completions", headers=asked).status_code == 200, "before a page may post"
            answer = server.http.get("/v1/models", headers={**key, "Origin": "https://other.example"})
            assert "access-control-allow-origin" not in answer.headers
        finally:
            server.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it(number: int, program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """During a stream: the answer gets some time, and the server exits with 0."""
    command = [sys.executable, "-m", "hybrid.cli"] if number == signal.SIGTERM else [program]  # one is not forked
    with started([*command, "serve", files["q8_0"], "--unix", tmp_path / "socket"]) as (process, _):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "socket")), timeout=WAIT) as client:
            body = {"prompt": PROMPT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
            with client.stream("POST", "http://x/v1/completions", json=body) as response:
                next(response.iter_lines())
                os.kill(process.pid, number)
        assert process.wait(WAIT + GRACE) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read() and not (tmp_path / "socket").exists()


def test_what_cannot_be_served(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for more, says in (
            (["--port", port], f"127.0.0.1:{port} cannot be listened on"),
            (["--unix", str(tmp_path)], "cannot be listened on"),
            (["--api-key-file", str(tmp_path / "missing")], "missing cannot be read"),
            (["--api-key-file", str(empty)], "holds no key"),
        ):
            assert run(["serve", str(files["q8_0"]), *more]) == 2
            assert says in capsys.readouterr().err
    assert run(["serve", str(tmp_path / "none.gguf"), "--port", "0"]) == 2
    assert "no such file" in capsys.readouterr().err
