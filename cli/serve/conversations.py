"""Conversations in requests: messages, tools, and variables for the model's chat template."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.chat.tools import Tool, ToolChoice, choice_of, tools_of
from hybrid.quant.ggml.errors import UsageError, shown

from .chats import RequestChat
from .client import Client
from .errors import RequestError
from .fields import Ignored, ParseSpecial, Strict, Unsupported
from .jobs import Maker
from .pictures.parts import GivenPicture, PicturePart, Said, joined
from .strict import LONGEST_NAME, PassedOver

# variables that the server sets: a request cannot replace them
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
MOST_MESSAGES = 16384  # the template renders all of them
_PLACE = re.compile(r"(tools|tool_choice|functions|function_call|messages|documents)(/[^\s:]+)*")


class TextPart(Strict):
    """A part of a message with text. Audio, video and files are refused."""

    type: Literal["text", "input_text", "output_text"]
    text: str
    cache_control: Ignored
    prompt_cache_breakpoint: Ignored


class RefusalPart(Strict):
    """A refusal in place of an answer."""

    type: Literal["refusal"]
    refusal: str


class ThinkingPart(Strict):
    """Thoughts of an answer, as Anthropic's and Mistral's clients put them into messages."""

    type: Literal["thinking"]
    thinking: str | list[TextPart]
    signature: Ignored
    closed: Ignored

    @property
    def text(self) -> str:
        """The thoughts as one text."""
        return self.thinking if isinstance(self.thinking, str) else "".join(part.text for part in self.thinking)


class HostedPart(PassedOver):
    """Encrypted thoughts of another server, which cannot be read here."""

    type: Literal["redacted_thinking"]


Part = Annotated[TextPart | RefusalPart | PicturePart | ThinkingPart | HostedPart, Field(discriminator="type")]


class FunctionCall(Strict):
    """Name and arguments of a call; arguments are JSON, as text or as a value."""

    name: str
    arguments: str | dict[str, Any] = ""


class MessageCall(Strict):
    """A call of a tool in an assistant's message."""

    function: FunctionCall
    id: str | None = None
    type: Literal["function"] = "function"
    index: Ignored

    def as_message(self) -> dict[str, Any]:
        """The call in OpenAI's format."""
        given = self.function.arguments
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        call = {"type": self.type, "function": {"name": self.function.name, "arguments": arguments or "{}"}}
        return call if self.id is None else {"id": self.id, **call}


class Message(Strict):
    """One message of a conversation. Clients may send thoughts back under any of their three names.

    function_call  OpenAI's older name of one call; its result is a message with the role "function"
    """

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    function_call: FunctionCall | None = None
    audio: Unsupported
    images: Unsupported
    id: Ignored
    annotations: Ignored
    refusal: str | None = None

    @property
    def calls(self) -> list[MessageCall]:
        """The calls of tools in this message."""
        given = self.tool_calls or []
        return given if self.function_call is None else [*given, MessageCall(function=self.function_call, index=None)]

    def said(self, place: str) -> str | list[Said]:
        """The text; or texts and pictures. place: of the message in the body."""
        if not isinstance(self.content, list):
            return self.content or ""
        return joined(_said(part, f"{place}.content.{at}") for at, part in enumerate(self.content))

    def as_message(self, content: object) -> dict[str, Any]:
        """The message in OpenAI's format."""
        parts = self.content if isinstance(self.content, list) else []
        thoughts = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
        role = {"developer": "system", "function": "tool"}.get(self.role, self.role)  # OpenAI's newer and older names
        more = {
            "name": self.name,
            "tool_calls": [call.as_message() for call in self.calls],
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning_content or self.reasoning or self.thinking or thoughts,
        }
        return {
            "role": role,
            "content": content or self.refusal or "",
            **{name: value for name, value in more.items() if value},
        }


def _said(part: Part, place: str) -> Said:
    """What a part adds to its message."""
    if isinstance(part, PicturePart):
        return part.given(place)
    return part.text if isinstance(part, TextPart) else part.refusal if isinstance(part, RefusalPart) else ""


def messages_of(given: Sequence[Message], maker: Maker, whose: Client) -> list[dict[str, Any]]:
    """The messages in OpenAI's format, with their pictures decoded. RequestError: a picture cannot be read."""
    contents = [message.said(f"messages.{at}") for at, message in enumerate(given)]
    pictures = [part for content in contents for part in content if isinstance(part, GivenPicture)]
    seen = iter(maker.sight.seen(pictures, whose.owner) if pictures else ())

    def as_openais(content: str | list[Said]) -> Any:
        if isinstance(content, str):
            return content
        return [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": next(seen)}
            for part in content
        ]

    return [message.as_message(as_openais(content)) for message, content in zip(given, contents, strict=True)]


class ConversationFields(Strict):
    """Messages, tools, and settings of the chat template.

    functions, function_call  OpenAI's older names of tools and tool_choice; the answer has their form, and one call
    continue_final_message    the last message is the beginning of the answer; None: if it is the assistant's
    reasoning_effort          "none": no thoughts; other values are a variable of the template
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
    functions: (
        Annotated[
            list[dict[str, Any]],
            Field(description='Each {"name", "description", "parameters"}; ignored where there are tools.'),
        ]
        | None
    ) = None
    function_call: (
        Annotated[str | dict[str, Any], Field(description='"none", "auto" or {"name"} of a function.')] | None
    ) = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template: Any = None
    parse_special: ParseSpecial = False

    @property
    def has_functions(self) -> bool:
        """Whether `functions` takes the place of `tools`."""
        return bool(self.functions) and not self.tools

    def own_tools(self) -> list[Tool]:
        """The tools that are functions. UsageError: one of them cannot be used."""
        if self.has_functions:
            try:
                return tools_of([{"type": "function", "function": each} for each in self.functions or ()])
            except UsageError as error:
                raise UsageError(re.sub(r"\btools(?=[/ ])(/\d+)?(/function)?", r"functions\1", str(error))) from None
        functions = {at: {"type": "function", **tool} for at, tool in enumerate(self.tools or ()) if _is_function(tool)}
        try:
            return tools_of(list(functions.values()))
        except UsageError as error:
            places = list(functions)
            raise UsageError(re.sub(r"tools/(\d+)", lambda at: f"tools/{places[int(at[1])]}", str(error))) from None

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds tools of other types: OpenAI's servers run them, or their arguments are not JSON."""
        yield from super().unheeded()
        if not self.has_functions:
            for name in ("functions", "function_call"):
                if getattr(self, name):
                    yield name, "tools is given" if self.tools else "there are no functions"
        for tool in self.tools or ():
            if not _is_function(tool):
                yield "tools[]", f"this server does nothing with {shown(tool['type'], LONGEST_NAME)}"


def _is_function(tool: dict[str, Any]) -> bool:
    kind = tool.get("type", "function")
    return not isinstance(kind, str) or kind == "function"


def chat_of(maker: Maker, body: ConversationFields, whose: Client, *, think: bool | None = None) -> RequestChat:
    """The conversation of a body. think: see chat_prompt; None: as the body says.

    RequestError; TemplateError: the template refuses the conversation.
    """
    if body.chat_template is not None:
        raise RequestError("chat_template: only the model's own is used", param="chat_template")
    if body.add_generation_prompt and body.continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    if len(body.messages) > MOST_MESSAGES:
        raise RequestError(
            f"{len(body.messages)} messages, this server takes {MOST_MESSAGES} at a time", param="messages"
        )
    variables, continues = _variables(body), _continues(body)
    answers = continues or body.add_generation_prompt is not False
    messages = messages_of(body.messages, maker, whose)
    if think is None:
        # an effort is passed on to the template
        think = variables.get("enable_thinking", maker.defaults.think if body.reasoning_effort is None else None)
    try:
        tools = tuple(body.own_tools())
        choice = _choice(body, tools)
        parallel = False if body.has_functions else body.parallel_tool_calls
        think = None if maker.dialect.format.thoughts is None else think
        asked = ChatOptions(tools, choice, parallel, think, documents=body.documents, variables=variables)
        asked = replace(asked, parse_special=body.parse_special)
        return RequestChat(maker, messages, asked, whose, answers=answers, continues=continues)
    except UsageError as error:
        place = _PLACE.match(str(error))
        raise RequestError(str(error), param=place[0] if place else None) from None


def _choice(body: ConversationFields, tools: Sequence[Tool]) -> ToolChoice:
    """Which tool an answer must call. UsageError: an unknown tool."""
    if not body.has_functions:
        return choice_of(_as_openai(body.tool_choice), tools)
    given = body.function_call or "auto"
    try:
        return choice_of({"type": "function", "function": given} if isinstance(given, dict) else given, tools)
    except UsageError as error:
        raise UsageError(re.sub(r"^tool_choice(/function)?", "function_call", str(error))) from None


def _as_openai(given: str | dict[str, Any] | None) -> Any:
    """Converts Anthropic's, Mistral's and OpenAI's newer spellings to OpenAI's chat format."""
    kind = given.get("type") if isinstance(given, dict) else given
    if isinstance(given, dict) and kind in ("function", "tool") and "function" not in given and "name" in given:
        return {"type": "function", "function": {"name": given["name"]}}
    if kind in ("auto", "none", "required", "any"):
        return "required" if kind == "any" else kind
    return given or "auto"


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
    """Whether the answer continues the last message. RequestError: that message follows another of the assistant's, or
    ends with calls."""
    roles = [message.role for message in body.messages]
    continues = roles[-1] == "assistant" if body.continue_final_message is None else body.continue_final_message
    if body.continue_final_message is None and continues and roles[-2:-1] == ["assistant"]:
        raise RequestError("two messages of the assistant at the end: one can be continued", param="messages")
    if continues and body.messages[-1].calls:
        raise RequestError(
            "the last message has calls of tools, and cannot be continued: send their results, or "
            "continue_final_message = false",
            param="messages",
        )
    return continues
