"""A conversation with a model: what was said, what is said next, branches, files."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.chat.prompting import message_of
from hybrid.infer.answers.conversations.turns import Question, Turn, Turns, asking
from hybrid.quant.ggml.errors import UsageError, shown

from .advice import advised
from .answer import Answer, Called, Rounds
from .chat_files import saved
from .functions import Functions
from .model_thread import ModelThread, Round, with_seed
from .settings import CheckedSettings, Settings, checked_settings

Given = Callable[..., Any] | Mapping[str, Any]
MOST_CALLS = 8  # rounds of calls in one answer


class Chat:
    """A conversation. `Model.chat` begins one; several go on with one model at a time, each used by one thread.

        chat = model.chat(system="You are brief.")
        print(chat.say("What is a state-space model?"))

    system  what the model is told before all
    """

    def __init__(
        self,
        answering: ModelThread,
        system: str = "",
        tools: Sequence[Given] = (),
        think: bool | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.system, self._answering = system, answering
        self._settings: Settings = settings or {}
        self._functions = Functions(tools)
        self._asked = ChatOptions(self._functions.tools, think=think)
        self._turns = Turns()
        self._answer: Answer | None = None  # the last one that began here
        with advised():
            self._answering.dialect.check(self._asked)

    def say(
        self, text: str, *, stream: bool = False, most_calls: int = MOST_CALLS, **settings: Unpack[Settings]
    ) -> Answer:
        """The model's answer to what the user says; with `stream` while it is written.

        Python functions among the chat's tools are called when the model asks for it, and it is told what they
        return or raise, in at most `most_calls` rounds. An answer that still calls something has `finish`
        "tool_calls": `tell` takes the results. An answer that is stopped stays in the conversation as far as it came.
        HybridError: it cannot be asked, and nothing stays.
        """
        if not isinstance(text, str):
            raise UsageError(f"what is said is {shown(type(text).__name__)}, expected a text.")
        return self._go_on(text, stream, most_calls, settings)

    def tell(
        self,
        results: Sequence[str],
        *,
        stream: bool = False,
        most_calls: int = MOST_CALLS,
        **settings: Unpack[Settings],
    ) -> Answer:
        """The model's answer to the results of the calls of its last answer, in their order."""
        self._settle()
        calls = self._turns.head.answer.calls if self._turns.head else ()
        if not calls or len(results) != len(calls):
            raise UsageError(f"there are {len(results)} results of {len(calls)} calls.")
        return self._go_on(tuple(results), stream, most_calls, settings)

    @property
    def turns(self) -> list[Turn]:
        """What was said: each has a `question` (a text, or results of calls) and an `answer` with `text`, `thoughts`
        and `calls`."""
        self._settle()
        return self._turns.path

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The same as OpenAI writes it."""
        self._settle()
        return self._messages(self._turns.head)

    def branch(self, at: int | None = None) -> "Chat":
        """Another chat that begins like this one, with its first `at` turns; None: with all of them, -1: all but the
        last. What they have in common is not read again."""
        self._settle()
        path = self._turns.path
        n = len(path) if at is None else at + len(path) if at < 0 else at
        if not 0 <= n <= len(path):
            raise UsageError(f"at = {at}: the chat has {len(path)} turns.")
        other = Chat(self._answering, self.system, self._functions.given, self._asked.think, self._settings)
        other._turns.all = list(self._turns.all)  # a turn's number is its place there
        other._turns.head = path[n - 1] if n else None
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """To a file that `Model.load_chat` reads, and `hybrid run --continue`: with what the model knows of the
        conversation, so that nothing is read again. HybridError: it cannot be written."""
        self._settle()
        with advised():
            saved(self._answering, Path(path), self._turns, self.system, self._asked, self._checked({}))

    def go_on_from(self, turns: Turns) -> None:
        """Instead of what was said here; `Model.load_chat` does."""
        self._turns = turns

    # --- asking ---
    def _settle(self) -> None:
        """An answer that nobody read to its end has ended: the conversation goes on without its rest."""
        if self._answer is not None and not self._answer.done:
            self._answer.stop()
            self._answer.wait()

    def _go_on(self, question: Question, stream: bool, most_calls: int, settings: Settings) -> Answer:
        self._settle()
        called: list[Called] = []
        with advised():
            rounds = self._rounds(question, most_calls, self._checked(settings), called)
            answer = self._answer = Answer(self._answering, rounds, stream=True)
        answer.called = called
        return answer if stream else answer.wait()

    def _checked(self, settings: Settings) -> CheckedSettings:
        merged: Settings = {**self._settings, **settings}
        return checked_settings(merged, self._answering.sampling, -1)

    def _rounds(self, question: Question, most_calls: int, checked: CheckedSettings, called: list[Called]) -> Rounds:
        while True:
            turn = yield from self._round(question, with_seed(checked, len(self._turns.all)))
            calls = turn.answer.calls if turn is not None else ()
            if not calls or most_calls == 0 or not self._functions.has(calls):
                return
            most_calls -= 1
            results = [self._functions.call(call) for call in calls]
            called += zip(calls, results, strict=True)
            question = tuple(results)

    def _round(self, question: Question, checked: CheckedSettings) -> Generator[Round, None, Turn | None]:
        """One answer, which becomes a turn when it has ended, as far as it came."""
        parent = self._turns.head
        messages = [*self._messages(parent), *asking(parent, question)]
        asked = self._asked if isinstance(question, str) else self._asked.relaxed
        made = self._answering.to_messages(messages, asked, checked)
        turn = None
        try:
            yield made
        finally:
            if made.job.done and made.job.error is None and made.job.result.ids:
                turn = self._added(parent, question, made)
        return turn

    def _added(self, parent: Turn | None, question: Question, made: Round) -> Turn:
        """What a saved chat needs is that of `conversations.Conversation`."""
        result, prompt = made.job.result, made.prompt
        path = parent.path() if parent is not None and prompt.known else []
        turn = self._turns.add(parent, question, made.told)
        turn.base = next((one for one in reversed(path) if one.ids == prompt.known), None)
        turn.added = [*(prompt.rest if turn.base else prompt.ids), *result.ids]
        turn.asked, turn.said = ((prompt.text or "") if result.stop is None else ""), result.text
        turn.written = made.written
        return turn

    def _messages(self, head: Turn | None) -> list[dict[str, Any]]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in head.path() if head else []:
            messages += [*turn.asking, message_of(turn.answer)]
        return messages
