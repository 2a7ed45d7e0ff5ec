"""Stored responses by OpenAI's client, unmodified, over a real socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import Server, drawing_held, serving, until

from hybrid.cli.serve.openai.stored import StoredResponses
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive

ASKED: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 8}
MINE, OTHERS = ({"Authorization": f"Bearer {key}"} for key in ("first key", "second key"))


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=5, checkpoint_budget=32 << 20) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: LoadedModel) -> Iterator[Server]:
    with serving(model) as server:
        yield server
        assert server.service.n_jobs == 0


def ended(server: Server, name: str) -> Any:
    """A response in the background, once it has ended."""
    client = server.openai.responses
    until(lambda: client.retrieve(name).status not in ("queued", "in_progress"))
    return client.retrieve(name)


def read(response: Any) -> int:
    """The tokens that the model had to read for the response."""
    n: int = response.usage.input_tokens - response.usage.input_tokens_details.cached_tokens
    return n


def test_a_conversation_by_its_last_response(server: Server) -> None:
    """Only what is new is read, as with a client that sends everything."""
    client = server.openai.responses
    first = client.create(**ASKED, input="Tell me about files.", instructions="Be brief.")
    assert first.store is True and first.previous_response_id is None  # type: ignore[attr-defined]
    question = "And about folders, please."
    second = client.create(**ASKED, input=question, previous_response_id=first.id)
    assert second.previous_response_id == first.id and second.instructions is None
    whole = [{"role": "user", "content": "Tell me about files."}, *first.output, {"role": "user", "content": question}]
    alike = client.create(**ASKED, input=whole, store=False)  # type: ignore[arg-type]
    assert alike.output_text == second.output_text
    assert alike.usage is not None and second.usage is not None
    assert alike.usage.input_tokens == second.usage.input_tokens and read(alike) == 0
    # without other instructions everything before the new question is known, also the answer's tokens
    third = client.create(**ASKED, input=question, previous_response_id=second.id)
    assert second.usage.total_tokens - 1 <= third.usage.input_tokens_details.cached_tokens  # type: ignore[union-attr]
    new = third.usage.input_tokens - second.usage.total_tokens  # type: ignore[union-attr]
    assert 0 < read(third) <= new + 1
    assert client.retrieve(second.id).model_dump() == second.model_dump()


def test_input_items(server: Server) -> None:
    client = server.openai.responses
    first = client.create(**ASKED, input="Hello")
    items: Any = [
        {"role": "assistant", "content": "Hi."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_mine"},
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]
    second = client.create(**ASKED, input=items, previous_response_id=first.id)
    told = list(client.input_items.list(second.id, order="asc"))
    assert [item.type for item in told] == [
        "message",  # of the first request, and its answer
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert told[0].content[0].text == "Hello" and told[1].id == first.output[0].id  # type: ignore[union-attr]
    assert told[2].content[0].text == "Hi." and told[3].id == "fc_mine"  # type: ignore[union-attr]
    ids = [item.id for item in told]
    assert len(set(ids)) == len(ids)
    assert [item.id for item in client.input_items.list(second.id, limit=2)] == ids[::-1], "page by page"
    page = server.http.get(f"/v1/responses/{second.id}/input_items?limit=2&after={ids[4]}").json()
    assert [item["id"] for item in page["data"]] == [ids[3], ids[2]] and page["has_more"]
    assert (page["first_id"], page["last_id"]) == (ids[3], ids[2])
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=none"):
        refused = server.http.get(f"/v1/responses/{second.id}/input_items?{query}")
        assert refused.status_code == 400 and refused.json()["error"]["param"] == query.partition("=")[0]


def test_references_to_items(server: Server) -> None:
    """As the AI SDK sends them: the answer of a stored response by its ID."""
    client = server.openai.responses
    first = client.create(**ASKED, input="Hello")
    items: Any = [
        {"role": "user", "content": "Hello"},
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "More"},
    ]
    second = client.create(**ASKED, input=items)
    whole = client.create(**ASKED, input=[items[0], *first.output, items[2]])
    assert second.output_text == whole.output_text and second.usage is not None and whole.usage is not None
    assert second.usage.input_tokens == whole.usage.input_tokens and read(whole) <= 1
    listed: Any = client.input_items.list(second.id, order="asc").data[1]
    assert listed.content[0].text == first.output_text, "what it refers to is stored"
    missing = server.http.post("/v1/responses", json={"input": [{"type": "item_reference", "id": "msg_none"}]})
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "Item with id 'msg_none' not found."
    assert missing.json()["error"]["param"] == "input.0"


def test_a_stream_is_stored_at_its_end(server: Server) -> None:
    client = server.openai.responses
    with client.stream(**ASKED, input="Hello") as stream:
        final: Any = list(stream)[-1].response  # type: ignore[union-attr]
    assert client.retrieve(final.id).output_text == final.output_text != ""
    more = client.create(**ASKED, input="More", previous_response_id=final.id)
    assert more.usage is not None and final.usage is not None
    assert more.usage.input_tokens_details.cached_tokens >= final.usage.total_tokens - 1


def test_what_is_not_there(server: Server) -> None:
    from openai import BadRequestError, NotFoundError

    client = server.openai.responses
    hidden = client.create(**ASKED, input="Hello", store=False)
    assert hidden.store is False  # type: ignore[attr-defined]
    first = client.create(**ASKED, input="Hello")
    second = client.create(**ASKED, input="More", previous_response_id=first.id)
    assert client.delete(first.id) is None
    gone = server.http.delete(f"/v1/responses/{first.id}")
    assert gone.status_code == 404
    for name in (hidden.id, first.id, "resp_none"):
        says = f"Response with id '{name}' not found."
        for call in (client.retrieve, client.delete, client.cancel, client.input_items.list):
            with pytest.raises(NotFoundError) as missing:
                call(name)  # type: ignore[operator]
            assert missing.value.body["message"] == says  # type: ignore[index]
        with pytest.raises(BadRequestError) as refused:
            client.create(**ASKED, input="More", previous_response_id=name)
        assert refused.value.body["message"] == f"Previous response with id '{name}' not found."  # type: ignore[index]
        assert refused.value.param == "previous_response_id"
    with pytest.raises(BadRequestError, match=f"Previous response with id '{first.id}' not found."):
        client.create(**ASKED, input="More", previous_response_id=second.id)
    assert len(client.input_items.list(second.id).data) == 1, "those of the deleted response are gone"
    with pytest.raises(BadRequestError, match="Cannot cancel a synchronous response"):
        client.cancel(second.id)
    with pytest.raises(BadRequestError, match="background needs store = true"):
        client.create(**ASKED, input="a", background=True, store=False)


def test_answers_in_the_background(server: Server) -> None:
    client = server.openai.responses
    wanted = client.create(**ASKED, input="Hello")
    begun = client.create(**ASKED, input="Hello", background=True)
    assert begun.status == "queued" and begun.background is True and not begun.output
    found = ended(server, begun.id)
    assert (found.status, found.output_text) == ("incomplete", wanted.output_text)
    assert client.cancel(begun.id).model_dump() == found.model_dump(), "it has ended"
    more = client.create(**ASKED, input="More", previous_response_id=begun.id)
    assert more.usage is not None and more.usage.input_tokens_details.cached_tokens >= found.usage.total_tokens - 1


def test_events_of_the_background(server: Server) -> None:
    """A stream is read from any of its events on, while the answer runs and after it has ended."""
    client = server.openai.responses
    asked: dict[str, Any] = {**ASKED, "max_output_tokens": 20, "input": "Hello", "background": True}
    with drawing_held(server, n_tokens=3):
        stream = client.create(**asked, stream=True)
        first = [next(stream) for _ in range(5)]
        name = first[0].response.id
        stream.close()
        assert client.retrieve(name).status == "in_progress", "it goes on without its connection"
    events = list(client.retrieve(name, stream=True, starting_after=4))
    told = [*first, *events]
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert [event.type for event in told[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert told[0].response.status == "queued" and told[-1].type == "response.incomplete"
    final = told[-1].response
    assert "".join(event.delta for event in told if event.type == "response.output_text.delta") == final.output_text
    assert client.retrieve(name).output_text == final.output_text
    assert len(list(client.retrieve(name, stream=True))) == len(told)
    for query, param in (("stream=maybe", "stream"), ("stream=true&starting_after=-1", "starting_after")):
        refused = server.http.get(f"/v1/responses/{name}?{query}")
        assert refused.status_code == 400 and refused.json()["error"]["param"] == param
    other = client.create(**ASKED, input="Hello")
    assert "not kept" in server.http.get(f"/v1/responses/{other.id}?stream=true").json()["error"]["message"]


def test_cancelling(server: Server) -> None:
    """Of an answer that runs, one that waits, and one that is deleted."""
    from openai import BadRequestError, NotFoundError

    client = server.openai.responses
    asked: dict[str, Any] = {**ASKED, "max_output_tokens": 300, "input": "Hello", "background": True}
    with drawing_held(server, 4, n_tokens=3):
        begun = [client.create(**asked).id for _ in range(6)]
        until(lambda: sum(client.retrieve(name).status == "in_progress" for name in begun) == 4)
        assert client.retrieve(begun[-1]).status == "queued"
        with pytest.raises(BadRequestError, match="has not ended yet"):
            client.create(**ASKED, input="More", previous_response_id=begun[0])
        stream = server.openai.responses.retrieve(begun[0], stream=True)
        next(stream)
    cancelled = client.cancel(begun[0])
    assert cancelled.status == "cancelled" and cancelled.usage is None
    assert client.retrieve(begun[0]).status == client.cancel(begun[0]).status == "cancelled"
    assert all(event.type != "response.completed" for event in stream), "its streams end"
    assert client.cancel(begun[-1]).status == "cancelled"
    client.delete(begun[1])
    with pytest.raises(NotFoundError):
        client.retrieve(begun[1])
    for name in begun[2:5]:
        client.cancel(name)
    until(lambda: server.service.n_jobs == 0 and server.router.n_running == 0)
    assert client.create(**ASKED, input="More", previous_response_id=begun[0]).output_text


def test_keys_do_not_share_responses(model: LoadedModel) -> None:
    with serving(model, keys=("first key", "second key")) as server:
        asked = {"input": "Hello", "max_output_tokens": 2}
        name = server.http.post("/v1/responses", json=asked, headers=MINE).json()["id"]
        salted = {**asked, "cache_salt": "a"}
        other = server.http.post("/v1/responses", json=salted, headers=MINE).json()["id"]
        for path in (f"/v1/responses/{name}", f"/v1/responses/{name}/input_items"):
            assert server.http.get(path, headers=MINE).status_code == 200
            assert server.http.get(path, headers=OTHERS).status_code == 404
            assert server.http.get(path).status_code == 401
        assert server.http.delete(f"/v1/responses/{name}", headers=OTHERS).status_code == 404
        assert server.http.post(f"/v1/responses/{name}/cancel", headers=OTHERS).status_code == 404
        follow = {**asked, "previous_response_id": name}
        assert server.http.post("/v1/responses", json=follow, headers=OTHERS).status_code == 400
        assert server.http.post("/v1/responses", json=follow, headers=MINE).status_code == 200
        assert server.http.get(f"/v1/responses/{other}", headers=MINE).status_code == 404
        assert server.http.get(f"/v1/responses/{other}?cache_salt=a", headers=MINE).status_code == 200


def test_a_restart(model: LoadedModel, tmp_path: Path) -> None:
    """What runs in the background at the end has failed."""
    stored = StoredResponses(tmp_path / "responses")
    with serving(model, stored=stored) as server:
        first = server.openai.responses.create(**ASKED, input="Hello")
        with drawing_held(server, n_tokens=3):
            running = server.openai.responses.create(**{**ASKED, "max_output_tokens": 400}, input="a", background=True)
            until(lambda: len(list(tmp_path.rglob("*.json"))) == 2)
            copied = {path.name: path.read_bytes() for path in tmp_path.rglob("*.json")}
        server.openai.responses.cancel(running.id)
    stored.close()
    assert len(copied) == 2
    again = tmp_path / "again"
    again.mkdir()
    for name, data in copied.items():
        (again / name).write_bytes(data)
    stored = StoredResponses(again, warn=pytest.fail)
    with serving(model, stored=stored) as server:
        client = server.openai.responses
        assert client.retrieve(first.id).model_dump() == first.model_dump()
        failed = client.retrieve(running.id)
        assert failed.status == "failed" and failed.error is not None and "the server ended" in failed.error.message
        more = client.create(**ASKED, input="More", previous_response_id=first.id)
        assert more.output_text
    stored.close()
    assert len(list(again.glob("*.json"))) == 3
