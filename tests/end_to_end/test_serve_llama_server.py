"""llama-server's own routes over a real socket, and the effect of its fields in OpenAI's routes."""

import json
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT, Server, drawing_held, until

from hybrid.cli.serve.jobs import Maker, ServerDefaults
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.encode import rendered_ids

pytestmark = pytest.mark.exhaustive

PROMPT = "State space models keep what they have read"
ASKED = {"prompt": PROMPT, "n_predict": 12, "temperature": 0.9, "seed": 7}
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4, checkpoint_budget=32 << 20) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    server = Server(model)
    yield server
    server.close()
    assert model.n_free == 4


def post(server: Server, path: str, **body: Any) -> Any:
    response = server.http.post(path, json=body, timeout=WAIT)
    assert response.status_code == 200, response.text
    return response.json()


def stream(server: Server, path: str, **body: Any) -> list[dict[str, Any]]:
    with server.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# --- /completion ---
def test_a_completion_is_the_one_of_openais_route(server: Server) -> None:
    ids = server.model.tokenizer.encode(PROMPT)
    openai = post(server, "/v1/completions", prompt=PROMPT, max_tokens=12, temperature=0.9, seed=7)
    answer = post(server, "/completion", **ASKED, return_tokens=True)
    assert answer["content"] == openai["choices"][0]["text"]
    assert server.model.tokenizer.decode(answer["tokens"]).strip() == answer["content"].strip()
    assert answer["stop"] is True and answer["stop_type"] == "limit" and answer["stopping_word"] == ""
    assert answer["tokens_evaluated"] == len(ids) and answer["tokens_predicted"] == 12 and not answer["truncated"]
    assert answer["has_new_line"] == ("\n" in answer["content"]) and answer["prompt"].endswith(PROMPT)
    assert answer["generation_settings"]["seed"] == 7 and answer["generation_settings"]["n_predict"] == 12
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == len(ids) and timings["predicted_n"] == 12
    assert timings["predicted_ms"] > 0 and timings["predicted_per_second"] == pytest.approx(
        11e3 / timings["predicted_ms"]
    )
    assert openai["timings"].keys() == timings.keys()
    assert post(server, "/completions", **ASKED)["content"] == answer["content"]
    events = stream(server, "/completion", **ASKED)
    assert "".join(event["content"] for event in events) == answer["content"]
    assert [token for event in events[:-1] for token in event["tokens"]] == answer["tokens"]
    assert [event["tokens_predicted"] for event in events] == [*range(1, 13), 12]
    assert [event["stop"] for event in events] == [False] * 12 + [True]
    assert events[-1]["generation_settings"]["seed"] == 7 and events[-1]["timings"]["predicted_n"] == 12


def test_prompts_of_every_shape(server: Server) -> None:
    ids = server.model.tokenizer.encode(PROMPT)
    asked = {key: value for key, value in ASKED.items() if key != "prompt"}
    want = post(server, "/completion", **ASKED)["content"]
    for one in (ids, {"prompt_string": PROMPT}, [PROMPT], [ids], [{"prompt_string": PROMPT}]):
        assert post(server, "/completion", **asked, prompt=one)["content"] == want
    many = post(server, "/completion", **asked, prompt=[ids, PROMPT, {"prompt_string": PROMPT}])
    assert [answer["content"] for answer in many] == [want] * 3 and [a["index"] for a in many] == [0, 1, 2]
    # a list that begins with text gets a BOS; text after tokens does not
    encode = server.model.tokenizer.encode
    for mixed, flat in (
        ([*ids[:3], " and more"], [*ids[:3], *encode(" and more", add_special=False)]),
        (["State", *ids[3:]], [*encode("State"), *ids[3:]]),
    ):
        answers = post(server, "/completion", **asked, prompt=[mixed, flat])
        assert answers[0]["content"] == answers[1]["content"]
        assert answers[0]["tokens_evaluated"] == len(flat)
    # special tokens are parsed, and a written BOS is not doubled
    written = post(server, "/completion", **asked, prompt="<|startoftext|>" + PROMPT)
    assert written["tokens_evaluated"] == len(ids) and written["content"] == want
    again = post(server, "/completion", **ASKED, n_cmpl=2)
    assert [a["generation_settings"]["seed"] for a in again] == [7, 8] and again[0]["content"] == want
    for wrong, says in (
        ([], "found an empty list"),
        ([1, {"prompt_string": "a"}], "cannot hold other prompts"),
        ({"prompt_string": "a", "multimodal_data": ["x"]}, "prompt.multimodal_data: this model takes no pictures"),
        (["a"] * 7, "7 prompts, this server takes 6"),
        ([True], "prompt"),
        ("word " * 600, "exceeds the available context size of 256 tokens"),
    ):
        assert says in str(server.error(400, "/completion", {"prompt": wrong}))


def test_a_prompt_that_is_too_long_says_both_numbers(server: Server) -> None:
    for path, body in (
        ("/completion", {"prompt": "word " * 600}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 600}], "stream": True}),
    ):
        error = server.error(400, path, body)
        assert error["type"] == "exceed_context_size_error" and error["n_ctx"] == 256
        assert isinstance(error["n_prompt_tokens"], int) and error["n_prompt_tokens"] > 1000


def test_the_cache_changes_no_bit(server: Server) -> None:
    body = {**ASKED, "prompt": PROMPT + " and whether it is read again", "temperature": 1.0}
    without = post(server, "/completion", **body, cache_prompt=False)
    with_it = [post(server, "/completion", **body) for _ in range(2)]
    again = post(server, "/completion", **body, cache_prompt=False)
    assert with_it[-1]["timings"]["cache_n"] == with_it[-1]["tokens_evaluated"], "known from before"
    assert [a["timings"]["cache_n"] for a in (without, again)] == [0, 0]
    assert again["timings"]["prompt_n"] == again["tokens_evaluated"] == without["timings"]["prompt_n"]
    assert {a["content"] for a in (without, *with_it, again)} == {without["content"]}


def test_probabilities(server: Server) -> None:
    known = post(server, "/completion", **ASKED, n_probs=5)["completion_probabilities"]
    openai = post(server, "/v1/completions", prompt=PROMPT, max_tokens=12, temperature=0.9, seed=7, logprobs=5)
    assert [one["logprob"] for one in known] == openai["choices"][0]["logprobs"]["token_logprobs"]
    assert all(len(one["top_logprobs"]) == 5 and one["bytes"] == list(one["token"].encode()) for one in known)
    sampled = post(server, "/completion", **ASKED, n_probs=2000, post_sampling_probs=True)["completion_probabilities"]
    assert [one["id"] for one in sampled] == [one["id"] for one in known]
    for one in sampled:
        p = {top["id"]: top["prob"] for top in one["top_probs"]}
        assert math.fsum(p.values()) == pytest.approx(1) and p[one["id"]] == one["prob"]
        assert len(p) <= 40 and list(p.values()) == sorted(p.values(), reverse=True)
    greedy = post(server, "/completion", **{**ASKED, "temperature": 0}, n_probs=9, post_sampling_probs=True)
    assert all(len(one["top_probs"]) == 1 and one["prob"] == 1 for one in greedy["completion_probabilities"])
    events = stream(server, "/completion", **ASKED, n_probs=5)
    assert [event["completion_probabilities"][0] for event in events[:-1]] == known


def test_biases_of_every_shape(server: Server) -> None:
    asked = {**ASKED, "temperature": 0, "return_tokens": True}
    encode = server.model.tokenizer.encode
    first = post(server, "/completion", **asked)
    token = first["tokens"][0]
    text = server.model.tokenizer.piece(token).decode()
    want = None
    shapes: list[Any] = [{str(token): -100}, {str(token): False}, [[token, False]], [[token, -60], [token, -50.5]]]
    if encode(text, add_special=False) == [token]:
        shapes += [{text: -100}, [[text, False]]]
    for bias in shapes:
        for path in ("/completion", "/v1/completions"):
            body = {**asked, "logit_bias": bias}
            if path != "/completion":
                del body["return_tokens"]
            answer = post(server, path, **body)
            content = answer["content"] if path == "/completion" else answer["choices"][0]["text"]
            want = want or content
            assert content == want != first["content"], bias
    chat = {"messages": HELLO, "max_tokens": 8, "temperature": 0}
    plain = post(server, "/v1/chat/completions", **chat)["choices"][0]["message"]["content"]
    word = plain.split()[0]
    other = post(server, "/v1/chat/completions", **chat, logit_bias={word: -100, " " + word: False})
    assert other["choices"][0]["message"]["content"] != plain
    settings = post(server, "/completion", **asked, ignore_eos=True, logit_bias=[[50, 1.5]])["generation_settings"]
    assert {"bias": 1.5, "token": 50} in settings["logit_bias"]
    assert {entry["token"] for entry in settings["logit_bias"] if entry["bias"] is None} == server.model.tokenizer.eog
    for wrong in ([[5]], [[5, "x"]], [[1.5, 2]], {"a": True}, [[5, 1, 2]], "x"):
        server.error(400, "/completion", {**ASKED, "logit_bias": wrong})


def drawn(model: LoadedModel, params: SamplingParams) -> str:
    """The library's answer alone."""
    seq = model.sequence()
    sampler = Sampler(params, model.n_vocab, model.tokenizer)
    answer = generate(seq, model.tokenizer.encode(PROMPT), sampler, max_tokens=12)
    for _ in answer:
        pass
    seq.close(remember=False)
    return answer.result.text


# fields of a request, and their names in SamplingParams if they differ
SAMPLERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"dynatemp_range": 0.8, "dynatemp_exponent": 0.5}, {}),
    ({"top_n_sigma": 0.5}, {}),
    ({"xtc_probability": 1.0, "xtc_threshold": 0.02}, {}),
    ({"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3}, {}),
    ({"adaptive_target": 0.3, "adaptive_decay": 0.5}, {}),
    ({"min_p": 0.9, "min_keep": 5}, {}),
    ({"repeat_penalty": 1.9, "repeat_last_n": 3}, {}),
    ({"typical_p": 0.3}, {"typ_p": 0.3}),
    (
        {"dry_multiplier": 5.0, "dry_allowed_length": 0, "dry_penalty_last_n": 99, "dry_sequence_breakers": ["."]},
        {"dry_multiplier": 5.0, "dry_allowed_length": 0, "dry_last_n": 99, "dry_breakers": (".",)},
    ),
    ({"samplers": ["top_p", "temperature", "top_k"], "top_k": 3}, {"samplers": ("top_p", "temperature", "top_k")}),
    ({"samplers": "tkp", "top_k": 3}, {"samplers": ("temperature", "top_k", "top_p")}),
    ({"samplers": ["typical_p"], "typical_p": 0.4}, {"samplers": ("typ_p",), "typ_p": 0.4}),
    ({"samplers": []}, {"samplers": ()}),
]


@pytest.mark.parametrize(("body", "other"), SAMPLERS)
def test_every_sampler_by_llama_servers_name(server: Server, body: dict[str, Any], other: dict[str, Any]) -> None:
    """The same text as from the library with these settings, which the response repeats."""
    known = {f.name for f in fields(SamplingParams)}
    params = SamplingParams(
        **{"temp": 0.9, "seed": 7, **{name: value for name, value in body.items() if name in known}, **other}
    )
    want = server.service.call(lambda: drawn(server.model, params)).result(WAIT)
    answer = post(server, "/completion", **ASKED, **body)
    assert answer["content"] == want
    assert answer["content"] != post(server, "/completion", **ASKED)["content"], "it does something"
    settings = answer["generation_settings"]
    for name, value in {**body, "samplers": list(params.samplers)}.items():
        assert settings[name] == value


def test_what_is_off_is_taken_and_what_cannot_be_is_named(server: Server) -> None:
    want = post(server, "/completion", **ASKED)["content"]
    off = {
        "grammar": "",
        "lora": [],
        "n_indent": 4,
        "stop": None,
        "json_schema": None,
        "backend_sampling": True,
        "n_discard": 5,
    }
    assert post(server, "/completion", **ASKED, **off)["content"] == want
    for name, value in (
        ("grammar", "root ::= 'a'"),
        ("json_schema", {"not": {}}),
        ("lora", [{"id": 0, "scale": 1}]),
    ):
        assert server.error(400, "/completion", {**ASKED, name: value})["param"] == name
    for name, value in (
        ("samplers", ["infill"]),
        ("samplers", "kk"),
        ("samplers", "q"),
        ("typical_p", 2.0),
        ("mirostat", 3),
    ):
        assert name.split("_")[0][:3] in str(server.error(400, "/completion", {**ASKED, name: value})["message"])


def test_chosen_fields_and_seeds(server: Server) -> None:
    fields = ["content", "generation_settings/n_predict", "nothing", "timings/nothing"]
    answer = post(server, "/completion", **ASKED, response_fields=fields)
    assert answer.keys() == {"content", "generation_settings/n_predict"}
    assert answer["generation_settings/n_predict"] == 12
    for seed in (-1, 2**32 - 1):
        drawn = [post(server, "/completion", **{**ASKED, "temperature": 2.0, "seed": seed}) for _ in range(2)]
        assert drawn[0]["generation_settings"]["seed"] != drawn[1]["generation_settings"]["seed"]
    word = post(server, "/completion", **ASKED)["content"].split()[1]
    stopped = post(server, "/completion", **ASKED, stop=[word])
    assert stopped["stop_type"] == "word" and stopped["stopping_word"] == word and word not in stopped["content"]


def test_the_slot_that_is_asked_for(server: Server) -> None:
    """The slot does not change the answer."""
    answers = [post(server, "/completion", **ASKED, id_slot=slot) for slot in (3, 0, 2, -1)]
    assert [answer["id_slot"] for answer in answers] == [3, 0, 2, 0]
    assert len({answer["content"] for answer in answers}) == 1
    assert post(server, "/completion", **ASKED, id_slot=99)["id_slot"] == 0, "any other where there is none"


def test_a_time_limit_ends_a_text_that_has_a_line(server: Server) -> None:
    newline = server.model.tokenizer.encode("a\n", add_special=False)[-1]
    body = {**ASKED, "n_predict": 200, "ignore_eos": True, "logit_bias": [[newline, 50.0]]}
    answer = post(server, "/completion", **body, t_max_predict_ms=1)
    assert answer["stop_type"] == "limit" and answer["has_new_line"] and answer["tokens_predicted"] < 100
    assert post(server, "/completion", **body, t_max_predict_ms=0)["tokens_predicted"] == 200


# --- progress and timings ---
@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_progress(server: Server, path: str) -> None:
    text = " ".join(f"{path} {i}" for i in range(12))
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    asked |= {"max_tokens": 4, "return_progress": True, "timings_per_token": True}
    for turn in range(2):
        events = stream(server, path, **asked)
        told = [event for event in events if "prompt_progress" in event]
        progress = [event["prompt_progress"] for event in told]
        total = progress[0]["total"]
        assert progress[0]["cache"] == progress[0]["processed"] == (total if turn else 0)
        assert progress[-1]["processed"] == total and all(one["total"] == total for one in progress)
        assert told[0]["timings"]["prompt_n"] == 0 and told[-1]["timings"]["prompt_n"] == total - progress[0]["cache"]
        drawn = [e["timings"]["predicted_n"] for e in events if "timings" in e and "prompt_progress" not in e]
        assert drawn == sorted(drawn) and drawn[0] >= 1 and drawn[-1] == 4  # half a character waits for the next token
    plain = stream(server, path, **{**asked, "return_progress": False, "timings_per_token": False})
    assert not any("prompt_progress" in event for event in plain)
    assert [i for i, event in enumerate(plain) if "timings" in event] == [len(plain) - 1]


def test_progress_of_responses(server: Server) -> None:
    asked = {"input": " ".join(f"response {i}" for i in range(12)), "max_output_tokens": 4}
    events = stream(server, "/v1/responses", **asked, return_progress=True, timings_per_token=True)
    told = [event for event in events if "prompt_progress" in event]
    assert {event["type"] for event in told} == {"response.in_progress"}
    last = told[-1]["prompt_progress"]
    assert last["processed"] == last["total"] == events[-1]["response"]["usage"]["input_tokens"]
    deltas = [event["timings"]["predicted_n"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == sorted(deltas) and deltas[0] >= 1 and events[-1]["timings"]["predicted_n"] == 4
    plain = stream(server, "/v1/responses", **asked)
    assert not any("timings" in event or "prompt_progress" in event for event in plain)


def test_the_usage_event_has_the_timings(server: Server) -> None:
    asked = {"messages": HELLO, "max_tokens": 3, "stream_options": {"include_usage": True}}
    events = stream(server, "/v1/chat/completions", **asked)
    assert [i for i, event in enumerate(events) if "timings" in event] == [len(events) - 1]
    assert events[-1]["choices"] == [] and events[-1]["timings"]["predicted_n"] <= 3


def test_verbose_shows_the_prompt(server: Server) -> None:
    asked = {"messages": HELLO, "max_tokens": 2}
    answer = post(server, "/v1/chat/completions", **asked, verbose=True)
    assert answer["__verbose"]["prompt"].endswith("Hello<|eom|><|bom|><|assistant|>")
    assert answer["__verbose"]["content"] == answer["choices"][0]["message"]["content"]
    assert "__verbose" not in post(server, "/v1/chat/completions", **asked)
    assert "__verbose" in stream(server, "/v1/chat/completions", **asked, verbose=True)[-1]


# --- conversations ---
def test_a_last_message_of_the_assistant_is_continued(server: Server) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "Hello, I"}]
    whole = "<|startoftext|><|bom|><|user|> Hello<|eom|><|bom|><|assistant|> Hello, I"
    prompt = post(server, "/apply-template", messages=begun)["prompt"]
    assert prompt == whole
    for more in ({"add_generation_prompt": False, "continue_final_message": True}, {"continue_final_message": True}):
        assert post(server, "/apply-template", messages=begun, **more)["prompt"] == whole
    closed = post(server, "/apply-template", messages=begun, continue_final_message=False)["prompt"]
    assert closed == whole + "<|eom|><|bom|><|assistant|>"
    asked = {"max_tokens": 6, "temperature": 0}
    chat = post(server, "/v1/chat/completions", messages=begun, **asked)
    text = post(server, "/completion", prompt=whole, n_predict=6, temperature=0)
    assert chat["choices"][0]["message"]["content"] == text["content"]
    parts = [
        *HELLO,
        {"role": "assistant", "content": [{"type": "text", "text": "Hello,"}, {"type": "text", "text": " I"}]},
    ]
    assert post(server, "/apply-template", messages=parts)["prompt"] == whole
    assert post(server, "/apply-template", messages=HELLO, add_generation_prompt=False)["prompt"].endswith(
        "Hello<|eom|>"
    )
    two = [*HELLO, *[{"role": "assistant", "content": "a"}] * 2]
    assert server.error(400, "/v1/chat/completions", {"messages": two})["param"] == "messages"
    both = {"messages": begun, "add_generation_prompt": True, "continue_final_message": True}
    assert server.error(400, "/apply-template", both)["param"] == "continue_final_message"
    empty = post(server, "/apply-template", messages=[*HELLO, {"role": "assistant", "content": None}])["prompt"]
    assert empty.endswith("<|assistant|>")


def test_variables_of_the_template(server: Server) -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% endfor %}|{{ enable_thinking }}|{{ reasoning_effort }}|"
        "{{ tools | length if tools }}|{{ mine | tojson }}"
    )
    maker = Maker(server.model, ChatTemplate(source), 6)
    other = Server(server.model, maker=maker)
    try:

        def prompt(**more: Any) -> str:
            return str(post(other, "/apply-template", messages=HELLO, **more)["prompt"])

        nested = {"a": [1, {"b": "</s>"}]}
        kwargs = {"enable_thinking": False, "mine": nested}
        assert prompt(chat_template_kwargs=kwargs) == f"Hello|False|||{json.dumps(nested)}"
        assert prompt(reasoning_effort="high", chat_template_kwargs={"mine": 1}) == "Hello||high||1"
        assert prompt(reasoning_effort="none", chat_template_kwargs={"mine": 1}) == "Hello|False|||1"
        for name in ("messages", "self", "add_generation_prompt", "tools", "bos_token", "a b", ""):
            error = other.error(400, "/apply-template", {"messages": HELLO, "chat_template_kwargs": {name: 1}})
            assert error["param"] == "chat_template_kwargs", name
        other.error(400, "/apply-template", {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": "no"}})
        assert prompt(chat_template_kwargs={"range": 1, "mine": 2}, x=1) == "Hello||||2", "x is ignored"
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        assert "[[[[" in prompt(chat_template_kwargs={"mine": deep})
    finally:
        other.close()


def test_what_chats_ask_for_and_do_not_get(server: Server) -> None:
    off = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "parallel_tool_calls": False}
    asked = {"messages": HELLO, "max_tokens": 3, "temperature": 0}
    want = post(server, "/v1/chat/completions", **asked)["choices"]
    assert post(server, "/chat/completions", **asked, **off, stop=None)["choices"] == want
    assert post(server, "/v1/chat/completions", **asked, tools=[TOOL], tool_choice="none")["choices"] == want
    for name, value in (
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "xml"}),
        ("response_format", "sound"),
        ("grammar", "root ::= [a-z"),
        ("chat_template", "{{ 1 }}"),
    ):
        param = str(server.error(400, "/v1/chat/completions", {**asked, name: value})["param"])
        assert re.split("[./]", param)[0] == name
    n = post(server, "/chat/completions/input_tokens", messages=HELLO)["input_tokens"]
    template = server.model.chat_template
    assert template is not None and n == len(rendered_ids(server.model.tokenizer, template.render(HELLO)))


# --- the server's information ---
def test_props_slots_and_tokenizer(server: Server) -> None:
    def get(path: str) -> Any:
        return server.http.get(path).json()

    props = get("/props")
    assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == 256
    assert props["model_path"].endswith(".gguf") and "/" not in props["model_path"], "no folder of this machine"
    assert props["bos_token"] == "<|startoftext|>" and "messages" in props["chat_template"]
    assert props["default_generation_settings"]["params"]["temperature"] == 0.8
    info = get("/tokenizer_info")
    assert (info["eos_token"], info["pad_token"]) == ("<|endoftext|>", "<|pad|>")
    assert info["chat_template"] == props["chat_template"]
    eos = post(server, "/tokenize", prompt=info["eos_token"], add_special_tokens=False)["tokens"]
    assert eos == [server.model.tokenizer.eos]
    assert get("/version")["version"] and get("/v1/health") == {"status": "ok"} and get("/lora-adapters") == []
    assert get("/models") == get("/v1/models")
    idle = {"n_ctx": 256, "speculative": False, "is_processing": False}
    assert get("/slots") == [{"id": i, **idle} for i in range(4)]
    for path in ("/props",):  # nothing can be set while it runs
        assert server.error(405, path, {})["type"] == "invalid_request_error"


def test_metrics_count_what_timings_say(model: LoadedModel) -> None:
    server = Server(model)
    try:
        timings = [post(server, "/completion", **{**ASKED, "n_predict": n})["timings"] for n in (1, 4, 12)]
        response = server.http.get("/metrics")
    finally:
        server.close()
    lines = [line.split(" ") for line in response.text.splitlines() if line.startswith("llamacpp:")]
    values = {name.removeprefix("llamacpp:"): float(value) for name, value in lines}
    for name, key in (
        ("prompt_tokens_total", "prompt_n"),
        ("prompt_tokens_cached_total", "cache_n"),
        ("tokens_predicted_total", "predicted_n"),
    ):
        assert values[name] == sum(one[key] for one in timings)
    assert values["spec_decode_num_drafts_total"] <= values["spec_decode_num_draft_tokens_total"]
    assert timings[0]["predicted_per_second"] == timings[0]["predicted_per_token_ms"] == 0


def test_slots_while_answers_are_drawn(server: Server) -> None:
    body = {"prompt": [PROMPT, "Memory"], "n_predict": 20, "ignore_eos": True, "temperature": 0.5}
    with httpx.Client(base_url=server.url, timeout=WAIT) as other:
        thread = threading.Thread(target=other.post, args=("/completion",), kwargs={"json": body})
        with drawing_held(server, 2):
            thread.start()
            until(lambda: sum(slot["is_processing"] for slot in server.http.get("/slots").json()) == 2)
            busy = [slot for slot in server.http.get("/slots").json() if slot["is_processing"]]
        thread.join(WAIT)
    assert [slot["id"] for slot in busy] == [0, 1]
    assert all(slot["params"]["temperature"] == 0.5 and slot["n_prompt_tokens"] > 0 for slot in busy)
    assert "Memory" not in json.dumps(busy), "numbers only"


def test_defaults_of_the_server(model: LoadedModel) -> None:
    maker = Maker(
        model, model.chat_template, 6, defaults=ServerDefaults(5, SamplingParams(temp=0.0, seed=3), context_shift=True)
    )
    server = Server(model, maker=maker, slots=False)
    try:
        answer = post(server, "/completion", prompt=PROMPT)
        assert answer["tokens_predicted"] <= 5 and answer["generation_settings"]["temperature"] == 0
        assert answer["generation_settings"]["seed"] == 3
        assert post(server, "/completion", prompt=PROMPT, seed=4)["generation_settings"]["seed"] == 4
        assert post(server, "/v1/completions", prompt=PROMPT, ignore_eos=True)["usage"]["completion_tokens"] == 5
        assert server.http.get("/props").json()["default_generation_settings"]["params"]["seed"] == 3
        assert server.http.get("/slots").status_code == 501
        long = post(server, "/completion", prompt=PROMPT, n_predict=300, ignore_eos=True, n_keep=3)
        assert long["truncated"] and long["tokens_predicted"] == 300 and long["stop_type"] == "limit"
    finally:
        server.close()


def test_an_answer_that_fills_the_context_is_truncated(server: Server) -> None:
    answer = post(server, "/completion", prompt=PROMPT, n_predict=-1, ignore_eos=True)
    assert answer["truncated"] and answer["stop_type"] == "limit"
    assert answer["tokens_evaluated"] + answer["tokens_predicted"] == 257, "the last token is drawn, and fits no more"
