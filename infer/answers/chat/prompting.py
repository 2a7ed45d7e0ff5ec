"""Turns a conversation with tools and thoughts into a prompt, and an answer into a message for the next prompt.

    prompt = chat_prompt(template, probed(template), messages, tools=tools, think=False)
    ... an answer follows prompt.text, and AnswerReader(..., thinks=prompt.thinks) reads it
    messages.append(message_of(reader))

messages.py converts messages that a template does not accept.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from hybrid.quant.ggml.errors import PictureError, TemplateError, UsageError

from ...text.chat_template import ChatTemplate
from ...text.literal_text import LiteralText, without_breaks
from ...text.template_budget import MAX_STEPS
from .continuing import begun
from .format import ChatFormat, ThoughtFormat
from .messages import (
    Message,
    for_template,
    has_calls,
    one_call_each,
    told_to_system,
    told_to_user,
    without_text_as_arguments,
)
from .picture_parts import has_pictures, is_picture, pictures_in, rendered, with_results_told
from .tools import Tool, ToolCall, ToolChoice

AUTO = ToolChoice("auto")

DESCRIBED = """You can call tools. They are, one JSON object per line:
<tools>
{tools}
</tools>

To call one, answer with its name and arguments as a JSON object between these tags, and nothing behind them:
<tool_call>
{{"name": "name of the tool", "arguments": {{"name of a parameter": "its value"}}}}
</tool_call>
To call several, write this several times. You get what they return between <tool_response> and </tool_response>."""

EMPTY_TOOL = {"description": "", "parameters": {"type": "object", "properties": {}}}


@dataclass(frozen=True)
class ChatPrompt:
    """The prompt of an answer.

    text       the conversation, and the beginning of the answer
    messages   as the template got them
    variables  the template's other variables, `tools` and `documents` included
    thinks     whether the answer begins inside thoughts
    written    the part of the answer that `text` contains already, thoughts included: of a message that is continued
    """

    text: str
    messages: list[Message]
    variables: dict[str, Any]
    thinks: bool = False
    written: str = ""

    @property
    def pictures(self) -> list[Any]:
        """The pictures in the text, in order."""
        return pictures_in(self.messages)


def chat_prompt(
    template: ChatTemplate,
    form: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Tool] = (),
    choice: ToolChoice = AUTO,
    think: bool | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
    continues: bool = False,
    literal: LiteralText | None = None,
) -> ChatPrompt:
    """The prompt for the next answer, or for the rest of the last message (`continues`).

    messages   in OpenAI's format: calls with arguments as JSON text, which may be cut off; results in the role "tool";
               thoughts under any usual name
    choice     "none": the template gets no tools, unless the messages contain calls
    think      whether the model is to think; None: the template's default
    documents, variables  passed to the template
    literal    keeps control tokens in messages, tools and documents as text; None: they become tokens
    Raises UsageError if an input cannot be used, TemplateError if the template refuses the conversation.
    """
    if choice.mode == "none" and not has_calls(messages):
        tools = ()
    described: list[dict[str, Any]] = [tool.as_given for tool in tools]
    if literal is not None:
        messages = _quoted(messages, literal, form)
        described, documents = literal.quoted(described), literal.quoted(documents)
    writer = _Writer(template, form, described, think, documents, variables, literal)
    return writer.continued(messages) if continues else writer.prompt(messages)


class ReadAnswer(Protocol):
    """An answer after reading: an AnswerReader, or its saved parts."""

    @property
    def thoughts(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def calls(self) -> Sequence[ToolCall]: ...


def message_of(answer: ReadAnswer) -> Message:
    """The answer as an OpenAI message for the next prompt."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    message: Message = {"role": "assistant", "content": answer.text or (None if calls else "")}
    if answer.thoughts:
        message["reasoning_content"] = answer.thoughts
    return {**message, "tool_calls": calls} if calls else message


class _Writer:
    """Renders one conversation with the template."""

    def __init__(
        self,
        template: ChatTemplate,
        form: ChatFormat,
        tools: list[dict[str, Any]],
        think: bool | None,
        documents: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        literal: LiteralText | None,
    ) -> None:
        self.template, self.form, self.think, self.literal = template, form, think, literal
        self.described = [] if form.takes_tools else tools
        self.variables: dict[str, Any] = {
            form.tools_variable: None,
            "documents": None,
            **variables,
            **self._switch(think),
        }
        self.tools = tools if form.takes_tools else []
        if self.tools:
            self.variables[form.tools_variable] = self.tools
        if documents:
            self.variables["documents"] = list(documents)

    def _switch(self, think: bool | None) -> dict[str, bool]:
        thoughts = self.form.thoughts
        if think and thoughts is None:
            raise UsageError("thoughts cannot be switched on: this model's chat template has none.")
        return {thoughts.variable: think} if think is not None and thoughts and thoughts.variable else {}

    # --- an answer ---
    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> ChatPrompt:
        """The prompt for a new answer."""
        text, taken = self.render(messages, ask=True)
        self._check_documents(messages)
        text, thinks = self._opened(text)
        return ChatPrompt(text, taken, self.variables, thinks)

    def _opened(self, text: str) -> tuple[str, bool]:
        """The prompt, with thoughts closed if nothing else switches them off; whether the answer begins inside them."""
        thoughts = self.form.thoughts
        if thoughts is None:
            return text, False
        thinks = text.rstrip().endswith(thoughts.opening)
        if self.think is False and (thinks or not (thoughts.variable or thoughts.off)):
            return text + _closing(thoughts, text, thinks), False
        return text, thinks

    def _check_documents(self, messages: Sequence[Mapping[str, Any]]) -> None:
        given = self.variables["documents"]
        if not given:
            return
        with_them, _ = self.render(messages, ask=True)
        self.variables = {**self.variables, "documents": None}
        without, _ = self.render(messages, ask=True)
        self.variables = {**self.variables, "documents": given}
        if with_them == without:
            raise UsageError("this model's template does not use documents. Put them into a message.")

    # --- rendering ---
    def render(self, messages: Sequence[Mapping[str, Any]], *, ask: bool) -> tuple[str, list[Message]]:
        """The text, and the messages as the template got them, in the first variant that the template accepts."""
        refusal: TemplateError | PictureError | None = None
        tried: list[tuple[dict[str, Any], list[Message]]] = []
        for variables, arranged in self._ways(messages):
            if (variables, arranged) in tried:
                continue
            tried.append((variables, arranged))
            try:
                text = rendered(self.template, self.form, arranged, variables, ask=ask)
            except (TemplateError, PictureError) as error:
                refusal = refusal or error
                if self.template.steps > MAX_STEPS:  # another variant would not end either
                    break
                continue
            if not self.described or self._description() in text:
                self.variables = variables
                return text, arranged
        raise refusal or TemplateError(f"{self.template.name} leaves out the tools' description: tools cannot be used.")

    def _ways(self, messages: Sequence[Mapping[str, Any]]) -> Iterable[tuple[dict[str, Any], list[Message]]]:
        given, name = self.variables, self.form.tools_variable
        # some templates loop over tools that are not given; some need every field that a tool may have
        whole = [{**tool, "function": {**EMPTY_TOOL, **tool["function"]}} for tool in self.tools]
        for variables in (given, {**given, name: whole or given[name] or []}):
            for short_ids in (False, True):
                made = for_template(messages, self.form, short_ids)
                if self.literal is not None:  # arguments were JSON text until here
                    made = _quoted(made, self.literal, self.form)
                for some in (made, without_text_as_arguments(made, self.form)):
                    for arranged in self._arrangements(some):
                        yield variables, arranged

    def _arrangements(self, messages: list[Message]) -> Iterable[list[Message]]:
        """The messages in variants that a template may accept, the most likely first.

        Our instructions on tools and thoughts go into the system message, or without such a role into the user's.
        """
        said = [self._description()] if self.described else []
        thoughts = self.form.thoughts
        word = (thoughts.on if self.think else thoughts.off) if thoughts and self.think is not None else ""
        said += [word] if word else []
        ways = [messages, one_call_each(messages)]
        if any(message["role"] == "tool" and has_pictures(message["content"]) for message in messages):
            ways += [with_results_told(way) for way in ways]
        for some in ways:
            yield told_to_system(some, said)
            yield told_to_user(some, said)

    def _description(self) -> str:
        lines = (json.dumps(tool, ensure_ascii=False) for tool in self.described)
        return DESCRIBED.format(tools="\n".join(lines))

    # --- the rest of an answer ---
    def continued(self, messages: Sequence[Mapping[str, Any]]) -> ChatPrompt:
        """The prompt for the rest of the last message."""

        def write(some: Sequence[Mapping[str, Any]], ask: bool) -> str:
            text, _ = self.render(some, ask=ask)
            return self._opened(text)[0] if ask else text

        text, thinks, written = begun(messages, write, self.form.thoughts)
        self._check_documents(messages)
        try:
            _, taken = self.render(messages, ask=False)
        except TemplateError:  # the template did not write that message
            taken = for_template(messages, self.form)
        return ChatPrompt(text, taken, self.variables, thinks, without_breaks(written))


def _quoted(messages: Iterable[Mapping[str, Any]], literal: LiteralText, form: ChatFormat) -> list[Message]:
    """The messages, whose texts become no control tokens. An answer keeps the tags of thoughts: templates look for them
    in its text."""
    tags = (form.thoughts.opening.strip(), form.thoughts.closing.strip()) if form.thoughts else ()

    def quoted(message: Mapping[str, Any], key: str, value: Any) -> Any:
        kept = tags if message.get("role") == "assistant" else ()
        if key == "content" and has_pictures(value):
            return [part if is_picture(part) else {**part, "text": literal.quoted(part.get("text"))} for part in value]
        return value if key == "role" else literal.quoted(value, kept)

    return [{key: quoted(message, key, value) for key, value in message.items()} for message in messages]


def _closing(thoughts: ThoughtFormat, text: str, is_open: bool) -> str:
    """The text that closes the thoughts at the end of `text`, or empty thoughts if none are open."""
    if is_open:
        return ("\n" if text.endswith("\n") else "") + f"{thoughts.closing}\n\n"
    return f"{thoughts.opening}\n\n{thoughts.closing}\n\n"
