"""ollama's API: its own client and LangChain's unmodified, over a real socket."""

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from http_server import WAIT, Server, serving
from ollama_requests import GREEDY, TALK, asked, lines, refused, wanted
from scripted_chat import ADD, CALL, LOOK, SECOND, WITH_THOUGHTS, WITH_TOOLS, Script, served

from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.warning_log import WarningLog
from hybrid.infer import LoadedModel
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.quant.ggml.errors import HybridError

if TYPE_CHECKING:
    import ollama

pytestmark = pytest.mark.exhaustive

QUESTION: list[Any] = [{"role": "user", "content": "Add 5."}]


@pytest.fixture(scope="module")
def client(server: Server) -> "Iterator[ollama.Client]":
    """ollama's client, connected to this server."""
    with pytest.importorskip("ollama").Client(host=server.url, timeout=WAIT) as client:
        yield client


# --- answers ---
def test_chats_by_its_client(server: Server, client: "ollama.Client") -> None:
    text = wanted(server, TALK)
    answer = client.chat("tiny", TALK, options=GREEDY)
    assert (answer.message.role, answer.message.content, answer.done, answer.done_reason) == (
        "assistant",
        text,
        True,
        "length",
    )
    assert answer.prompt_eval_count and answer.prompt_eval_count > 20 and answer.eval_count == 12
    assert answer.total_duration and answer.eval_duration and answer.total_duration > answer.eval_duration > 0
    parts = list(client.chat("tiny:latest", TALK, stream=True, options=GREEDY, keep_alive="5m"))
    assert "".join(part.message.content or "" for part in parts) == text and len(parts) > 3
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "length" and parts[-1].message.content == ""
    assert {part.model for part in parts} == {"tiny:latest"} and answer.model == "tiny"
    stopped = client.chat("tiny", TALK, options={**GREEDY, "stop": [text[3:6]]})
    assert stopped.message.content == text[: text.index(text[3:6])] and stopped.done_reason == "stop"


def test_generates_by_its_client(server: Server, client: "ollama.Client") -> None:
    system = {"role": "system", "content": "Be brief."}
    text = wanted(server, [system, TALK[0]])
    answer = client.generate("tiny", "Hello", system="Be brief.", options=GREEDY)
    assert answer.response == text and answer.done_reason == "length"
    parts = list(client.generate("tiny", "Hello", system="Be brief.", stream=True, options=GREEDY))
    assert "".join(part.response for part in parts) == text
    tokenizer, context = server.model.tokenizer, list(answer.context or ())
    assert context == list(parts[-1].context or ()) and len(context) == (answer.prompt_eval_count or 0) + 12
    # the next question follows the tokens of the first, and the prompt's BOS is not repeated
    more = client.generate("tiny", "More", context=context, options=GREEDY)
    alone = asked(server, "/api/generate", prompt="More", options=GREEDY)
    assert (more.context or ())[: len(context)] == context
    assert (more.prompt_eval_count or 0) == len(context) + alone["prompt_eval_count"] - 1
    assert list(more.context or ()).count(tokenizer.bos) == 1
    assert asked(server, "/api/generate", prompt="More", context=context, options=GREEDY)["cache"]["processed"] == 0


def test_raw_prompts_and_templates(server: Server, client: "ollama.Client") -> None:
    body = {"prompt": "State space models", "max_tokens": 12, "temperature": 0}
    text = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    answer = client.generate("tiny", "State space models", raw=True, options=GREEDY)
    assert answer.response == text and answer.context is None
    template = "{{ if .System }}{{ .System }} {{ end }}{{ .Prompt }}{{ .Response }}<|eom|>"
    same = client.generate("tiny", "space models", system="State", template=template, options=GREEDY)
    assert same.response == text and same.context
    parts = client.generate("tiny", "State space models", raw=True, stream=True, options=GREEDY)
    assert "".join(part.response for part in parts) == text
    wrong = refused(server, 400, "/api/generate", prompt="x", raw=True, system="y")
    assert wrong == "raw mode does not support template, system, or context"
    assert "{{ range .Messages }}" in refused(server, 400, "/api/generate", prompt="x", template="{{range .Messages}}")
    wrong = refused(server, 400, "/api/generate", prompt="x", suffix="y")
    assert wrong.startswith("suffix: this model fills in no gaps: ")
    assert "outside this model's vocabulary" in refused(server, 400, "/api/generate", prompt="x", context=[10**6])


def test_nothing_loads_the_model(server: Server, client: "ollama.Client") -> None:
    assert client.chat("tiny", []).done_reason == client.generate("tiny", "").done_reason == "load"
    assert client.generate("tiny", keep_alive=0).done_reason == "unload"
    assert client.chat("tiny", keep_alive="0s").message.content == ""
    assert client.generate("tiny", "Hello", options={"num_predict": 1}).response, "it is still there"


def test_forms_and_logprobs(server: Server, client: "ollama.Client") -> None:
    schema: dict[str, Any] = {
        "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["age"]
    }  # fmt: skip
    answer = client.chat("tiny", TALK, format=schema, options={"temperature": 0, "num_predict": 60})
    assert 0 <= json.loads(answer.message.content or "")["age"] <= 9 and answer.done_reason == "stop"
    text = asked(server, "/api/generate", prompt="Hi", format="json", options={"num_predict": 40, "seed": 1})
    assert text["response"].startswith("{")
    assert "expected \"json\" or a JSON schema; found 'xml'" in refused(
        server, 400, "/api/chat", messages=TALK, format="xml"
    )
    wrong = refused(server, 400, "/api/chat", messages=TALK, format={"type": "nothing"})
    assert wrong.startswith("format: "), wrong
    known = client.chat("tiny", TALK, logprobs=True, top_logprobs=2, options=GREEDY)
    parts = list(client.chat("tiny", TALK, logprobs=True, top_logprobs=2, stream=True, options=GREEDY))
    listed = [one for part in parts for one in part.logprobs or ()]
    assert len(known.logprobs or ()) == 12 and listed == list(known.logprobs or ())
    assert all(one.logprob == one.top_logprobs[0].logprob <= 0 and len(one.top_logprobs) == 2 for one in listed)  # type: ignore[index]
    raw = client.generate("tiny", "It is: ", raw=True, format={"enum": ["so"]}, options=GREEDY)
    assert raw.response == '"so"' and raw.done_reason == "stop"
    raw = client.generate("tiny", "State", raw=True, logprobs=True, options=GREEDY)
    assert "".join(one.token for one in raw.logprobs or ()) == raw.response


def test_a_model_without_a_template(server: Server) -> None:
    body = {"prompt": "State space models", "max_tokens": 12, "temperature": 0}
    text = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    with serving(server.model, maker=Maker(server.model, None, 6)) as bare:
        answer = asked(bare, "/api/generate", prompt="State space models", system="Be brief.", options=GREEDY)
        assert answer["response"] == text and answer["context"]
        assert answer["warnings"] == ["system is ignored: this model has no chat template"]
        more = asked(bare, "/api/generate", prompt=" and", context=answer["context"], options=GREEDY)
        assert more["context"][: len(answer["context"])] == answer["context"]
        wrong = refused(bare, 400, "/api/chat", messages=TALK)
        assert wrong == "this model has no chat template: use /api/generate"
        facts = asked(bare, "/api/show", model="tiny")
        assert facts["capabilities"] == ["completion"] and facts["template"] == ""


def test_settings_are_heeded(server: Server) -> None:
    """Each option has the effect of the field of OpenAI's route that it stands for."""
    for options, theirs in (
        ({"temperature": 1.5, "seed": 7}, {"temperature": 1.5, "seed": 7}),
        ({"temperature": 1.5, "seed": 7, "top_k": 3}, {"temperature": 1.5, "seed": 7, "top_k": 3}),
        ({"temperature": 2, "seed": 7, "min_p": 0.3}, {"temperature": 2, "seed": 7, "min_p": 0.3}),
        ({"temperature": 0, "repeat_penalty": 1.9}, {"temperature": 0, "repeat_penalty": 1.9}),
    ):
        body = {"messages": TALK, "max_tokens": 12, **theirs}
        want = server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        got = asked(server, "/api/chat", messages=TALK, options={**options, "num_predict": 12})
        assert got["message"]["content"] == want, options
    whole = asked(server, "/api/chat", messages=TALK, options={"num_predict": -2, "temperature": 0})
    assert whole["eval_count"] > 12


def test_unknown_fields_and_those_without_effect(server: Server) -> None:
    server.router.told = WarningLog()
    options = {"num_ctx": 2048, "num_gpu": 99, "use_mmap": True, "mirostat_x": 1, **GREEDY}
    told = asked(server, "/api/chat", messages=TALK, options=options, think=True, shift=True, keep_alive=-1, more=5)
    assert told["warnings"] == [
        "more is ignored: this server has no such field",
        "shift is ignored: --context-shift of the server decides",
        "options.mirostat_x is ignored: this server has no such field",
        "options.num_ctx is ignored: the context has the size that the server was started with",
        "think is ignored: the model's template knows no thoughts",
    ]
    assert "found 'warm'" in refused(server, 400, "/api/chat", messages=TALK, options={"temperature": "warm"})
    assert "Field required" in refused(server, 400, "/api/chat", messages=[{"content": "Hello"}])
    assert "exceeds the available context size of 512" in refused(server, 400, "/api/generate", prompt="word " * 600)
    assert "the body is empty" in server.http.post("/api/chat", content=b"").json()["error"]


# --- tools and thoughts ---
def test_calls(chat_model: LoadedModel, script: Script) -> None:
    server = served(chat_model, WITH_TOOLS)
    ollama = pytest.importorskip("ollama")
    try:
        with ollama.Client(host=server.url, timeout=WAIT) as client:
            script.say(f"Wait.\n{CALL}\n{SECOND}", f"Wait.\n{CALL}\n{SECOND}", "It is 5.")
            whole = client.chat("tiny", QUESTION, tools=[ADD, LOOK])
            parts = list(client.chat("tiny", QUESTION, tools=[ADD, LOOK], stream=True))
            calls = whole.message.tool_calls
            assert [(call.function.name, call.function.arguments) for call in calls] == [
                ("add", {"a": 5, "b": True}),
                ("look", {"what": "there"}),
            ]
            told = [call for part in parts for call in part.message.tool_calls or ()]
            assert told == list(calls) and "".join(part.message.content for part in parts) == "Wait."
            assert whole.message.content == "Wait." and whole.done_reason == parts[-1].done_reason == "stop"
            results = [{"role": "tool", "tool_name": name, "content": "5"} for name in ("add", "look")]
            answer = client.chat("tiny", [*QUESTION, whole.message, *results], tools=[ADD, LOOK])
            assert answer.message.content == "It is 5." and not answer.message.tool_calls
        # what the model wrote is known when a client sends it back
        script.say(f"Wait.\n{CALL}\n{SECOND}", "So.")
        first = asked(server, "/api/chat", messages=QUESTION, tools=[ADD, LOOK])
        more = asked(server, "/api/chat", messages=[*QUESTION, first["message"], *results], tools=[ADD, LOOK])
        assert more["cache"]["drawn"] == first["prompt_eval_count"] + first["eval_count"]
        script.say(CALL)
        cut = asked(server, "/api/chat", messages=QUESTION, tools=[ADD], options={"num_predict": 25})
        assert cut["done_reason"] == "length" and "tool_calls" not in cut["message"]
        assert cut["warnings"] == ["a call of add is left out: the answer was cut off in it"]
    finally:
        server.close()


def test_thoughts(chat_model: LoadedModel, script: Script) -> None:
    server = served(chat_model, WITH_THOUGHTS)
    ollama = pytest.importorskip("ollama")
    try:
        with ollama.Client(host=server.url, timeout=WAIT) as client:
            said = "Hm, five.\n</think>\n\nIt is 5."
            script.say(said, said, "It is 6.", said)
            whole = client.chat("tiny", QUESTION, think=True)
            assert (whole.message.thinking, whole.message.content) == ("Hm, five.", "It is 5.")
            parts = list(client.chat("tiny", QUESTION, think="high", stream=True))
            assert "".join(part.message.thinking or "" for part in parts) == "Hm, five."
            assert "".join(part.message.content or "" for part in parts) == "It is 5."
            plain = client.chat("tiny", QUESTION, think=False)
            assert (plain.message.thinking, plain.message.content) == (None, "It is 6.")
            answer = client.generate("tiny", "Add 5.")
            assert (answer.thinking, answer.response) == ("Hm, five.", "It is 5.")
            assert "thinking" in (client.show("tiny").capabilities or ())
    finally:
        server.close()


# --- streams ---
def test_an_answer_that_fails_is_a_line(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise HybridError("nothing to draw")

    monkeypatch.setattr(Drawing, "draw", fail)
    for path, body in (("/api/chat", {"messages": TALK}), ("/api/generate", {"prompt": "Hello"})):
        assert lines(server, path, **body) == [{"error": "no answer could be generated: nothing to draw"}]
        assert "nothing to draw" in refused(server, 500, path, stream=False, **body)


def test_lines_while_a_prompt_is_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no text: the client's JSON parser takes no comments."""
    monkeypatch.setattr("hybrid.cli.serve.streaming.PING_SECONDS", 0.01)
    go = threading.Event()
    server.service.call(go.wait)
    with server.http.stream("POST", "/api/chat", json={"messages": TALK, "options": GREEDY}) as response:
        answer = response.iter_lines()
        first = json.loads(next(answer))
        go.set()
        rest = [json.loads(line) for line in answer]
    assert first["message"] == {"role": "assistant", "content": ""} and first["done"] is False
    assert "".join(line["message"]["content"] for line in rest) == wanted(server, TALK) and rest[-1]["done"]
