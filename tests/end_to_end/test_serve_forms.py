"""Constrained answers of a server, beside other answers and with all features of the server."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from http_server import Server

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import open_store

pytestmark = pytest.mark.exhaustive

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
HELLO = [{"role": "user", "content": "Who are you?"}]


@pytest.fixture(scope="module")
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as model:
        server = Server(model)
        yield server
        server.close()


def complete(server: Server, path: str = "/v1/completions", **body: Any) -> str:
    response = server.http.post(path, json={"max_tokens": 120, "temperature": 2.0, "seed": 1, "top_k": 0, **body})
    assert response.status_code == 200, response.text
    value = response.json()
    if "choices" not in value:
        return str(value["content"])
    choice = value["choices"][0]
    assert choice["finish_reason"] == "stop"
    return str(choice.get("text", choice.get("message", {}).get("content")))


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"guided_regex": "[ab]{3}-[0-9]"}, r"[ab]{3}-[0-9]"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"grammar": 'root ::= "a" [0-9]{2} "z"'}, r"a\d\dz"),
    ({"guided_grammar": 'start: "q" /[0-9]/'}, r"q\d"),
    ({"json_schema": {"enum": ["x", 5]}}, '"x"|5'),
    ({"guided_json": {"type": "boolean"}}, "true|false"),
]


@pytest.mark.parametrize(("form", "expression"), FORMS, ids=str)
def test_every_way_to_ask(server: Server, form: dict[str, Any], expression: str) -> None:
    for path in ("/v1/completions", "/completion"):
        assert re.fullmatch(expression, complete(server, path, prompt="Say", **form))
    assert re.fullmatch(expression, complete(server, "/v1/chat/completions", messages=HELLO, **form))


def test_schemas_of_openais_clients(server: Server) -> None:
    formats: list[dict[str, Any]] = [
        {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}},
        {"type": "json_object", "schema": PERSON},
    ]
    for given in formats:
        value = json.loads(complete(server, "/v1/chat/completions", messages=HELLO, response_format=given))
        assert value.keys() == {"name", "age"} and 0 <= value["age"] <= 99
    answer = server.openai.responses.create(
        model="tiny",
        input="Who?",
        max_output_tokens=120,
        text={"format": {"type": "json_schema", "name": "p", "schema": PERSON, "strict": True}},  # type: ignore[arg-type]
    )
    assert json.loads(answer.output_text).keys() == {"name", "age"}


def test_the_same_answer_whole_streamed_beside_others_and_with_logprobs(server: Server) -> None:
    body = {"prompt": "An object:", "json_schema": PERSON}
    want = complete(server, **body)
    assert complete(server, **body, logprobs=1) == want, "tokens that are forced have logprobs like others"
    assert complete(server, **body, speculate=False) == want
    asked = {"max_tokens": 120, "temperature": 2.0, "seed": 1, "top_k": 0, **body}
    with server.http.stream("POST", "/v1/completions", json={**asked, "stream": True}) as response:
        lines = [line[6:] for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == want
    many = server.http.post("/v1/completions", json={**asked, "prompt": ["An object:", "Other", "More"]}).json()
    assert many["choices"][0]["text"] == want
    assert all(json.loads(choice["text"]) for choice in many["choices"])


def test_what_cannot_be_a_form_is_refused(server: Server) -> None:
    for body, says in (
        ({"json_schema": {"not": {}}}, "the schema cannot be used: Unimplemented keys"),
        ({"json_schema": {"properties": {"a": {"uniqueItems": True}}}}, "(at /properties/a)"),
        ({"grammar": "root ::= foo"}, "the grammar cannot be read"),
        ({"guided_regex": "("}, "the expression cannot be used"),
        ({"guided_choice": [""]}, "the choices"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex and guided_choice exclude each other"),
        ({"response_format": {"type": "json_schema"}}, "json_schema has no schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ):
        assert says in str(server.error(400, "/v1/completions", {"prompt": "a", **body})["message"]), body
    assert server.service.fault is None


INTERSECTIONS = {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(5, 25)], "type": "string"}
CHAIN = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(15000)} | {"d15000": {"type": "string"}}


Hostile = list[tuple[dict[str, Any], str]]
HANGS: Hostile = [
    ({"json_schema": INTERSECTIONS}, "compiling it takes more than 2 seconds, or too much memory"),
    ({"json_schema": {"$defs": CHAIN, "$ref": "#/$defs/d0"}}, "compiling it takes more than 2 seconds"),
]


@pytest.mark.parametrize(
    "more", [pytest.param([], id="quick"), pytest.param(HANGS, id="hangs", marks=pytest.mark.matrix)]
)
def test_what_hurts_is_refused_while_others_are_answered(
    more: list[tuple[dict[str, Any], str]], server: Server
) -> None:
    """Forms that cause a hang, a stack overflow, 10 MB or an explosion: other requests notice nothing, and the next
    form is compiled."""
    hostile: Hostile = [
        *more,
        ({"json_schema": {"enum": ["x" * 1000] * 10_000}}, "the schema has 10040010 bytes"),
        ({"guided_regex": "(a{1000}){1000}"}, "too many expressions constructed"),
        ({"grammar": "root ::= a\na ::= b\nb ::= a"}, "nothing fits the grammar"),
        ({"guided_grammar": "start: " + "(" * 20000 + '"a"' + ")" * 20000}, "the grammar cannot be used"),
        ({"json_schema": PERSON, "grammar": 'root ::= "a"'}, "grammar and json_schema exclude each other"),
    ]
    want = complete(server, prompt="An object:", json_schema=PERSON)
    with ThreadPoolExecutor(len(hostile)) as pool:
        refused = [
            pool.submit(server.error, 400, "/v1/completions", {"prompt": "a", **body, "max_tokens": 5})
            for body, _ in hostile
        ]
        for _ in range(3):
            assert complete(server, prompt="An object:", json_schema=PERSON) == want
        for asked, (_, says) in zip(refused, hostile, strict=True):
            message = str(asked.result()["message"])
            assert says in message and "\n" not in message, message
    assert complete(server, prompt="a", guided_choice=["after", "that"]) in ("after", "that")
    assert server.service.fault is None


def test_too_many_forms_at_once_are_told_to_come_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.infer.answers.constraints.forms.MOST_WAITING", 0)
    error = server.error(429, "/v1/completions", {"prompt": "a", "guided_regex": "never seen [0-9]"})
    assert "forms of answers wait to be compiled. Try again later." in str(error["message"])


def test_a_slot_is_saved_and_restored_between_answers(files: dict[str, Path], tmp_path: Path) -> None:
    """Only complete texts are saved, without a form: it belongs to one request."""
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=32 << 20) as model:
        store = open_store(model, tmp_path, 1 << 30, print)
        store.files.list_all()
        server = Server(model, store=store)
        assert complete(server, prompt="Say", guided_choice=["yes"], id_slot=0) == "yes"
        for action in ("save", "restore"):
            response = server.http.post(f"/slots/0?action={action}", json={"filename": "slot.bin"})
            assert response.status_code == 200, response.text
        assert complete(server, prompt="Say", guided_choice=["no"], id_slot=0) == "no"
        assert complete(server, prompt="Sayyes", guided_regex="[0-9]{3}", id_slot=0).isdecimal()
        server.close()
        store.folder.close()


def test_a_dead_end_is_an_error_and_hurts_nobody(server: Server) -> None:
    """The answer never becomes free text; other answers continue."""
    banned = {str(i): -100 for i in range(server.model.n_vocab)}
    body = {"prompt": "a", "guided_choice": ["yes", "no"], "logit_bias": banned, "max_tokens": 5}
    error = server.error(400, "/v1/completions", body)
    assert "no token that may be sampled fits the choice here" in str(error["message"])
    assert complete(server, prompt="a", guided_choice=["yes"]) == "yes"
