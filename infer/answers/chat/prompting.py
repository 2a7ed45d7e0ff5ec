"""Conversations with tools and thoughts as the prompt of an answer, and the answer as a message that comes back.

prompt = chat_prompt(template, probed(template), messages, tools=tools, think=False)
... an answer follows prompt.text, and AnswerReader(..., thinks=prompt.thinks) reads it
messages.append(message_of(reader))
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError, UsageError

from .format import ChatFormat, ThoughtFormat
from .messages import (
    Message,
    for_template,
    has_calls,
    one_call_each,
    thoughts_in,
    told_to_system,
    told_to_user,
)

DESCRIBED = """You can call tools. They are, one JSON object per line:
<tools>
{tools}
</tools>

To call one, answer with its name and arguments as a JSON object between these tags, and nothing behind them:
<tool_call>
{{"name": "name of the tool", "arguments": {{"name of a parameter": "its value"}}}}
</tool_call>
To call several, write this several times. You get what they return between <tool_response> and </tool_response>."""


class Offered(Protocol):
    """A tool."""

    @property
    def as_given(self) -> dict[str, Any]: ...


class Choice(Protocol):
    """Whether tools may be called."""

    @property
    def mode(self) -> str: ...


@dataclass(frozen=True)
class ChatPrompt:
    """What an answer follows.

    text       the conversation, and the beginning of the answer
    messages   as the template got them
    variables  what else it got, `tools` and `documents` among them
    thinks     whether the answer goes on inside thoughts
    written    what of the answer stands in `text` already, thoughts included: the message that is continued
    """

    text: str
    messages: list[Message]
    variables: dict[str, Any]
    thinks: bool = False
    written: str = ""


def chat_prompt(
    template: ChatTemplate,
    form: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Offered] = (),
    choice: Choice | None = None,
    think: bool | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
    continues: bool = False,
) -> ChatPrompt:
    """The prompt for the next answer, or for the rest of the last message (`continues`).

    messages   OpenAI's: calls with arguments as JSON text, results in the role "tool", thoughts under any usual name
    choice     "none": the template gets no tools, unless some were called before
    think      whether the model is to think; None: as the template has it
    documents, variables  what the template gets beside them
    UsageError: something in them cannot be used; TemplateError: the template refuses the conversation.
    """
    if choice is not None and choice.mode == "none" and not has_calls(messages):
        tools = ()
    writer = _Writer(template, form, tools, think, documents, variables)
    return writer.continued(messages) if continues else writer.prompt(messages)


class _Told(Protocol):
    """An answer that was read."""

    thoughts: str
    text: str

    @property
    def calls(self) -> Iterable[Any]: ...


def message_of(answer: _Told) -> Message:
    """The answer as a message of OpenAI's, which can come back."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    message: Message = {"role": "assistant", "content": answer.text or (None if calls else "")}
    if answer.thoughts:
        message["reasoning_content"] = answer.thoughts
    return {**message, "tool_calls": calls} if calls else message


class _Writer:
    """One conversation's way into the template."""

    def __init__(
        self,
        template: ChatTemplate,
        form: ChatFormat,
        tools: Sequence[Offered],
        think: bool | None,
        documents: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> None:
        self.template, self.form, self.think = template, form, think
        self.described = [tool.as_given for tool in tools] if tools and not form.takes_tools else []
        self.variables = {
            **variables,
            **self._switch(think),
            form.tools_variable: [tool.as_given for tool in tools] if tools and form.takes_tools else None,
            "documents": list(documents) if documents else None,
        }

    def _switch(self, think: bool | None) -> dict[str, bool]:
        thoughts = self.form.thoughts
        if think and thoughts is None:
            raise UsageError("this model has no thoughts that could be switched on: its template has none.")
        return {thoughts.variable: think} if think is not None and thoughts and thoughts.variable else {}

    # --- an answer ---
    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> ChatPrompt:
        """For a new answer."""
        text, taken = self.render(messages, ask=True)
        self._check_documents(taken, text)
        text, thinks = self._opened(text)
        return ChatPrompt(text, taken, self.variables, thinks)

    def _opened(self, text: str) -> tuple[str, bool]:
        """With thoughts closed where nothing else switches them off; whether the answer begins inside them."""
        thoughts = self.form.thoughts
        if thoughts is None:
            return text, False
        thinks = text.rstrip().endswith(thoughts.opening)
        if self.think is False and (thinks or not (thoughts.variable or thoughts.off)):
            return text + _closing(thoughts, text, thinks), False
        return text, thinks

    def _check_documents(self, messages: list[Message], text: str) -> None:
        if self.variables["documents"] and text == self.template.render(
            messages, add_generation_prompt=True, **{**self.variables, "documents": None}
        ):
            raise UsageError("this model's template does not use documents. Put them into a message.")

    # --- rendering ---
    def render(self, messages: Sequence[Mapping[str, Any]], *, ask: bool) -> tuple[str, list[Message]]:
        """The text, and the messages as the template got them, in the first of the ways that it takes."""
        try:
            return self._render(messages, ask)
        except TemplateError:
            if self.variables[self.form.tools_variable] is not None:
                raise
            given = self.variables
            self.variables = {**given, self.form.tools_variable: []}  # some write them without asking for any
            try:
                return self._render(messages, ask)
            except TemplateError:
                self.variables = given
            raise

    def _render(self, messages: Sequence[Mapping[str, Any]], ask: bool) -> tuple[str, list[Message]]:
        refusal = None
        tried: list[list[Message]] = []
        for short_ids in (False, True):
            for arranged in self._arrangements(for_template(messages, self.form, short_ids)):
                if arranged in tried:
                    continue
                tried.append(arranged)
                try:
                    text = self.template.render(arranged, add_generation_prompt=ask, **self.variables)
                except TemplateError as error:
                    refusal = refusal or error
                    continue
                if not self.described or self._description() in text:
                    return text, arranged
        raise refusal or TemplateError(f"{self.template.name} writes no description of tools: the model has no tools.")

    def _arrangements(self, messages: list[Message]) -> Iterable[list[Message]]:
        """The messages in the ways in which a template may take them, the likeliest first.

        What we say of tools and thoughts is the system's, or where there is no such role, the user's.
        """
        said = [self._description()] if self.described else []
        thoughts = self.form.thoughts
        word = (thoughts.on if self.think else thoughts.off) if thoughts and self.think is not None else ""
        said += [word] if word else []
        for some in (messages, one_call_each(messages)):
            yield told_to_system(some, said)
            yield told_to_user(some, said)

    def _description(self) -> str:
        lines = (json.dumps(tool, ensure_ascii=False) for tool in self.described)
        return DESCRIBED.format(tools="\n".join(lines))

    # --- the rest of an answer ---
    def continued(self, messages: Sequence[Mapping[str, Any]]) -> ChatPrompt:
        """For the rest of the last message."""
        last = messages[-1] if messages else {}
        if last.get("role") != "assistant" or last.get("tool_calls"):
            raise UsageError("the last message cannot be continued: expected one of the assistant without calls.")
        content, thoughts = str(last.get("content") or ""), thoughts_in(last)
        asked = self.prompt(messages[:-1])
        if self.form.thoughts and (thoughts or asked.thinks):
            return self._continued_behind_thoughts(messages, asked, thoughts, content)
        text, taken = self.render(messages, ask=False)
        for tail in (content, content.strip()):  # some templates strip it
            at = text.rfind(tail) if tail else -1
            if at >= 0:
                break
        else:
            return ChatPrompt(asked.text + content, taken, self.variables, False, content)
        if tail != content:  # white space before the rest of a text is part of it
            tail += content[len(content.rstrip()) :]
        thinks = bool(self.form.thoughts and _is_open(content, self.form.thoughts))
        return ChatPrompt(text[:at] + tail, taken, self.variables, thinks, tail)

    def _continued_behind_thoughts(
        self, messages: Sequence[Mapping[str, Any]], asked: ChatPrompt, thoughts: str, content: str
    ) -> ChatPrompt:
        """Where the prompt for an answer opens thoughts, or the message has some: they are part of what is written."""
        form = self.form.thoughts
        assert form is not None
        text, written = asked.text, content
        taken = for_template(messages, self.form)
        if form.opening in content or form.closing in content:  # as the model wrote it
            text = text[: text.rfind(form.opening)] if asked.thinks else text
        elif thoughts:
            written = self._written_by_template(messages, asked.text, thoughts, content)
            if not written:
                head = "" if asked.thinks else f"{form.opening}\n"
                written = head + thoughts + (f"\n{form.closing}\n\n{content}" if content else "")
        elif content:
            written = _closing(form, text, True) + content
        thinks = _is_open(written, form) if form.opening in written else asked.thinks and form.closing not in written
        return ChatPrompt(text + written, taken, self.variables, thinks, written)

    def _written_by_template(
        self, messages: Sequence[Mapping[str, Any]], asked: str, thoughts: str, content: str
    ) -> str:
        """What the template writes behind `asked` for the last message; "" where it does not write all of it."""
        form = self.form.thoughts
        if form is None or form.field is None:
            return ""
        try:
            text, _ = self.render(messages, ask=False)
        except TemplateError:
            return ""
        kept = content.rstrip()
        wanted = rf"\s*(?:{re.escape(form.opening)})?\s*{re.escape(thoughts)}"
        wanted += rf"\s*{re.escape(form.closing)}\s*{re.escape(kept)}" if content else ""
        found = re.match(wanted, text[len(asked) :]) if text.startswith(asked) else None
        return found[0] + content[len(kept) :] if found else ""


def _is_open(text: str, thoughts: ThoughtFormat) -> bool:
    return text.rfind(thoughts.opening) > text.rfind(thoughts.closing)


def _closing(thoughts: ThoughtFormat, text: str, is_open: bool) -> str:
    """What, behind `text`, are thoughts that have ended."""
    if is_open:
        return ("\n" if text.endswith("\n") else "") + f"{thoughts.closing}\n\n"
    return f"{thoughts.opening}\n\n{thoughts.closing}\n\n"
