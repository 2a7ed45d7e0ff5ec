"""A conversation that is answered: how its answers are drawn and read, and what they are when they come back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, JsonCall
from hybrid.infer.answers.chat.marks import shown_tokens
from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt, message_of
from hybrid.infer.answers.chat.reader import AnswerReader, Part
from hybrid.infer.answers.chat.thoughts import ThoughtBudget
from hybrid.infer.answers.chat.tools import Tool, ToolCall, ToolChoice
from hybrid.infer.answers.drawing import TextPiece
from hybrid.quant.ggml.errors import TemplateError, UsageError

from .errors import RequestError
from .forms import Form, FormFields, compiled, form_of
from .jobs import Maker, Manner, Prompt

Message = Mapping[str, Any]
AUTO = ToolChoice("auto")
NO_CALLS = CallFormat("", "", "", JsonCall())  # none of whose marks is a token
WITH_TOOLS = ("response_format", "json_schema")  # forms of the text of an answer that may be calls, too


@dataclass(frozen=True)
class Asked:
    """What is asked for beside messages. parallel: an answer may have several calls; others: see chat_prompt."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    parallel: bool = True
    think: bool | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


class Chat:
    """A conversation, and the prompt that the template has written: `written`.

    answers    False: without what the template writes before an answer
    continues  the last message is the beginning of the answer
    UsageError, TemplateError: it cannot be written.
    """

    def __init__(
        self, maker: Maker, messages: Sequence[Message], asked: Asked, *, answers: bool = True, continues: bool = False
    ) -> None:
        self.maker, self.messages, self.asked = maker, messages, asked
        self.format: ChatFormat = maker.format
        self.written = self._written(messages, continues=continues)
        if not answers:
            self.written = replace(self.written, text=self._rendered(self.written.messages), thinks=False)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Those that an answer may call."""
        return () if self.asked.choice.mode == "none" else self.asked.tools

    @property
    def is_plain(self) -> bool:
        """Whether an answer is nothing but text."""
        return self.format.thoughts is None and not self.tools

    @cached_property
    def prompt(self) -> Prompt:
        """As the model gets it."""
        written, thinks = self.written, self.format.thoughts is not None
        return self.maker.rendered(written.text, written.messages, self._rendered, whole=thinks)

    def _written(self, messages: Sequence[Message], *, continues: bool = False) -> ChatPrompt:
        asked = self.asked
        return chat_prompt(
            self.maker.checked_template(),
            self.format,
            messages,
            tools=asked.tools,
            choice=asked.choice,
            think=None if self.format.thoughts is None else asked.think,
            documents=asked.documents,
            variables=asked.variables,
            continues=continues,
        )

    def _rendered(self, messages: Sequence[Any]) -> str:
        """Messages as the template gets them, without what stands before an answer."""
        variables = {**self.written.variables, "add_generation_prompt": False}
        return self.maker.checked_template().render(messages, **variables)

    # --- drawing ---
    def manner(self, body: FormFields, most_thoughts: int | None = None) -> Manner:
        """How answers are drawn, with at most so many tokens of thoughts; -1: any number; None: the server's own.

        RequestError: not in this form.
        """
        if most_thoughts is None:
            most_thoughts = self.maker.defaults.think_budget
        asked, tokenizer = form_of(body), self.maker.model.tokenizer
        if self.tools and asked is not None and asked.name not in WITH_TOOLS:
            raise RequestError(f"{asked.name} and tools exclude each other", param=asked.name)
        name, form = ("tools", None) if asked is None else (asked.name, asked.grammar)
        more: dict[str, Any] = {"parallel": self.asked.parallel, "thinks": self.written.thinks, "form": form}
        try:
            grammar = answer_grammar(self.format, tokenizer, self.tools, self.asked.choice, **more)
        except UsageError as error:
            raise RequestError(f"{name}: {error}", param=name) from None
        constraint = None if grammar is None else compiled(Form(name, grammar), self.maker.forms)
        budget = None
        if self.format.thoughts is not None and most_thoughts is not None and most_thoughts >= 0:
            budget = partial(ThoughtBudget, self.format, tokenizer, most_thoughts, self.written.thinks)
        return Manner(constraint, self._shown(), budget)

    def _shown(self) -> frozenset[int]:
        """The special tokens that are marks of what an answer may have."""
        known = self.format if self.tools else replace(self.format, calls=NO_CALLS)
        return shown_tokens(known, self.maker.model.tokenizer)

    # --- reading ---
    def reader(self, *, split: bool = True) -> AnswerReader:
        """Of one answer. split: its thoughts are told apart from its text."""
        form = self.format if split else replace(self.format, thoughts=None)
        thinks, continues = split and self.written.thinks, bool(self.written.written)
        return AnswerReader(form, self.tools, thinks=thinks, continues=continues)

    def note(self, job: Job, reader: AnswerReader) -> None:
        """What the model drew stays what it drew when the answer comes back as the message that the client was told,
        with other white space in its calls and around its thoughts."""
        if self.written.written or not (reader.thoughts or reader.calls):
            return
        try:
            back = self._written([*self.messages, message_of(reader)])
            rendered = self._rendered(back.messages)
        except (TemplateError, UsageError):
            return  # not every template takes what its model says
        self.maker.ledger.note_rendered(self.written.text, rendered, job.ids, job.result)


class Split:
    """One answer in the parts that become certain while it is drawn: thoughts, text, calls and their arguments."""

    def __init__(self, chat: Chat, job: Job, *, split: bool = True) -> None:
        self.chat, self.job = chat, job
        self.reader = chat.reader(split=split)
        self.rest: list[Part] = []  # what its end made certain
        self.spoken: list[TextPiece] = []  # those with logprobs that were its text
        self._counted = 0
        self._told = "text" if chat.is_plain else ""  # kind of the last part
        self._thinking, self._tail = split and chat.format.thoughts is not None, ""

    def push(self, piece: TextPiece) -> list[Part]:
        """What is certain after this piece."""
        parts = self.reader.push(piece.text)
        self._count(piece, parts)
        kinds = [part.kind for part in parts]
        self._told = kinds[-1] if kinds else self._told
        if piece.logprobs is not None and "text" in (*kinds, self._told):
            self.spoken.append(piece)
        return parts

    def end(self) -> None:
        """The answer has ended. In a thread: what it is when it comes back is rendered."""
        self.rest = self.reader.finish()
        if not self.job.cancelled and self.job.error is None:
            self.chat.note(self.job, self.reader)

    @property
    def n_thoughts(self) -> int:
        """Tokens of its thoughts so far, marks counted."""
        return self._counted if self.reader.thoughts else 0

    @property
    def called(self) -> bool:
        """Whether the answer has ended with calls of tools; a stop string may have cut off the last."""
        calls, reason = self.reader.calls, self.job.result.reason
        return bool(calls) and (reason == "eos" or (reason == "stop" and all(map(_is_whole, calls))))

    def _count(self, piece: TextPiece, parts: Sequence[Part]) -> None:
        if not self._thinking:
            return
        self._counted += piece.id is not None
        thoughts = self.chat.format.thoughts
        assert thoughts is not None
        self._tail = (self._tail + piece.text)[-(len(thoughts.closing) + len(piece.text)) :]
        self._thinking = thoughts.closing not in self._tail and all(part.kind == "thought" for part in parts)


def _is_whole(call: ToolCall) -> bool:
    return isinstance(arguments_of(call), dict)


def arguments_of(call: ToolCall) -> Any:
    """Of a call, as they are; None: they are not JSON, since the answer was cut off."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None
