"""Conversations in ollama's format, and their translation to OpenAI's messages."""

import json
from collections.abc import Sequence
from typing import Any

from ..fields import Ignored, Strict
from ..pictures.parts import GivenPicture, as_content


class OllamaFunction(Strict):
    """Name and arguments of a call."""

    name: str
    arguments: dict[str, Any] | str = ""
    index: Ignored
    description: Ignored


class OllamaCall(Strict):
    """A call in an earlier answer."""

    function: OllamaFunction
    id: str | None = None
    type: Ignored

    def as_openais(self) -> dict[str, Any]:
        """The call in OpenAI's format."""
        given = self.function.arguments
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return {"id": self.id, "function": {"name": self.function.name, "arguments": arguments}}


class OllamaMessage(Strict):
    """One message. images: files of pictures as base64. The pictures are before the text."""

    role: str
    content: str = ""
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def as_openais(self, place: str) -> dict[str, Any]:
        """The message in OpenAI's format. place: of the message in the body."""
        return {
            "role": self.role.lower(),
            "content": as_content([*given_pictures(self.images, place), self.content]),
            "name": self.name or self.tool_name,
            "tool_calls": [call.as_openais() for call in self.tool_calls] if self.tool_calls else None,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.thinking,
        }


def given_pictures(images: Sequence[str] | None, place: str = "") -> list[GivenPicture]:
    """The pictures of a list `images`. place: of the object with the list."""
    beginning = f"{place}." if place else ""
    return [GivenPicture(f"{beginning}images.{at}", data) for at, data in enumerate(images or ())]
