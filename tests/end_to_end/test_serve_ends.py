"""The end of a server, its log, and invalid command lines, each refused in one line."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from http_server import WAIT, Server, started, until

from hybrid.cli.main import run
from hybrid.cli.options.server_options import read_keys
from hybrid.cli.serve.listening import is_local, listen, own_hosts, url
from hybrid.cli.serve.log import Log, LogKind
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

PROMPT = "State space models keep what they have read"
LONG = {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as loaded:
        yield loaded
        assert loaded.n_free == 4


def process(program: Path, *args: object, code: str = "") -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """`hybrid serve` and its output until it answers; runs `code` first."""
    return started([program, "serve", *args], TESTS_FIRST=code)


def address_of(said: str) -> str:
    return next(word for word in said.split() if "/v1," in word).removesuffix("/v1,")


def streamed(url: str, heard: list[str], body: dict[str, object]) -> None:
    """Append the events of a stream to `heard`; runs in a thread."""
    with (
        httpx.Client(base_url=url, timeout=WAIT) as client,
        client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("data: "):
                heard.append(line[6:])


SLOW = """
import time
from hybrid.infer.answers.batch.batcher import Batcher
step = Batcher.step
Batcher.step = lambda self: (time.sleep(0.01), step(self))[1]
"""


@pytest.mark.parametrize("hurried", [False, True])
def test_a_server_that_ends_takes_nothing_new(hurried: bool, program: Path, files: dict[str, Path]) -> None:
    """Running answers get the grace period, /health reports the end; a second signal ends the grace."""
    grace = 600 if hurried else 0.5
    with process(program, files["q8_0"], "--port", 0, "--grace", grace, code=SLOW) as (running, said):
        url, heard = address_of(said), list[str]()
        with httpx.Client(base_url=url, timeout=WAIT) as client:
            assert client.get("/health").status_code == 200
            body = {"prompt": PROMPT, "max_tokens": 3000, "ignore_eos": True}
            reader = threading.Thread(target=streamed, args=(url, heard, body))
            reader.start()
            until(lambda: heard)
            os.kill(running.pid, signal.SIGTERM)
            if hurried:
                until(lambda: client.get("/health").status_code == 503)
                answer = client.post("/v1/completions", json={"prompt": PROMPT})
                assert answer.status_code == 503 and "the server ends" in answer.json()["error"]["message"]
                os.kill(running.pid, signal.SIGTERM)
            assert running.wait(WAIT) == 0
        reader.join(WAIT)
        error = json.loads(heard[-1])["error"]
        assert (error["code"], error["message"]) == (503, "the answer was interrupted: the server ends")
        assert running.stderr is not None and "Traceback" not in running.stderr.read()


def test_an_answer_may_end_in_the_grace(program: Path, files: dict[str, Path]) -> None:
    with process(program, files["q8_0"], "--port", 0, "--grace", 600) as (running, said):
        heard = list[str]()
        body: dict[str, object] = {"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True}
        reader = threading.Thread(target=streamed, args=(address_of(said), heard, body))
        reader.start()
        until(lambda: heard)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(WAIT) == 0
        reader.join(WAIT)
        assert heard[-1] == "[DONE]" and json.loads(heard[-2])["choices"][0]["finish_reason"] == "length"


FAULT = """
from hybrid.infer.answers.batch.batcher import Batcher
step = Batcher.step
def fails(self):
    done = step(self)
    if self.n_steps > 5:
        raise ValueError("something\\nbroke")
    return done
Batcher.step = fails
"""


def test_faults_of_the_model_end_the_process(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    with process(program, files["q8_0"], "--port", 0, code=FAULT) as (running, said):
        heard = list[str]()
        streamed(address_of(said), heard, {"prompt": PROMPT, "max_tokens": 3000, "ignore_eos": True})
        assert json.loads(heard[-1])["error"]["code"] == 500 and "something" not in heard[-1]
        assert running.wait(WAIT) == 1
        assert running.stderr is not None
        *notes, last = running.stderr.read().splitlines()
        assert last.startswith("error: the model has failed, and nothing more can be answered")
        assert "ValueError: something broke" in last
        told = [note for note in notes if note.startswith("a fault between two steps")]
        assert len(told) == 3 and sum(note.startswith("Traceback") for note in notes) == 3


def test_a_fault_is_said_by_health_and_to_who_waits(model: LoadedModel) -> None:
    server = Server(model)
    try:
        closed = threading.Event()
        server.service.on_closed = closed.set
        held = threading.Event()
        server.service.call(lambda: held.wait(WAIT))
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{server.url}/v1/completions", json=LONG, timeout=WAIT))
        )
        asking.start()
        until(lambda: server.service.n_jobs == 1)
        server.service.batcher.step = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        held.set()
        asking.join(WAIT)
        assert closed.wait(WAIT)
        assert answers[0].status_code == 500 and "the model has failed" in answers[0].text
        assert "division" not in answers[0].text
        assert server.http.get("/health").status_code == 503
        server.error(503, "/v1/completions", {"prompt": PROMPT})
    finally:
        server.close()


def test_kill_minus_nine_hinders_no_next_start(program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """The next start replaces the left socket, but not one on which a process listens."""
    path = tmp_path / "socket"
    body = {"prompt": PROMPT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with (
        process(program, files["q8_0"], "--unix", path) as (running, _),
        httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=WAIT, base_url="http://x") as client,
        client.stream("POST", "/v1/completions", json=body) as response,
    ):
        next(response.iter_lines())
        running.kill()
        running.wait(WAIT)
    assert path.exists()
    with process(program, files["q8_0"], "--unix", path):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=WAIT) as client:
            assert client.get("http://x/health").status_code == 200
        assert run(["serve", str(files["q8_0"]), "--unix", str(path)]) == 2
        assert path.exists()


# --- log ---
def test_the_log_is_json_for_programs(program: Path, files: dict[str, Path]) -> None:
    """Every line on stdout is an object; a fault includes its traceback."""
    command = [program, "serve", files["q8_0"], "--port", "0", "--log", "json"]
    env = {**os.environ, "TESTS_FIRST": FAULT}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert running.stdout is not None
        start = json.loads(running.stdout.readline())
        assert start["event"] == "start" and start["parallel"] == 8 and start["time"].endswith("+00:00")
        streamed(start["url"], [], {"prompt": PROMPT, "max_tokens": 3000, "ignore_eos": True})
        out, err = running.communicate(timeout=WAIT)
    finally:
        running.kill()
        running.communicate()
    lines = [json.loads(line) for line in out.splitlines()]
    events = {line["event"]: line for line in lines}
    assert events["request"]["route"] == "/v1/completions" and events["request"]["finish"] == ["interrupt"]
    assert "ValueError: something\nbroke" in events["fault"]["traceback"]
    assert "end" in events and running.returncode == 1
    assert [line.startswith("error: the model has failed") for line in err.splitlines()] == [True]


def test_a_fault_of_a_request_is_logged_whole(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("uvicorn.error")
    for kind in LogKind:
        with Log(kind).records():
            try:
                raise ValueError("one\nline")
            except ValueError:
                logger.exception("Exception in ASGI application\n")
            try:
                raise asyncio.CancelledError
            except asyncio.CancelledError:
                logger.exception("Exception in ASGI application\n")
            Log(kind).say("request", "asked\x1b[31m", n=1)
        out, err = capsys.readouterr()
        if kind is LogKind.JSON:
            fault, said = (json.loads(line) for line in out.splitlines())
            assert not err and fault["traceback"].count("ValueError: one\nline") == 1
            assert said == {"time": said["time"], "event": "request", "message": "asked?[31m", "n": 1}
        else:
            assert not out and err.count("Traceback") == 1 and ("asked" in err) is (kind is LogKind.PLAIN)


# --- the command line ---
def test_one_line_each(files: dict[str, Path], refused: Callable[..., str], tmp_path: Path) -> None:
    model = files["q8_0"]
    plain = tmp_path / "file"
    plain.write_text("no socket")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be listened on: something" in refused("serve", model, "--port", port, code=2)
    for more, says in (
        (["--unix", plain], "something listens there already"),
        (["--unix", tmp_path / ("long" * 40)], "cannot be listened on"),
        (["--host", "no.such.host.invalid"], "cannot be listened on"),
        (["--host", "192.0.2.1"], "cannot be listened on"),
        (["--api-key-file", tmp_path], "is a folder"),
        (["--parallel", "257"], "256"),
        (["--timeout", "-1"], "timeout"),
        (("--think", "on"), "the model has no thoughts: its chat template does not know any"),
        (("--think-budget", 9), "the model has no thoughts"),
        (("--think", "off", "--think-budget", 9), "--think off and --think-budget 9 are both given"),
    ):
        assert says in refused("serve", model, "--port", 0, *more, code=2), more


def test_keys_that_everybody_can_read_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n two \n")
    for mode, noted in ((0o644, True), (0o640, False)):
        path.chmod(mode)
        assert read_keys(path) == ("one", "two")
        assert ("chmod 600" in capsys.readouterr().err) is noted


def test_what_a_server_is_called(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0, None) as listener:
        port = listener.getsockname()[1]
        assert url(listener, "localhost") == f"http://localhost:{port}" and is_local(listener)
        assert own_hosts(listener, "My.Host") == {"localhost", "127.0.0.1", "::1", "my.host"}
    with listen("0.0.0.0", 0, None) as listener:
        assert not is_local(listener) and own_hosts(listener, "0.0.0.0") is None
    with listen("", 0, tmp_path / "s") as listener:
        assert url(listener, "") == f"unix:{tmp_path / 's'}" and is_local(listener)
        assert own_hosts(listener, "") is None, "no browser reaches it"


@pytest.mark.parametrize(("host", "shown"), [("::1", "http://[::1]:"), ("0.0.0.0", "http://0.0.0.0:")])
def test_addresses(host: str, shown: str, program: Path, files: dict[str, Path], tmp_path: Path) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with process(program, files["q8_0"], "--host", host, "--port", 0, "--alias", "mine") as (_, said):
        url = address_of(said)
        assert url.startswith(shown) and ("warning: everybody" in said) is (host == "0.0.0.0")
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/v1/models", timeout=WAIT).json()["data"][0]["id"] == "mine"


def test_answers_do_not_wait_for_the_clients_system() -> None:
    """Headers and body leave in two packets; with Nagle's algorithm the second waits 40 ms on a kept connection."""
    with listen("127.0.0.1", 0, None) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
