"""Items of /v1/responses as messages, and the events of items."""

import json
from typing import Any

from pydantic import TypeAdapter

from hybrid.cli.serve.openai.items import InputItem, ItemEvents, messages_of
from hybrid.infer.answers.chat.reader import AnswerPart

ITEMS: TypeAdapter[Any] = TypeAdapter(list[InputItem])


def converted(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return messages_of(ITEMS.validate_python(items))


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name * 3, "name": name, "arguments": "{}", "id": "fc"}


def test_items_of_one_answer_are_one_message() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call."}]}
    given = [
        {"role": "user", "content": "Hello"},
        reasoning("Hm."),
        said,
        call("f"),
        call("g"),
        {"type": "function_call_output", "call_id": "fff", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "function_call_output", "call_id": "ggg", "output": "2"},
        reasoning("So."),
        said,
        reasoning("Again."),
        call("f"),
    ]
    messages = converted(*given)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "assistant"]
    first, last = messages[1], messages[-1]
    assert first["reasoning_content"] == "Hm." and first["content"] == "I call."
    assert [one["function"]["name"] for one in first["tool_calls"]] == ["f", "g"]
    assert messages[2] == {"role": "tool", "tool_call_id": "fff", "content": "1"}
    assert last["reasoning_content"] == "Again." and last["tool_calls"] and "content" not in last


def test_two_answers_stay_two_messages() -> None:
    said = {"role": "assistant", "content": "Hi."}
    assert converted(said, said) == [said, said]
    assert len(converted(call("f"), said)) == 2, "text behind calls is another message"


def test_events_are_the_items() -> None:
    """Joined deltas give the whole; each item begins and ends once."""
    told: list[dict[str, Any]] = []

    def send(kind: str, **more: Any) -> str:
        told.append({"type": kind, **json.loads(json.dumps(more))})
        return ""

    events = ItemEvents(send)
    parts = [
        AnswerPart("thought", "H"),
        AnswerPart("thought", "m."),
        AnswerPart("text", "I "),
        AnswerPart("text", "call."),
        AnswerPart("call", "f", 0, "a" * 9),
        AnswerPart("arguments", "{", 0),
        AnswerPart("arguments", "}", 0),
        AnswerPart("call", "g", 1, "b" * 9),
        AnswerPart("arguments", "{}", 1),
    ]
    for part in parts:
        list(events.told([part], []))
    list(events.end("incomplete"))
    items = [item.as_json("completed") for item in events.items]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call", "function_call"]
    done = [event for event in told if event["type"] == "response.output_item.done"]
    assert [event["item"]["id"] for event in done] == [item["id"] for item in items]
    assert [event["item"]["status"] for event in done] == ["completed"] * 3 + ["incomplete"]
    for index, item in enumerate(items):
        joined = "".join(event["delta"] for event in told if event.get("output_index") == index and "delta" in event)
        assert joined == (item["arguments"] if "arguments" in item else item["content"][0]["text"])
    added = [event for event in told if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    assert added[2]["item"]["arguments"] == "" and added[0]["item"]["content"] == []


def test_logprobs_are_of_the_text_alone() -> None:
    told: list[dict[str, Any]] = []
    events = ItemEvents(lambda kind, **more: str(told.append({"type": kind, **more})))
    list(events.told([AnswerPart("thought", "Hm.")], [{"token": "lost"}]))
    list(events.told([AnswerPart("text", "a")], [{"token": "a"}]))
    list(events.told([], [{"token": "b"}]))
    assert [one["token"] for one in events.items[1].logprobs] == ["a", "b"]
    assert all("logprobs" not in event for event in told if event.get("output_index") == 0 and "delta" in event)
