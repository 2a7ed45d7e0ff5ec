"""A conversation in a request: its prompt, the rules for its answers, and reading them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hybrid.infer.answers.asking.asker import Prompt
from hybrid.infer.answers.asking.reading import Reading
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.chat.dialect import AnswerRules, ChatOptions
from hybrid.infer.answers.chat.picture_parts import pictures_in
from hybrid.infer.answers.chat.reader import AnswerPart, AnswerReader
from hybrid.infer.answers.chat.tools import Tool, ToolCall
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.quant.ggml.errors import UsageError

from .client import Client
from .errors import RequestError
from .forms import FormFields, RequestedForm, compiled, form_of
from .jobs import Maker

Message = Mapping[str, Any]
WITH_TOOLS = ("response_format", "json_schema")  # forms that may be combined with tools


class RequestChat:
    """A conversation and `written`, the prompt that the chat template has written for it.

    answers    False: without the text that the template puts in front of an answer
    continues  the last message is the beginning of the answer
    whose      owner of the texts: only this owner's earlier answers are recognized in the conversation
    UsageError, TemplateError: the template cannot write the conversation.

    after: tokens of an earlier text, which the conversation follows; its answers are then not recognized later.
    """

    after: Sequence[int] = ()

    def __init__(
        self,
        maker: Maker,
        messages: Sequence[Message],
        asked: ChatOptions,
        whose: Client,
        *,
        answers: bool = True,
        continues: bool = False,
    ) -> None:
        self.whose = whose
        self.maker, self.messages, self.asked, self.dialect = maker, messages, asked, maker.dialect
        self.written = self.dialect.prompt(messages, asked, continues=continues)
        if not answers:
            self.written = replace(self.written, text=self.dialect.rendered(self.written), thinks=False)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        return self.asked.callable

    @property
    def is_plain(self) -> bool:
        """Whether an answer can only be text, without thoughts and calls."""
        return self.dialect.is_plain(self.asked)

    @property
    def has_thoughts(self) -> bool:
        """Whether the model's template knows thoughts."""
        return self.dialect.format.thoughts is not None

    def prompt(self) -> Prompt:
        """The prompt as the model reads it. The vision tower reads its pictures."""
        return self.maker.following(self.after, self.maker.messages(self.written, self.whose))

    @property
    def n_tokens(self) -> int:
        """The number of tokens of `prompt`, without recording its use; the vision tower reads no picture."""
        return self.maker.n_tokens(self.written, self.whose)

    def picture_usage(self) -> dict[str, Any]:
        """`usage.pictures` of an answer: tokens of each picture, and milliseconds in which the tower has read it for
        this request, 0 if its features were known. Empty without pictures."""
        told = [
            {"tokens": picture.features, "ms": round(1000 * sum(picture.spent), 1)}
            for picture in pictures_in(self.messages)
        ]
        return {"pictures": told} if told else {}

    def peek(self) -> list[int]:
        """The tokens of `prompt`, without recording its use. RequestError: the text is too long to be encoded."""
        return self.maker.peek(self.written, self.whose)

    # --- drawing ---
    def rules(self, body: FormFields, most_thoughts: int | None = None) -> AnswerRules:
        """Rules for sampling answers. most_thoughts: limit on tokens of thoughts; -1: no limit; None: the server's
        default.

        RequestError: the template's format cannot hold the answer to the requested form.
        """
        if most_thoughts is None:
            most_thoughts = self.maker.defaults.think_budget
        most = None if most_thoughts is None or most_thoughts < 0 else most_thoughts
        form = form_of(body)
        if self.tools and form is not None and form.name not in WITH_TOOLS:
            raise RequestError(f"{form.name} and tools exclude each other", param=form.name)
        name, own = ("tools", None) if form is None else (form.name, form.grammar)
        try:
            grammar = self.dialect.grammar(self.asked, self.written.thinks, own)
        except UsageError as error:
            raise RequestError(f"{name}: {error}", param=name) from None
        constraint = None if grammar is None else compiled(RequestedForm(name, grammar), self.maker.asker.forms)
        budget = partial(self.dialect.budget, replace(self.asked, budget=most), self.written.thinks)
        calls = self.dialect.calls(self.asked, self.written)
        return AnswerRules(constraint, self.dialect.shown(self.asked), budget, calls)

    # --- reading ---
    def reading(self, *, split: bool = True) -> Reading:
        """The reader of one answer. split: separate thoughts from text."""
        thoughts = self.dialect.format.thoughts if split else None
        reader = self.dialect.reader(self.asked, self.written, split=split)
        return Reading(reader, thoughts.closing if thoughts else "", split and self.written.thinks)

    def note(self, job: Job, reader: AnswerReader) -> None:
        """Remembers the tokens of an answer, so that they are reused when the client sends its message back, even with
        other whitespace in its calls and around its thoughts."""
        if not self.written.written and not self.after:
            self.maker.asker.note_written(
                self.written, self.messages, self.asked, reader, job.ids, job.result, job.owner
            )


class Split:
    """One answer, split into parts while it is sampled: thoughts, text, calls and their arguments."""

    def __init__(self, chat: RequestChat, job: Job, *, split: bool = True) -> None:
        self.chat, self.job, self._reading = chat, job, chat.reading(split=split)
        self.rest: list[AnswerPart] = []  # parts that became certain at the end
        self.spoken: list[TextPiece] = []  # pieces of its text that have logprobs
        self._told = "text" if chat.is_plain else ""  # kind of the last part

    @property
    def reader(self) -> AnswerReader:
        """The reader, with all parts so far."""
        assert self._reading.reader is not None
        return self._reading.reader

    def push(self, piece: TextPiece) -> list[AnswerPart]:
        """The parts that became certain with this piece of text."""
        parts = [part for part in self._reading.push(piece) if part.text]
        kinds = [part.kind for part in parts]
        self._told = kinds[-1] if kinds else self._told
        if piece.logprobs is not None and "text" in (*kinds, self._told):
            self.spoken.append(piece)
        return parts

    def end(self) -> None:
        """Ends the answer. Runs in a thread, since it renders the message as later prompts will have it."""
        self.rest = self._reading.finish()
        if not self.job.cancelled and self.job.error is None:
            self.chat.note(self.job, self.reader)

    @property
    def n_thoughts(self) -> int:
        """Tokens of thoughts so far, including the closing tag."""
        return self._reading.n_thought if self.reader.thoughts else 0

    @property
    def called(self) -> bool:
        """Whether the answer ended with calls; a stop string may have cut off the last one."""
        calls, reason = self.reader.calls, self.job.result.reason
        return bool(calls) and (reason == "eos" or (reason == "stop" and all(map(_is_whole, calls))))


def _is_whole(call: ToolCall) -> bool:
    return isinstance(arguments_of(call), dict)


def arguments_of(call: ToolCall) -> Any:
    """The arguments of a call as JSON values, or None if they are not JSON because the answer was cut off."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None
