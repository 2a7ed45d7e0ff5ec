"""A conversation with a model: turns, branches, files."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hybrid.infer.answers.chat.dialect import ChatOptions
from hybrid.infer.answers.chat.prompting import message_of
from hybrid.infer.answers.conversations.chat_file import SavedChat
from hybrid.infer.answers.conversations.turns import Question, Turn, Turns, asking
from hybrid.quant.ggml.errors import UsageError, shown

from .advice import advised
from .answer import Answer, Called, Rounds
from .chat_files import saved
from .functions import Functions
from .images import seen
from .model_thread import ModelThread, Round, with_seed
from .settings import CheckedSettings, Settings, checked_settings

if TYPE_CHECKING:
    from hybrid.infer.answers.asking.eyes import SeenPicture

Given = Callable[..., Any] | Mapping[str, Any]
MOST_CALLS = 8  # limit on rounds of calls per answer


class Chat:
    """A conversation, made by `Model.chat`. Several can use one model; each is used by one thread at a time.

        chat = model.chat(system="You are brief.")
        print(chat.say("What is a state-space model?"))

    system  the system message
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
        self.pictures: Sequence[SeenPicture] = ()  # of the next question
        self._set_in_terminal: Mapping[str, str] = {}  # by /set of `hybrid run`; kept for it
        self._answer: Answer | None = None  # the last answer
        with advised():
            self._answering.dialect.check(self._asked)

    def say(
        self,
        text: str,
        *,
        images: Sequence[Any] = (),
        stream: bool = False,
        most_calls: int = MOST_CALLS,
        **settings: Unpack[Settings],
    ) -> Answer:
        """Asks the model `text` and returns its answer; with `stream` while it is generated.

        images: pictures that the text is about: paths, bytes of files, PIL images, or arrays u8 [height, width, 3].

        If the chat's tools are Python functions, the model's calls are carried out, and the model gets the return value
        or the exception, in at most `most_calls` rounds. An answer that still asks for calls has `finish` "tool_calls":
        pass their results to `tell`. A stopped answer stays in the conversation as far as it came. HybridError: the
        question cannot be asked; the conversation is then unchanged.
        """
        if not isinstance(text, str):
            raise UsageError(f"the text is {shown(type(text).__name__)}, expected a text.")
        with advised():
            pictures = [*self.pictures, *seen(self._answering.eyes, images)]
        answer = self._go_on(text, stream, most_calls, settings, pictures)
        self.pictures = []
        return answer

    def tell(
        self,
        results: Sequence[str],
        *,
        stream: bool = False,
        most_calls: int = MOST_CALLS,
        **settings: Unpack[Settings],
    ) -> Answer:
        """Gives the results of the last answer's calls, in their order, and returns the model's next answer."""
        self._settle()
        calls = self._turns.head.answer.calls if self._turns.head else ()
        if not calls or len(results) != len(calls):
            raise UsageError(f"{len(results)} results for {len(calls)} calls: expected one per call.")
        return self._go_on(tuple(results), stream, most_calls, settings)

    @property
    def turns(self) -> list[Turn]:
        """The turns: each has a `question` (a text, or results of calls) and an `answer` with `text`, `thoughts` and
        `calls`."""
        self._settle()
        return self._turns.path

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as messages in OpenAI's format."""
        self._settle()
        return self._messages(self._turns.head)

    def branch(self, at: int | None = None) -> "Chat":
        """A new chat with the first `at` turns of this one; None: all turns, -1: all except the last. The common turns
        are not read again."""
        self._settle()
        path = self._turns.path
        n = len(path) if at is None else at + len(path) if at < 0 else at
        if not 0 <= n <= len(path):
            raise UsageError(f"at = {at}: the chat has {len(path)} turns.")
        other = Chat(self._answering, self.system, self._functions.given, self._asked.think, self._settings)
        other._turns.all = list(self._turns.all)  # a turn's number is its index in this list
        other._turns.head = path[n - 1] if n else None
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves to a file for `Model.load_chat` and `hybrid run --state`, with the model's state, so that nothing is
        read again. HybridError: it cannot be written."""
        self._settle()
        with advised():
            asked = self._asked
            chat = SavedChat(self._turns, self.system, asked.tools, asked.think, settings=self._set_in_terminal)
            saved(self._answering, Path(path), chat, self._checked({}))

    def go_on_from(self, chat: SavedChat) -> None:
        """Replaces the conversation; for `Model.load_chat`."""
        self._turns, self._set_in_terminal = chat.turns, chat.settings

    # --- asking ---
    def _settle(self) -> None:
        """Ends an answer that nobody read to its end: the conversation continues without the rest."""
        if self._answer is not None and not self._answer.done:
            self._answer.stop()
            self._answer.wait()

    def _go_on(
        self,
        question: Question,
        stream: bool,
        most_calls: int,
        settings: Settings,
        pictures: "Sequence[SeenPicture]" = (),
    ) -> Answer:
        self._settle()
        called: list[Called] = []
        with advised():
            rounds = self._rounds(question, pictures, most_calls, self._checked(settings), called)
            answer = self._answer = Answer(self._answering, rounds, stream=True)
        answer.called = called
        return answer if stream else answer.wait()

    def _checked(self, settings: Settings) -> CheckedSettings:
        merged: Settings = {**self._settings, **settings}
        return checked_settings(merged, self._answering.sampling, -1)

    def _rounds(
        self,
        question: Question,
        pictures: "Sequence[SeenPicture]",
        most_calls: int,
        checked: CheckedSettings,
        called: list[Called],
    ) -> Rounds:
        while True:
            turn = yield from self._round(question, pictures, with_seed(checked, len(self._turns.all)))
            calls = turn.answer.calls if turn is not None else ()
            if not calls or most_calls == 0 or not self._functions.has(calls):
                return
            most_calls -= 1
            results = [self._functions.call(call) for call in calls]
            called += zip(calls, results, strict=True)
            question, pictures = tuple(results), ()

    def _round(
        self, question: Question, pictures: "Sequence[SeenPicture]", checked: CheckedSettings
    ) -> Generator[Round, None, Turn | None]:
        """Generates one answer, and adds it to the turns when it ends, as far as it came."""
        parent = self._turns.head
        messages = [*self._messages(parent), *asking(parent, question, pictures)]
        asked = self._asked if isinstance(question, str) else self._asked.relaxed
        made = self._answering.to_messages(messages, asked, checked)
        turn = None
        try:
            yield made
        finally:
            if made.job.done and made.job.error is None and made.job.result.ids:
                turn = self._added(parent, question, pictures, made)
        return turn

    def _added(self, parent: Turn | None, question: Question, pictures: "Sequence[SeenPicture]", made: Round) -> Turn:
        """Adds a turn, with all that a saved chat needs: see `conversations.Conversation`."""
        result, prompt = made.job.result, made.prompt
        path = parent.path() if parent is not None and prompt.known else []
        turn = self._turns.add(parent, question, made.told, pictures)
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
