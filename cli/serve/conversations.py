"""Conversations in requests: their messages and tools, and what else decides how the model's template writes them."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.answers.chat.dialect import Asked
from hybrid.infer.answers.chat.tools import choice_of, tools_of
from hybrid.quant.ggml.errors import UsageError

from .chats import Chat
from .errors import RequestError
from .fields import Ignored, Strict
from .jobs import Maker

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
_PLACE = re.compile(r"(tools|tool_choice|messages|documents)(/[^\s:]+)*")


class TextPart(Strict):
    """A part of a message. Others (images, audio) are refused: these models read text."""

    type: Literal["text"]
    text: str


class FunctionCall(Strict):
    """What was called, with what; arguments are JSON, as text or as they are."""

    name: str
    arguments: str | dict[str, Any] = ""


class MessageCall(Strict):
    """A call of a tool, as an answer had it."""

    function: FunctionCall
    id: str | None = None
    type: Literal["function"] = "function"
    index: Ignored

    def as_message(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        given = self.function.arguments
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        call = {"type": self.type, "function": {"name": self.function.name, "arguments": arguments or "{}"}}
        return call if self.id is None else {"id": self.id, **call}


class Message(Strict):
    """One message of a conversation. The thoughts of an answer come back under any of their three names."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None

    def as_message(self) -> dict[str, Any]:
        """As OpenAI writes it, with the text in one piece."""
        content = self.content
        text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
        role = "system" if self.role == "developer" else self.role  # OpenAI's newer name
        more = {
            "name": self.name,
            "tool_calls": [call.as_message() for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning_content or self.reasoning or self.thinking,
        }
        return {"role": role, "content": text, **{name: value for name, value in more.items() if value}}


class ConversationFields(Strict):
    """Messages and tools, and what the template is told beside them.

    continue_final_message  the last message is the beginning of the answer; None: it is where the assistant has it
    reasoning_effort        "none": no thoughts; others are the template's own variable
    """

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: (
        Annotated[
            list[dict[str, Any]],
            Field(description='Each {"type": "function", "function": {"name", "description", "parameters"}}.'),
        ]
        | None
    ) = None
    tool_choice: (
        Annotated[
            str | dict[str, Any],
            Field(description='"none", "auto", "required", or {"type": "function", "function": {"name"}}.'),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template: Any = None


def chat_of(maker: Maker, body: ConversationFields, *, think: bool | None = None) -> Chat:
    """The conversation as the model reads it. think: see chat_prompt; None: what the body says.

    RequestError, or TemplateError where the template refuses it.
    """
    if body.chat_template is not None:
        raise RequestError("chat_template: only the model's own is used", param="chat_template")
    if body.add_generation_prompt and body.continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    variables, continues = _variables(body), _continues(body)
    answers = continues or body.add_generation_prompt is not False
    messages = [message.as_message() for message in body.messages]
    if think is None:
        # who asks for an effort wants what the template makes of it
        think = variables.get("enable_thinking", maker.defaults.think if body.reasoning_effort is None else None)
    try:
        tools = tuple(tools_of(body.tools or []))
        choice = choice_of(body.tool_choice or "auto", tools)
        parallel = body.parallel_tool_calls is not False
        think = None if maker.dialect.format.thoughts is None else think
        asked = Asked(tools, choice, parallel, think, documents=body.documents, variables=variables)
        return Chat(maker, messages, asked, answers=answers, continues=continues)
    except UsageError as error:
        place = _PLACE.match(str(error))
        raise RequestError(str(error), param=place[0] if place else None) from None


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
    """Whether the answer goes on from the last message. RequestError: it follows another of the assistant's, or ends
    with calls."""
    roles = [message.role for message in body.messages]
    continues = roles[-1] == "assistant" if body.continue_final_message is None else body.continue_final_message
    if body.continue_final_message is None and continues and roles[-2:-1] == ["assistant"]:
        raise RequestError("two messages of the assistant at the end: one can be continued", param="messages")
    if continues and body.messages[-1].tool_calls:
        raise RequestError(
            "the last message has calls of tools, and cannot be continued: send their results, or "
            "continue_final_message = false",
            param="messages",
        )
    return continues
