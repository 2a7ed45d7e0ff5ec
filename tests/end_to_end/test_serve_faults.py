"""Each side path fails at every call, and every request is answered. Faults in steps cost only those steps' answers."""

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_chat import thinking_template
from http_server import WAIT, Server, serving
from injected import Injection

from hybrid import infer
from hybrid.cli.serve import cache_usage
from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.request_log import Record, RequestLog
from hybrid.cli.serve.timings import ServerTimings
from hybrid.infer import LoadedModel, LoadOptions, faults
from hybrid.infer.answers.asking import message_ends
from hybrid.infer.answers.asking.ledger import Ledger
from hybrid.infer.answers.batch import batcher
from hybrid.infer.answers.batch.changed_header import ChangedHeaders
from hybrid.infer.answers.batch.figures import Figures
from hybrid.infer.answers.batch.planning import Plans
from hybrid.infer.answers.batch.reuse import Reasons
from hybrid.infer.answers.batch.service import Service
from hybrid.infer.answers.chat.dialect import Dialect
from hybrid.infer.memory.given_up import GivenUp
from hybrid.infer.memory.pins import Pins

pytestmark = pytest.mark.exhaustive

INFER = Path(infer.__file__).parent
QUESTION = {"role": "user", "content": "What is a state space model?"}
GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 12}
# object and name of a function that raises, and its side path
FAILING: list[tuple[object, str, str]] = [
    (Reasons, "_look", "the reasons why prompts are read"),
    (ChangedHeaders, "seen", "the notes on parts that change with every request"),
    (Figures, "passed", "the figures of the batch"),
    (Figures, "ended", "the figures of the batch"),
    (Plans, "learn", "the costs of steps"),
    (Plans, "_guess_text", "guesses of what answers say next"),
    (batcher, "marks", "what prompts have in common"),
    (batcher, "is_being_read", "what prompts have in common"),
    (batcher, "kept", "where the prompt cache has an answer"),
    (GivenUp, "_add", "what the prompt cache has given up"),
    (GivenUp, "_last", "what the prompt cache has given up"),
    (Ledger, "_find", "the ledger of drawn answers"),
    (Ledger, "_note_answer", "the ledger of drawn answers"),
    (message_ends, "_ends", "where messages end"),
    (ServerTimings, "_of", "the timings of answers"),
    (ServerTimings, "_as_json", "the timings of answers"),
    (cache_usage, "_cache_usage", "usage.cache of answers"),
    (Record, "closed", "the log of requests"),
    (Pins, "nbytes", "the figures of the prompt cache"),
    (Dialect, "rendered_with", "how the template writes an answer that comes back"),
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALLS = {"tools": [TOOL], "tool_choice": "required", "thinking_budget_tokens": 3}


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=4, checkpoint_budget=4 << 20) as loaded:
        yield loaded


def served(model: LoadedModel, log: Callable[[RequestLog], None]) -> AbstractContextManager[Server]:
    """A server whose template supports calls and thoughts."""
    return serving(model, maker=Maker(model, thinking_template(), 6), log=log)


def completion(server: Server, prompt: str, **more: object) -> str:
    response = server.http.post("/v1/completions", json={"prompt": prompt, **GREEDY, **more})
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def streamed(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    """The parsed events of a stream."""
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def answers(server: Server) -> list[str]:
    """The answers to requests of every kind. Some texts change near their beginning; the cache is too small for all."""
    usage = {"stream_options": {"include_usage": True}, "timings_per_token": True, "return_progress": True}
    chat = {"messages": [QUESTION], **GREEDY}
    whole = server.http.post("/v1/chat/completions", json=chat).json()
    parts = streamed(server, "/v1/chat/completions", {**chat, **usage})
    asked = {"messages": [QUESTION], "max_tokens": 12, "temperature": 0}
    message = server.http.post("/v1/messages", json=asked).json()
    said = [json.dumps(whole["choices"][0]["message"]), json.dumps(message["content"])]
    said.append(json.dumps([part["choices"][0]["delta"] for part in parts if part["choices"]]))
    called = server.http.post("/v1/chat/completions", json={**chat, "max_tokens": 90, **CALLS})
    assert called.status_code == 200, called.text
    said.append(json.dumps([call["function"] for call in called.json()["choices"][0]["message"]["tool_calls"]]))
    tail = "Then the machine reads a file, and it says what it has found. " * 8
    said += [
        completion(server, f"At {hour} o'clock, {name} came. {tail}") for name in ("Ada", "Bo") for hour in range(4)
    ]
    said += [completion(server, f"{word} " * 300) for word in ("one", "two", "three", "four")]
    assert server.http.get("/metrics").status_code == server.http.get("/health").status_code == 200
    assert streamed(server, "/completion", {"prompt": "A file", "n_predict": 4})[-1]["stop"] is True
    return said


@pytest.fixture(scope="module")
def usual(model: LoadedModel) -> list[str]:
    """The answers without faults."""
    with served(model, lambda entry: None) as server:
        return answers(server)


def together() -> list[list[tuple[object, str, str]]]:
    """All entries of FAILING in two sets; each set has at most one failure per side path."""
    first = {failing[2]: failing for failing in reversed(FAILING)}
    first.pop("the notes on parts that change with every request")  # derived from the reasons, which fail
    return [list(first.values()), [failing for failing in FAILING if failing not in first.values()]]


@pytest.mark.faults
@pytest.mark.parametrize(
    "failing",
    [
        *(pytest.param(several, id="together") for several in together()),
        *(pytest.param([one], id=one[1], marks=pytest.mark.matrix) for one in FAILING),
    ],
)
def test_side_paths_that_fail_end_no_answer(
    failing: list[tuple[object, str, str]], model: LoadedModel, usual: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    before = faults.listen(lambda message, error: told.append(f"{message}: {faults.fault_text(error)}"))

    def fail(*_: object, **__: object) -> object:
        raise RuntimeError("something broke")

    assert model.cache is not None
    model.cache.clear()
    for owner, name, _ in failing:
        monkeypatch.setattr(owner, name, fail)
    entries: list[RequestLog] = []
    try:
        with served(model, entries.append) as server:
            assert answers(server) == usual
            assert server.service.is_open and server.service.batcher.n_faults == 0
            metrics = server.http.get("/metrics").text
    finally:
        faults.listen(before)
    for owner, _, path in failing:
        side, of_it = faults.SidePath.all[path], [message for message in told if path in message]
        assert side.n_faults >= 1, path
        assert of_it[0].startswith(f"a fault in {path}: answers go on without it: RuntimeError")
        assert len(of_it) == 1 + side.is_off, "it is told once, and when it is switched off"
        assert f'{{reason="{path.replace(" ", "_")}"}} {side.n_faults}' in metrics or owner is Pins


N_STREAMS = 8
N_INJECTIONS = int(os.environ.get("INJECTIONS", "12"))


def stream_body(number: int) -> tuple[str, dict[str, Any]]:
    """Route and body of stream `number`."""
    drawn = {"temperature": 0.7, "seed": number, "max_tokens": 8 + number}
    if number % 4 == 0:
        form = {"response_format": {"type": "json_object"}} if number else {}
        return "/v1/chat/completions", {"messages": [QUESTION], **drawn, **form}
    more = {"logprobs": 1} if number == 2 else {"stop": ["."]} if number == 3 else {}
    return "/v1/completions", {
        "prompt": f"{'The state of a machine is what it keeps. ' * number}{number}",
        **drawn,
        **more,
    }


def heard(server: Server, number: int) -> tuple[str, int]:
    """The text of a stream, and the code of the error that ends it (0: none)."""
    said, code = "", 0
    for event in streamed(server, *stream_body(number)):
        if "error" in event:
            code = event["error"]["code"]
            assert "a fault of the program has ended this answer" in event["error"]["message"]
            assert "injected" not in event["error"]["message"]
        for choice in event.get("choices", ()):
            said += json.dumps([choice.get("text"), choice.get("delta"), choice.get("logprobs")])
    return said, code


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # injected while a generator closes
def test_steps_that_fail_beside_eight_streams(files: dict[str, Path]) -> None:
    """At N_INJECTIONS random calls of any function of infer. Unaffected streams say the same as without faults."""
    told: list[str] = []
    before = faults.listen(lambda message, error: told.append(message))
    rng = random.Random(3)
    n_lost = n_met = 0  # rounds in which a fault was raised
    options = LoadOptions(n_ctx=1024, n_ubatch=256, n_seq_max=N_STREAMS, checkpoint_budget=8 << 20)
    with LoadedModel.load(files["q8_0"], options) as model, ThreadPoolExecutor(N_STREAMS) as pool:
        service = Service(model, N_STREAMS)
        service.clock = itertools.count(0, 100).__next__  # each fault counts as in a minute of its own
        with serving(model, service=service) as server:
            want = [heard(server, number) for number in range(N_STREAMS)]
            n_calls = 0  # calls in the last round without a fault; a round's number depends on which streams meet
            for i in range(-2, 8 * N_INJECTIONS):
                if n_met == N_INJECTIONS:
                    break
                injection = Injection(rng.randrange(1, n_calls) if i >= 0 else 0, INFER, but=("faults.py",))
                service.call(injection.start).result(WAIT)
                got = list(pool.map(partial(heard, server), range(N_STREAMS)))
                service.call(injection.stop).result(WAIT)
                assert server.http.get("/health").status_code == 200 and service.is_open, injection.place
                for number, (said, code) in enumerate(got):
                    assert (code == 500 and want[number][0].startswith(said)) or (said, code) == want[number], (
                        f"{injection.place}: stream {number} said {said!r}"
                    )
                n_met += bool(injection.place)
                n_calls = n_calls if injection.place else injection.n_calls
                n_lost += sum(code == 500 for _, code in got)
                for path in faults.SidePath.all.values():
                    path.n_faults = 0  # so no side path is switched off
            metrics = server.http.get("/metrics").text
        assert model.n_free == N_STREAMS
    faults.listen(before)
    print(f"{n_met} of {N_INJECTIONS} faults, {n_lost} of {N_INJECTIONS * N_STREAMS} answers lost")
    assert n_met == N_INJECTIONS
    assert f"hybrid:step_faults_total {service.batcher.n_faults}" in metrics
