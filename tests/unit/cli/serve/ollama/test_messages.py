"""ollama's messages translated to OpenAI's format."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hybrid.cli.serve.ollama.messages import OllamaMessage, given_pictures
from hybrid.cli.serve.pictures.parts import GivenPicture


def converted(**message: Any) -> dict[str, Any]:
    """The message without its empty fields."""
    made = OllamaMessage.model_validate(message).as_openais("messages.3")
    return {name: value for name, value in made.items() if value is not None}


def test_texts_calls_and_results() -> None:
    assert converted(role="User", content="Hi", images=[]) == {"role": "user", "content": "Hi"}
    assert converted(role="assistant", content=None, thinking="Hm") == {
        "role": "assistant", "content": "", "reasoning_content": "Hm"
    }  # fmt: skip
    call = {"id": "a", "type": "function", "function": {"index": 0, "name": "look", "arguments": {"what": "über"}}}
    (made,) = converted(role="assistant", tool_calls=[call])["tool_calls"]
    assert made["id"] == "a" and made["function"]["name"] == "look"
    assert json.loads(made["function"]["arguments"]) == {"what": "über"} and "ü" in made["function"]["arguments"]
    result = converted(role="tool", content="5", tool_name="add", tool_call_id="a")
    assert result == {"role": "tool", "content": "5", "name": "add", "tool_call_id": "a"}


def test_pictures_are_before_the_text() -> None:
    first, second, text = converted(role="user", content="What?", images=["AAAA", "data:image/png;base64,BBBB"])[
        "content"
    ]
    assert text == {"type": "text", "text": "What?"}
    for at, (part, data) in enumerate(((first, "AAAA"), (second, "data:image/png;base64,BBBB"))):
        picture = part["image_url"]
        assert isinstance(picture, GivenPicture) and picture.source == data
        assert picture.place == f"messages.3.images.{at}"
    assert [picture.place for picture in given_pictures(["A", "B"])] == ["images.0", "images.1"]
    assert given_pictures(None) == []


@pytest.mark.parametrize(
    "wrong",
    [{}, {"role": 5}, {"role": "user", "content": ["Hi"]}, {"role": "user", "images": "AAAA"},
     {"role": "assistant", "tool_calls": [{"name": "look"}]}],
)  # fmt: skip
def test_wrong_messages(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OllamaMessage.model_validate(wrong)
