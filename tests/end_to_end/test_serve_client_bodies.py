"""Bodies as clients send them: fields that other servers accept are accepted, and ignored fields are reported.

tests/data/serve/client_bodies.jsonl has a body on each line, written for this test from knowledge of its client, not
recorded from it:

    exercises  the unusual part of the body
    taken_by   llama-server if it was seen to accept it (benchmarks/CLIENT_BODIES.md), and servers that should, judging
               by their code and from memory: these were not tried
    warnings   the fields that are passed over here
    refused    the field that is refused here, and `why`
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hybrid.cli.serve.app import create_app
from hybrid.cli.serve.jobs import Maker, ServerDefaults
from hybrid.cli.serve.models.router import ModelRouter
from hybrid.cli.serve.request_log import RequestLog
from hybrid.cli.serve.served import Served
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.cli.serve.warning_log import WarningLog
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.service import Service

pytestmark = pytest.mark.exhaustive

BODIES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "serve" / "client_bodies.jsonl").read_text("utf-8").splitlines()
]
MOST = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
FEW = 3  # tokens of an answer: the body's number may take minutes


class Client:
    """The application without a socket, and its log of each request."""

    def __init__(self, model: LoadedModel) -> None:
        self.service = Service(model, 4, most_waiting=2)
        self.requests: list[RequestLog] = []
        maker = Maker(model, model.chat_template, 6, defaults=ServerDefaults(n_predict=FEW))
        settings = ServerSettings(log=self.requests.append)
        self.router = ModelRouter.of(Served(self.service, maker, "tiny", settings))
        self.http = TestClient(create_app(self.router))

    def post(self, route: str, body: dict[str, Any]) -> Any:
        """Send a body with a smaller token limit; return the response."""
        self.router.told = WarningLog()
        self.requests.clear()
        few = {name: FEW for name in MOST if (body.get(name) or 0) > FEW or body.get(name) == -1}
        return self.http.post(route, json={**body, **few})

    @property
    def told(self) -> list[str]:
        """The warnings of the last request."""
        return [note for note in self.requests[-1].notes if " is ignored: " in note]


@pytest.fixture(scope="module")
def client(files: dict[str, Path]) -> Iterator[Client]:
    with LoadedModel.load(files["q8_0"], n_ctx=2048, n_seq_max=5) as model:
        client = Client(model)
        yield client
        client.http.close()
        client.service.close()


def _name(row: dict[str, Any]) -> str:
    return f"{row['client']}: {row['exercises']}"


@pytest.mark.parametrize("row", BODIES, ids=_name)
def test_a_body(client: Client, row: dict[str, Any]) -> None:
    response = client.post(row["route"], row["body"])
    if "refused" in row:
        assert response.status_code in (400, 404), response.text
        error = response.json()["error"]
        place = error.get("param") or error["message"].partition(":")[0]
        assert place == row["refused"] or place.startswith((f"{row['refused']}.", f"{row['refused']}/")), error
        return
    assert response.status_code == 200, response.text
    assert '"error": {' not in response.text, "of a stream"
    places = [warning.partition(" is ignored: ")[0] for warning in client.told]
    assert sorted(places) == sorted(row["warnings"])
    usage = {} if row["body"].get("stream") else response.json().get("usage", {})
    if usage:
        assert usage.get("warnings", []) == client.told


def test_the_bodies_are_many_and_refusals_have_reasons() -> None:
    assert len(BODIES) >= 100 and len({_name(row) for row in BODIES}) == len(BODIES)
    assert all(row["taken_by"] for row in BODIES)
    assert all(row["why"] for row in BODIES if "refused" in row)


# --- supported fields ---
PROMPT = "State space models keep what they have read"
ASKED = {"prompt": PROMPT, "temperature": 0, "max_tokens": 3}


def answer(client: Client, **more: Any) -> Any:
    """The first choice of a completion."""
    response = client.post("/v1/completions", {**ASKED, **more})
    assert response.status_code == 200 and not client.told, response.text
    return response.json()["choices"][0]


def refused(client: Client, **more: Any) -> str:
    """The field named in the error."""
    response = client.post("/v1/completions", {**ASKED, **more})
    assert response.status_code == 400, response.text
    return str(response.json()["error"]["param"])


def test_a_penalty_by_vllms_name(client: Client) -> None:
    """It covers the whole text: also a token far before the end of the prompt."""
    first, filler = client.service.model.tokenizer.encode("State model", add_special=False)[:2]
    asked = {"prompt": [first, *[filler] * 100], "logit_bias": {str(first): 100}, "max_tokens": 1}
    plain, ours = answer(client, **asked), answer(client, **asked, repeat_penalty=1e6, repeat_last_n=-1)
    assert plain == answer(client, **asked, repeat_penalty=1e6) != ours
    assert answer(client, **asked, repetition_penalty=1e6) == ours
    assert answer(client, **asked, repetition_penalty=1.0) == plain
    assert answer(client, **asked, repetition_penalty=1e6, repeat_last_n=64) == plain
    assert refused(client, repetition_penalty=0) == "repetition_penalty"
    client.post("/v1/completions", {**asked, "repetition_penalty": 1e6, "repeat_penalty": 1.0})
    assert client.told == ["repetition_penalty is ignored: repeat_penalty says the same"]


def test_tokens_that_end_an_answer(client: Client) -> None:
    tokenizer = client.service.model.tokenizer
    native = client.post("/completion", {**ASKED, "return_tokens": True}).json()
    first, second = native["tokens"][:2]
    assert first != second
    ended = answer(client, stop_token_ids=[second, 2**70, -1])
    assert (ended["text"], ended["finish_reason"]) == (tokenizer.piece(first).decode(), "stop")
    late = answer(client, stop_token_ids=[second], min_tokens=3)
    assert late["finish_reason"] == "length" and late["text"] != native["content"], "it was not drawn"
    assert answer(client, stop=tokenizer.piece(second).decode(), min_tokens=3)["text"] == native["content"]
    assert refused(client, min_tokens=-1) == "min_tokens"


def test_the_end_of_a_prompt(client: Client) -> None:
    ids = client.service.model.tokenizer.encode(PROMPT)
    assert answer(client, truncate_prompt_tokens=3) == answer(client, prompt=ids[-3:])
    assert answer(client, truncate_prompt_tokens=-1) == answer(client, truncate_prompt_tokens=500) == answer(client)
    long = answer(client, prompt="word " * 3000, truncate_prompt_tokens=-1)
    assert long["finish_reason"] == "length", "there is room for the answer"
    assert refused(client, truncate_prompt_tokens=0) == refused(client, truncate_prompt_tokens=-2)


def test_special_tokens_in_the_text(client: Client) -> None:
    tokenizer = client.service.model.tokenizer
    mark = next(i for i in range(tokenizer.n_vocab) if tokenizer.is_control(i) and not tokenizer.is_eog(i))
    forced = {"logit_bias": {str(mark): 1000}, "max_tokens": 1, "logprobs": 0}
    assert answer(client, **forced)["text"] == ""
    told = answer(client, **forced, skip_special_tokens=False)
    assert told["text"] == told["logprobs"]["tokens"][0] == tokenizer.piece(mark).decode()


def test_values_at_the_edge(client: Client) -> None:
    assert answer(client, temperature=1, top_p=0) == answer(client)
    assert answer(client, temperature=1, seed=-5) == answer(client, temperature=1, seed=2**64 - 5)
    assert answer(client, top_k=-1, seed=-1, stop=None, logit_bias=None) == answer(client)


def test_a_form_by_vllms_newer_names(client: Client) -> None:
    for form in ({"choice": ["yes"]}, {"regex": "yes"}, {"grammar": 'root ::= "yes"'}):
        assert answer(client, structured_outputs=form)["text"] == "yes"
    number = answer(client, structured_outputs={"json": {"type": "integer"}}, max_tokens=3)
    assert int(number["text"]) is not None
    assert refused(client, structured_outputs={"choice": ["a"], "regex": "b"}) == "structured_outputs"
    assert refused(client, structured_outputs={"structural_tag": "{}"}) == "structured_outputs.structural_tag"
    assert refused(client, structured_outputs={"regex": "a"}, guided_regex="a") == "structured_outputs"
