"""Conversations in requests: their messages, and what else decides how the model's template writes them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.text.chat_template import ChatTemplate

from .errors import RequestError
from .fields import Strict, Unsupported
from .jobs import Maker, Prompt

# what a template gets from the server: a request cannot replace it
_OURS = (
    "self",
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
)


class TextPart(Strict):
    """A part of a message. Others (images, audio) are refused: these models read text."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """One message of a conversation."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: Unsupported

    def as_template(self) -> dict[str, str]:
        """As chat templates want it."""
        content = self.content
        text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
        role = "system" if self.role == "developer" else self.role  # OpenAI's newer name
        return {"role": role, "content": text, **({"name": self.name} if self.name else {})}


class ConversationFields(Strict):
    """Messages, and what the template is told beside them.

    continue_final_message  the last message is the beginning of the answer; None: it is where the assistant has it
    reasoning_effort        "none": enable_thinking = false; others are the template's own variable
    """

    messages: Annotated[list[Message], Field(min_length=1)]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template: Any = None


def rendered(maker: Maker, body: ConversationFields, tools: Sequence[dict[str, Any]] | None = None) -> str:
    """The conversation as the model reads it. RequestError, or TemplateError where the template refuses it."""
    template, messages, more = _parts(maker, body, tools)
    return _continued(template, messages, more) if _continues(body) else template.render(messages, **more)


def conversation(maker: Maker, body: ConversationFields) -> Prompt:
    """The same, as the model gets it."""
    _, messages, more = _parts(maker, body, None)
    return maker.rendered(rendered(maker, body), messages, **more)


def _parts(
    maker: Maker, body: ConversationFields, tools: Sequence[dict[str, Any]] | None
) -> tuple[ChatTemplate, list[dict[str, str]], dict[str, Any]]:
    """The template, the messages, and what else it is told."""
    if body.chat_template is not None:
        raise RequestError("chat_template: only the model's own is used", param="chat_template")
    if body.add_generation_prompt and body.continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    more = {**_variables(body), "tools": tools, "add_generation_prompt": body.add_generation_prompt is not False}
    return maker.checked_template(), [message.as_template() for message in body.messages], more


def _variables(body: ConversationFields) -> dict[str, Any]:
    given = body.chat_template_kwargs or {}
    for name, value in given.items():
        if name in _OURS or not name.isidentifier():
            raise RequestError(f"chat_template_kwargs: {name[:80]!r} cannot be set", param="chat_template_kwargs")
        if name == "enable_thinking" and not isinstance(value, bool):
            raise RequestError(
                "chat_template_kwargs: enable_thinking is true or false", param="chat_template_kwargs.enable_thinking"
            )
    if body.reasoning_effort is None:
        return given
    if body.reasoning_effort == "none":
        return {**given, "enable_thinking": False}
    return {**given, "reasoning_effort": body.reasoning_effort}


def _continues(body: ConversationFields) -> bool:
    """Whether the answer goes on from the last message. RequestError: it follows another of the assistant's."""
    roles = [message.role for message in body.messages]
    if body.continue_final_message is not None:
        return body.continue_final_message
    if roles[-1] == "assistant" and roles[-2:-1] == ["assistant"]:
        raise RequestError("two messages of the assistant at the end: one can be continued", param="messages")
    return roles[-1] == "assistant"


def _continued(template: ChatTemplate, messages: list[dict[str, str]], more: dict[str, Any]) -> str:
    """Up to the end of the last message's text, without what the template writes behind it."""
    last = messages[-1]["content"]
    text = template.render(messages, **{**more, "add_generation_prompt": False})
    for tail in (last, last.strip()):  # some templates strip it
        at = text.rfind(tail) if tail else -1
        if at >= 0:
            return text[: at + len(tail)]
    return template.render(messages[:-1], **{**more, "add_generation_prompt": True}) + last
