"""What `hybrid serve` reports about reuse: usage, log, /metrics, /v1/conversations; and keeping on demand."""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT, Server, drawing_held, until

from hybrid.cli import console
from hybrid.cli.serve import cache_contents
from hybrid.cli.serve.log import Log, LogKind
from hybrid.cli.serve.request_log import LONGEST, RequestLog
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.reuse import CODES

pytestmark = pytest.mark.exhaustive

BUDGET = 32 << 20
TEXT = "State space models keep what they have read in a state of one size, whatever they have read before it"


class Logging(Server):
    """A server that writes its log into a list."""

    def __init__(self, model: LoadedModel) -> None:
        self.lines: list[RequestLog] = []
        super().__init__(model, log=self.lines.append)

    def complete(self, prompt: object, **more: object) -> dict[str, Any]:
        body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, **more}
        response = self.http.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        value: dict[str, Any] = response.json()
        return value

    def metrics(self) -> dict[tuple[str, str], float]:
        return parsed(self.http.get("/metrics").text)

    def conversations(self) -> dict[str, dict[str, Any]]:
        listed = self.http.get("/v1/conversations", params={"limit": 1000}).json()
        assert listed["object"] == "list" and not listed["has_more"]
        return {one["id"]: one for one in listed["data"]}

    def delete(self, conversation: str) -> httpx.Response:
        return self.http.delete(f"/v1/conversations/{conversation}")


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=4, checkpoint_budget=BUDGET) as model:
        yield model


@pytest.fixture
def server(model: LoadedModel) -> Iterator[Logging]:
    """A server with an empty cache."""
    assert model.cache is not None
    model.cache.clear()
    server = Logging(model)
    yield server
    server.close()
    assert model.n_free == 4


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Parse Prometheus' text format, version 0.0.4: (name, labels) -> value. Checks that each name has one HELP and one
    TYPE before its values, that its lines are together, and that no sample is repeated."""
    assert text.endswith("\n")
    values: dict[tuple[str, str], float] = {}
    helped, kinds, order = set(), {}, []
    for line in text.splitlines():
        if match := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            assert match[1] not in helped
            helped.add(match[1])
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            assert match[1] in helped and match[1] not in kinds
            kinds[match[1]] = match[2]
        else:
            match = re.fullmatch(rf'({NAME})(\{{{NAME}="[^"\\]*"\}})? (\S+)', line)
            assert match is not None and match[1] in kinds, line
            if not order or order[-1] != match[1]:
                assert match[1] not in order
                order.append(match[1])
            assert (match[1], match[2] or "") not in values
            values[match[1], match[2] or ""] = float(match[3])
            assert kinds[match[1]] == "gauge" or float(match[3]) >= 0
    assert set(order) == set(kinds) == helped
    return values


def test_usage_tells_why_a_prompt_was_read(server: Logging) -> None:
    n = len(server.model.tokenizer.encode(TEXT))
    first = server.complete(TEXT)["usage"]
    assert first["cache"] | {"conversation": ""} == {
        "reused": 0,
        "processed": n,
        "reason": "nothing is known that begins like this",
        "drawn": 0,
        "conversation": "",
        "kept": False,
    }
    again = server.complete(TEXT, n=2)["usage"]
    assert again["cache"]["reused"] == again["prompt_tokens_details"]["cached_tokens"] == n, "of each prompt once"
    assert (again["cache"]["processed"], again["cache"]["reason"]) == (0, "all of it is known")
    changed = TEXT.replace("one size", "any size")
    at = next(
        i
        for i, (a, b) in enumerate(
            zip(*(server.model.tokenizer.encode(text) for text in (TEXT, changed)), strict=False)
        )
        if a != b
    )
    usage = server.complete([changed, TEXT])["usage"]
    assert usage["cache"]["reason"] == (
        f"differs from every known text at token {at} ('any'); there is no checkpoint before token {at}"
    )
    assert (
        usage["cache"]["reused"] == n
        and usage["cache"]["reused"] + usage["cache"]["processed"] == (usage["prompt_tokens"])
    )
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    events = server.http.post("/v1/completions", json={"prompt": TEXT, "max_tokens": 2, **stream}).text
    assert '"reason": "all of it is known"' in events
    echoed = server.complete(TEXT, echo=True, logprobs=1)["usage"]["cache"]
    assert (echoed["processed"], echoed["reason"]) == (n, "logprobs of the prompt were requested")
    chat = server.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
    assert chat.usage is not None and chat.usage.model_extra is not None
    assert chat.usage.model_extra["cache"]["processed"] == chat.usage.prompt_tokens


def test_one_line_of_the_log_for_every_request(server: Logging) -> None:
    server.complete(TEXT)
    server.complete(TEXT.replace("one size", "\x1b[31many\x07 size"), n=2)
    server.http.get("/health")
    server.http.get("/metrics")
    server.http.get("/v1/models")
    server.error(400, "/v1/completions", {"prompt": "\x1b]0;a secret\x07", "n": 0})
    server.http.get("/nothing/%1b%5b31m" + "x" * 1000)
    with server.http.stream("POST", "/v1/completions", json={"prompt": "Memory", "max_tokens": 2, "stream": True}) as r:
        r.read()
    server.http.get("/v1/models")
    until(lambda: len(server.lines) == 7)  # the last line is written after its answer was sent
    lines = [entry.line() for entry in server.lines]
    text = "\n".join(lines)
    print(text)
    assert [(entry.route[:20], entry.status) for entry in server.lines] == [
        ("/v1/completions", 200),
        ("/v1/completions", 200),
        ("/v1/models", 200),
        ("/v1/completions", 400),
        ("/nothing/\\x1b[31mxxx", 404),
        ("/v1/completions", 200),
        ("/v1/models", 200),
    ]
    assert all(line.isprintable() for line in lines) and "secret" not in text and "State space" not in text
    assert all(len(line) < 2 * LONGEST + 400 for line in lines)
    first, second = server.lines[:2]
    n = len(server.model.tokenizer.encode(TEXT))
    assert re.fullmatch(
        rf"POST /v1/completions 200 127\.0\.0\.1; prompt {n}: 0 reused, {n} read \(nothing is known that begins like "
        r"this\); generated 3 \(length\); first token \d+\.\d\d s, \d+\.\d\d s",
        lines[0],
    )
    assert second.n_prompt == second.n_reused + second.n_processed and second.n_drawn == 6
    assert second.finish == ("length", "length") and r"('\x1b[31many')" in second.reason
    assert first.first_seconds is not None and 0 < first.first_seconds <= first.seconds
    assert server.lines[2].first_seconds is None and server.lines[2].n_prompt == 0
    assert "127.0.0.1" in lines[2] and "prompt" not in lines[2]
    assert asdict(first)["reason"] == first.reason


def test_a_client_that_leaves_and_a_key_in_the_log(server: Logging) -> None:
    body = {"prompt": TEXT, "max_tokens": 90, "ignore_eos": True, "stream": True}
    headers = {"Authorization": "Bearer hunter2"}
    with drawing_held(server):
        with server.http.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            next(response.iter_lines())
        until(lambda: not server.server.server_state.connections)
    until(lambda: server.lines and not server.service.n_jobs)
    (entry,) = server.lines
    assert entry.finish == ("interrupt",) and 0 < entry.n_drawn < 90
    assert "hunter2" not in str(asdict(entry))


def test_the_console_has_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = RequestLog(
        "POST", "/v1/completions", 200, "127.0.0.1", 9, 5, 4, "why", 3, 0.5, 1.0, ("stop",), ("x changes",)
    )
    Log(LogKind.PLAIN).request(entry)
    assert capsys.readouterr().err.splitlines() == [
        "POST /v1/completions 200 127.0.0.1; prompt 9: 5 reused, 4 read (why); generated 3 (stop); "
        "first token 0.50 s, 1.00 s",
        "note: x changes",
    ]

    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(console, "note", gone)
    log = Log(LogKind.PLAIN)
    log.request(entry)
    assert log.kind is LogKind.OFF, "nobody reads it any more; requests are answered all the same"


def test_metrics_are_what_prometheus_reads(server: Logging) -> None:
    before = server.metrics()
    assert ("llamacpp:prompt_tokens_total", "") in before
    n = len(server.model.tokenizer.encode(TEXT))
    server.complete(TEXT)
    server.complete(TEXT)
    after = server.metrics()

    def more(name: str, labels: str = "") -> float:
        return after[name, labels] - before[name, labels]

    assert more("llamacpp:prompt_tokens_total") == n == more("llamacpp:prompt_tokens_cached_total")
    assert more("hybrid:prompt_tokens_reused_total") == n and more("llamacpp:tokens_predicted_total") == 6
    reasons = {labels: value for (name, labels), value in after.items() if name.endswith("processed_total")}
    assert set(reasons) == {f'{{reason="{code}"}}' for code in CODES if code != "whole"}
    assert more("hybrid:prompt_tokens_processed_total", '{reason="new"}') == n
    assert more("llamacpp:n_decode_total") == more("hybrid:steps_total") > 0
    assert more("llamacpp:prompt_seconds_total") > 0 < more("llamacpp:tokens_predicted_seconds_total")
    assert after["llamacpp:spec_decode_num_drafts_total", ""] == 0
    assert after["llamacpp:requests_processing", ""] == after["llamacpp:requests_deferred", ""] == 0
    assert after["llamacpp:n_busy_slots_per_decode", ""] == 1 and after["llamacpp:n_tokens_max", ""] == n + 2
    assert after["llamacpp:prompt_tokens_seconds", ""] > 0 < after["llamacpp:kv_cache_usage_ratio", ""] < 1
    cache = server.model.cache
    assert cache is not None and after["hybrid:budget_bytes", ""] == BUDGET
    assert after["hybrid:checkpoint_bytes", ""] + after["hybrid:key_bytes", ""] == cache.nbytes > 0
    assert after["hybrid:known_tokens", ""] == n + 2 and after["hybrid:checkpoints", ""] == cache.n_checkpoints


def test_metrics_do_not_wait_for_a_long_step(server: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_contents, "PATIENCE", 0.05)
    server.complete(TEXT)
    known = server.metrics()["hybrid:known_tokens", ""]
    server.complete("Memory")
    go_on = threading.Event()
    server.service.call(lambda: go_on.wait(WAIT))
    for _ in range(3):
        assert server.metrics()["hybrid:known_tokens", ""] == known, "the last figures"
    assert server.service._calls.qsize() <= 1, "one count waits, however often it is asked for"
    go_on.set()
    server.service.call(lambda: None).result(WAIT)
    server.metrics()
    assert server.metrics()["hybrid:known_tokens", ""] > known


def test_a_header_that_changes_is_named(server: Logging) -> None:
    for minute in range(1, 6):
        server.complete(f"Today it is 10:{minute:02}.\n{TEXT}, {TEXT}, {TEXT}, and {TEXT}.")
    until(lambda: len(server.lines) == 5)
    notes = [note for entry in server.lines for note in entry.notes]
    assert len(notes) == 1, "the first request differs from nothing, the fourth one is the third that does"
    assert re.fullmatch(
        r"the text at token \d+ changes with every request \('10:03\.', then '10:04\.'\): 3 requests read \d+ tokens "
        r"again\. Put it at the end of the prompt\.",
        notes[0],
    )
    n = len(server.model.tokenizer.encode(f"{TEXT}, {TEXT}, {TEXT}, and {TEXT}."))
    assert abs(int(re.findall(r"read (\d+)", notes[0])[0]) - 3 * n) <= 12


def test_conversations_are_listed_and_dropped(server: Logging) -> None:
    assert server.conversations() == {}
    one = server.complete(f"{TEXT}, first")["usage"]["cache"]["conversation"]
    two = server.complete(f"{TEXT}, second")["usage"]["cache"]["conversation"]
    listed = server.conversations()
    shared = listed[one]["parent"]
    assert listed[two]["parent"] == shared and set(listed) == {one, two, shared} and listed[shared]["parent"] is None
    assert TEXT.startswith(listed[shared]["beginning"].strip()) and len(listed[shared]["beginning"]) > 40
    assert len(listed[shared]["beginning"]) <= 60 and listed[one]["beginning"].strip().startswith("first")
    assert listed[one]["tokens_before"] == listed[shared]["tokens"]
    entry = listed[one]
    assert entry["bytes"] > 0 < entry["checkpoints"] and 0 <= entry["age_seconds"] < WAIT and entry["kept"] is False
    assert server.http.get(f"/v1/conversations/{one}").json()["tokens"] == entry["tokens"]
    few = server.http.get("/v1/conversations", params={"limit": 1}).json()
    assert [entry["id"] for entry in few["data"]] == [two] and few["has_more"] and few["n_conversations"] == 3
    assert few["tokens"] == sum(entry["tokens"] for entry in listed.values())
    assert server.delete(one).json() == {"id": one, "object": "conversation.deleted", "deleted": True}
    assert one not in server.conversations()
    again = server.complete(f"{TEXT}, first")["usage"]["cache"]
    assert again["reused"] == 0 and "differs" in again["reason"]
    for wrong in (one, "c999999", "x", "c", "c-1", "c\u0663", "c" + "9" * 30, "%1b"):
        assert server.delete(wrong).status_code == server.http.get(f"/v1/conversations/{wrong}").status_code == 404
    for limit in ("0", "-1", "x", "1001", "9" * 5000):
        response = server.http.get("/v1/conversations", params={"limit": limit})
        assert response.status_code == 400 and response.json()["error"]["param"] == "limit"


def others(server: Logging, n: int) -> None:
    for i in range(n):
        server.complete(f"{i} {TEXT} {i}", max_tokens=1)


def test_a_conversation_is_kept_until_it_is_given_up(server: Logging) -> None:
    cache = server.model.cache
    assert cache is not None
    usage = server.complete(TEXT, cache={"keep": True})["usage"]["cache"]
    assert usage["kept"]
    cache.budget = 2 * (cache.pins.nbytes() + 2 * server.model.memory.attention.bytes_per_page)
    try:
        others(server, 6)
        assert server.conversations()[usage["conversation"]]["kept"]
        assert server.complete(TEXT)["usage"]["cache"]["processed"] == 0
        error = server.error(400, "/v1/completions", {"prompt": f"Another {TEXT}", "cache": {"keep": True}})
        assert re.search(r"keeping \d+ tokens needs .*: half of the budget for checkpoints", str(error["message"]))
        assert server.metrics()["hybrid:pinned_bytes", ""] == cache.pins.nbytes() > 0
        assert not server.complete(TEXT, cache={"keep": False})["usage"]["cache"]["kept"]
        assert cache.pins.nbytes() == 0
        others(server, 12)
        assert server.complete(TEXT)["usage"]["cache"]["reused"] == 0
        assert server.complete(TEXT, cache={"keep": True})["usage"]["cache"]["kept"]
        assert server.delete(server.complete(TEXT)["usage"]["cache"]["conversation"]).status_code == 200
        assert cache.pins.nbytes() == 0
    finally:
        cache.budget = BUDGET


def test_what_cannot_be_kept_is_refused(server: Logging, files: dict[str, Path]) -> None:
    error = server.error(400, "/v1/completions", {"prompt": ["a", "b"], "cache": {"keep": True}})
    assert error["message"] == "cache.keep needs a request for one answer to one prompt"
    for wrong in ({"keep": 1}, {"keep": "yes"}, True):
        assert str(server.error(400, "/v1/completions", {"prompt": "a", "cache": wrong})["param"]).startswith("cache")
    assert server.service.n_jobs == 0
    with LoadedModel.load(files["q8_0"], n_ctx=64, n_seq_max=4) as plain:
        other = Logging(plain)
        try:
            error = other.error(400, "/v1/completions", {"prompt": "a", "cache": {"keep": True}})
            assert "this server keeps nothing" in str(error["message"])
            usage = other.complete("a")["usage"]["cache"]
            assert (usage["reason"], usage["conversation"]) == ("nothing that was read is kept", None)
            assert other.conversations() == {} and other.delete("c1").status_code == 404
            assert other.metrics()["hybrid:budget_bytes", ""] == 0
        finally:
            other.close()


def test_a_budget_that_was_too_small_is_the_reason(server: Logging) -> None:
    cache = server.model.cache
    assert cache is not None
    server.complete(TEXT)
    cache.budget = 1
    try:
        server.complete("Memory")
    finally:
        cache.budget = BUDGET
    usage = server.complete(TEXT)["usage"]["cache"]
    assert re.fullmatch(r"tokens 0 to \d+ were known and given up: budget", usage["reason"])


def test_pages_may_ask_with_every_method(model: LoadedModel) -> None:
    server = Server(model, cors=("https://page.example",))
    try:
        asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "DELETE"}
        allowed = server.http.options("/v1/conversations/c1", headers=asked)
        assert allowed.status_code == 200 and "DELETE" in allowed.headers["access-control-allow-methods"]
        assert "POST" in allowed.headers["access-control-allow-methods"]
    finally:
        server.close()


def test_reasons_while_many_ask(server: Logging) -> None:
    """Simultaneous requests, lists and drops: every request gets an answer with consistent numbers."""
    failures: list[str] = []

    def ask(i: int) -> None:
        with httpx.Client(base_url=server.url, timeout=WAIT) as http:
            for j in range(4):
                body = {"prompt": f"{TEXT}, {j % 2} {i}", "max_tokens": 4, "temperature": 0}
                usage = http.post("/v1/completions", json=body).json()["usage"]
                if usage["cache"]["reused"] + usage["cache"]["processed"] != usage["prompt_tokens"]:
                    failures.append(str(usage))
                listed = http.get("/v1/conversations").json()["data"]
                if listed and http.delete(f"/v1/conversations/{listed[-1]['id']}").status_code not in (200, 404):
                    failures.append(str(listed[-1]))

    run_all([lambda i=i: ask(i) for i in range(4)])  # type: ignore[misc]
    assert not failures
    figures = server.service.batcher.figures
    assert figures.n_prompt == sum(figures.processed.values())


def run_all(functions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)


def test_a_request_that_does_not_fit_the_queue_has_no_prompt_in_the_log(server: Logging) -> None:
    held_up = threading.Event()
    server.service.call(lambda: held_up.wait(WAIT))
    first = threading.Thread(target=server.complete, args=([TEXT] * 6,))
    first.start()
    while server.service.n_jobs < 6:
        assert not held_up.wait(0.01)
    server.error(429, "/v1/completions", {"prompt": TEXT})
    held_up.set()
    first.join(WAIT)
    until(lambda: len(server.lines) == 2)
    refused = next(entry for entry in server.lines if entry.status == 429)
    assert (refused.n_prompt, refused.finish) == (0, ())


def test_every_reason_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    table = page.split("| reason | what it means")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(CODES) - {"whole"}
