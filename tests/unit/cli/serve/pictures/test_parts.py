"""Pictures in messages, and messages of other APIs with pictures."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from hybrid.cli.serve.anthropic import blocks
from hybrid.cli.serve.conversations import Message
from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.openai import items
from hybrid.cli.serve.pictures.parts import GivenPicture, PicturePart, as_content, joined


def told(content: Any) -> Any:
    """A content with (place, source, is_base64) for its pictures."""
    if not isinstance(content, list):
        return content
    made = []
    for part in content:
        given = part if isinstance(part, GivenPicture) else part.get("image_url") if isinstance(part, dict) else None
        is_given = isinstance(given, GivenPicture)
        made.append((given.place, given.source, given.is_base64) if is_given else part)
    return made


def test_texts_between_pictures_are_joined() -> None:
    one, other = GivenPicture("a", "x"), GivenPicture("b", "y")
    assert joined([]) == "" and joined(["a", "", "b"]) == "ab"
    assert joined(["a", "b", one, "", other, "c", "d"]) == ["ab", one, other, "cd"]
    assert as_content(["a", "b"]) == "ab"
    assert as_content([one, "a"]) == [{"type": "image_url", "image_url": one}, {"type": "text", "text": "a"}]


def test_places_in_a_chat() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "x", "detail": "high"}},
        {"type": "image_url", "image_url": "y"},
        {"type": "refusal", "refusal": "no"},
    ]
    message = Message.model_validate({"role": "user", "content": parts})
    said = ["a", ("messages.3.content.1", "x", False), ("messages.3.content.2", "y", False), "no"]
    assert told(message.said("messages.3")) == said
    assert Message.model_validate({"role": "user", "content": parts[::3]}).said("messages.0") == "ano"


def test_no_client_makes_an_instance() -> None:
    for value in ({"place": "a", "source": "x"}, {"place": "a", "source": "x", "is_base64": True}, 5, ["x"]):
        with pytest.raises(ValidationError):
            PicturePart.model_validate({"type": "image_url", "image_url": value})
    with pytest.raises(RequestError, match=r"^input\.0\.image_url: expected the picture as a data URL$"):
        PicturePart.model_validate({"type": "input_image"}).given("input.0")
    assert "secret" not in repr(GivenPicture("a", "secret")), "a traceback shows no picture"


def test_anthropics_places() -> None:
    def picture(data: str) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture("c"), {"type": "text", "text": "d"}]}
    content = [{"type": "text", "text": "a"}, picture("b"), result, picture("e"), {"type": "text", "text": "f"}]
    url = {"type": "image", "source": {"type": "url", "url": "g"}}
    given = [
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": content},
        {"role": "user", "content": [url]},
    ]
    messages = blocks.messages_of([blocks.InputMessage.model_validate(message) for message in given])
    assert [message["role"] for message in messages] == ["user", "user", "tool", "user", "user"]
    assert [told(message["content"]) for message in messages] == [
        "Hello",
        [{"type": "text", "text": "a"}, ("messages.1.content.1", "b", True)],
        [("messages.1.content.2.content.0", "c", True), {"type": "text", "text": "d"}],
        [("messages.1.content.3", "e", True), {"type": "text", "text": "f"}],
        [("messages.2.content.0", "g", False)],
    ]


def test_places_in_responses() -> None:
    image = {"type": "input_image", "image_url": "x"}
    given = [
        {"role": "user", "content": [image, {"type": "input_text", "text": "a"}]},
        {"type": "function_call_output", "call_id": "t", "output": [{"type": "input_text", "text": "b"}, image]},
        {"type": "function_call_output", "call_id": "t", "output": [{"type": "input_text", "text": "b"}]},
    ]
    made = items.messages_of(TypeAdapter(list[items.InputItem]).validate_python(given))
    assert [told(message["content"]) for message in made] == [
        [("input.0.content.0", "x", False), {"type": "text", "text": "a"}],
        [{"type": "text", "text": "b"}, ("input.1.output.1", "x", False)],
        "b",
    ]
