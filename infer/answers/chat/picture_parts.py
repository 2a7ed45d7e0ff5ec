"""Pictures in the messages of a chat, and their place in the text that a template writes.

A message's content may be a list of parts: {"type": "text", "text": ...} and {"type": "image", "image": picture}. A
template sees only {"type": "image"} of a picture and writes its placeholder there; the picture's own text replaces it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from hybrid.quant.ggml.errors import PictureError, TemplateError

from ...pictures.placeholders import expanded
from ...text.chat_template import ChatTemplate
from .format import ChatFormat

Message = Mapping[str, Any]
Content = str | list[dict[str, Any]]


class SeenInText(Protocol):
    """A picture in a message. placeholder: what a template writes for it; text: what stands for it in a prompt.

    written  the placeholder, with the text that the model expects around it if no template writes that
    """

    @property
    def placeholder(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def written(self) -> str: ...


def is_picture(part: object) -> bool:
    """Whether a part of a message's content is a picture that was read."""
    return isinstance(part, dict) and part.get("type") == "image" and hasattr(part.get("image"), "placeholder")


def part_of(picture: Any) -> dict[str, Any]:
    """The part of a content that shows a picture."""
    return {"type": "image", "image": picture}


def has_pictures(content: object) -> bool:
    return isinstance(content, list) and any(map(is_picture, content))


def pictures_in(messages: Iterable[Message]) -> list[Any]:
    """The pictures of the messages, in order."""
    contents = (message.get("content") for message in messages)
    return [part["image"] for content in contents if isinstance(content, list) for part in content if is_picture(part)]


def joined(*contents: Content, between: str = "") -> Content:
    """One content of several, with `between` between them: a text, or a list if one of them has pictures."""
    some = [content for content in contents if content]
    if all(isinstance(content, str) for content in some):
        return between.join(content for content in some if isinstance(content, str))
    parts: list[dict[str, Any]] = []
    for content in some:
        new = [_text(content)] if isinstance(content, str) else [dict(part) for part in content]
        if parts and between:
            new.insert(0, _text(between))
        for part in new:
            if parts and not is_picture(part) and not is_picture(parts[-1]):
                parts[-1] = _text(parts[-1]["text"] + part["text"])
            else:
                parts.append(part)
    return parts


def plain_content(content: Content | None) -> str:
    """The content of a message as the text of a prompt, without a template: pictures are their own texts."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part["image"].text if is_picture(part) else part["text"] for part in content)


def with_results_told(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For templates that take no pictures in results of tools: they follow in a message of the user."""
    made: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for message in messages:
        if waiting and message["role"] != "tool":
            made.append({"role": "user", "content": waiting})
            waiting = []
        if message["role"] == "tool" and has_pictures(message["content"]):
            pictures = [part for part in message["content"] if is_picture(part)]
            texts = "".join(part["text"] for part in message["content"] if not is_picture(part))
            waiting, message = [*waiting, *pictures], {**message, "content": texts}
        made.append(message)
    return [*made, {"role": "user", "content": waiting}] if waiting else made


def rendered(
    template: ChatTemplate, form: ChatFormat, messages: Sequence[Message], variables: Mapping[str, Any], *, ask: bool
) -> str:
    """The text of the messages; ask: with the beginning of an answer.

    A template that takes no parts, or leaves pictures out, gets their placeholders as text. Raises TemplateError, and
    PictureError if it does not write every picture once.
    """
    given = {**variables, "add_generation_prompt": ask}
    pictures = pictures_in(messages)
    if not pictures:
        return template.render(_as_parts(messages) if form.needs_parts else messages, **given)
    ways = [[_without_pictures(message) for message in messages]]
    if form.needs_parts:
        ways[0] = _as_parts(ways[0])
    else:
        ways.append([_as_text(message) for message in messages])
    refusal: TemplateError | PictureError | None = None
    for way in ways if form.takes_parts else ways[1:]:
        try:
            return expanded(template.render(way, **given), pictures[0].placeholder, pictures)
        except (TemplateError, PictureError) as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _as_parts(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [
        {**message, "content": [_text(content)]} if isinstance(content := message["content"], str) else dict(message)
        for message in messages
    ]


def _without_pictures(message: Message) -> dict[str, Any]:
    """The message as a template sees it."""
    content = message["content"]
    if not isinstance(content, list):
        return dict(message)
    return {**message, "content": [{"type": "image"} if is_picture(part) else part for part in content]}


def _as_text(message: Message) -> dict[str, Any]:
    """The message with placeholders in its text."""
    content = message["content"]
    if not isinstance(content, list):
        return dict(message)
    return {**message, "content": "".join(p["image"].written if is_picture(p) else p["text"] for p in content)}
