"""A chat session: reads messages, runs commands, streams answers."""

import contextlib
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console, remedies
from ..options.sampling_options import Sampling
from ..terminal.answer_view import AnswerView, result_prompt, turn_lines
from ..terminal.code_blocks import CodeText
from ..terminal.context_shift import tokens_left_out
from ..terminal.dragged_paths import picture_paths
from ..terminal.line_editing import NO_WORDS, Words
from ..terminal.reading_line import ReadingLine
from ..terminal.repetition import STOPS_IT, Repetition
from ..terminal.terminal import Screen, quiet_keys

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel, Stop
    from hybrid.infer.answers.asking.eyes import PictureReader, SeenPicture
    from hybrid.infer.answers.chat.reader import AnswerPart
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.infer.answers.conversations.turns import Turn
    from hybrid.infer.progress import TokenProgress
    from hybrid.infer.text.chat_template import ChatTemplate

    from .saved_chats import Keeper

N_PREDICT = "n_predict"  # the setting that is no sampler's: maximum tokens of an answer
_COMMAND = re.compile(r"/([a-z]+|\?)(?=\s|$)")


class Leave(Exception):  # noqa: N818  no error
    """Raised to end the chat."""


@dataclass(frozen=True)
class ChatCommand:
    """A command of the chat.

    run     called with the text after the name, stripped
    help    one line of help
    takes   description of its arguments
    words   completions of its arguments, given the text typed so far
    """

    run: "Callable[[ChatSession, str], object]"
    help: str
    takes: str = ""
    words: "Callable[[ChatSession, str], Words]" = lambda chat, typed: NO_WORDS


@dataclass
class ChatSession:
    """One chat session.

    read      returns the next message, given a prompt text; raises EOFError at the end
    commands  by name: `/help`
    keeper    saves the conversation after every turn
    sampling  settings given by the user; the model's defaults apply to the others
    most_is_given  the conversation's max_tokens was given by the user
    load      loads another model in the same way
    eyes_of   the eyes of another model
    in_template  put messages into the model's chat template, if it has one
    examples  messages to suggest to a new user
    pictures  that come with the next message
    """

    conversation: Conversation
    read: Callable[[str], str]
    commands: Mapping[str, ChatCommand]
    keeper: "Keeper | None" = None
    sampling: Sampling = field(default_factory=Sampling)
    load: "Callable[[str], LoadedModel] | None" = None
    eyes_of: "Callable[[LoadedModel], PictureReader] | None" = None
    in_template: bool = True
    most_is_given: bool = False
    examples: Sequence[str] = ()
    pictures: "list[SeenPicture]" = field(default_factory=list)
    n_begun: int = 0  # conversations of this session
    said_so: bool = False  # the note on the context shift was printed
    results: list[str] = field(default_factory=list)  # results so far for the calls of `called`
    called: "Turn | None" = None
    skipped: "Turn | None" = None  # a turn whose calls get no results

    def __post_init__(self) -> None:
        self.most_by_default = self.conversation.max_tokens
        self.on_command_line = {f.name for f in fields(Sampling) if is_given(getattr(self.sampling, f.name))}
        self.on_command_line |= {N_PREDICT} if self.most_is_given else set()

    def loop(self, first: str | None = None) -> None:
        """Reads, answers and runs commands until the user leaves. first: a message that is not read but shown."""
        interrupted = False  # Ctrl-C was the last input
        while True:
            try:
                if interrupted:
                    console.paragraph("press Ctrl-C again to leave; Ctrl-D and /exit leave also")
                if first is None:
                    text = self.read(self.prompt)
                else:
                    text, first = first, None
                    _print_past(f"{self.prompt}{text}")
            except EOFError:
                return
            except KeyboardInterrupt as interrupt:
                if interrupt.args:  # not a key but a signal that ends the program
                    raise
                # the second Ctrl-C may come as a signal while the first prompt is being removed
                if interrupted or isinstance(interrupt.__context__, KeyboardInterrupt):
                    return
                interrupted = True
                continue
            interrupted = False
            try:
                self.obey(text)
            except Leave:
                return
            except HybridError as err:
                console.error(remedies.message(err, place(self.commands)))
            except OSError as err:
                console.error(f"{err.filename}: {err.strerror}." if err.filename else f"{err.strerror or err}.")
            except MemoryError:
                console.error("out of memory.")

    def obey(self, text: str) -> None:
        """Runs a command or answers a message, and saves the conversation."""
        name = self.command_of(text)
        if name is not None:
            self.command(name, text[len(name) :].strip())
        elif self.call is None and (paths := picture_paths(text)):
            for path in paths:
                self.command("/image", str(path))
        elif text.strip():
            self.tell(text)
        if self.keeper is not None:
            with contextlib.suppress(KeyboardInterrupt):  # the file is then unchanged
                self.keeper.after_turn()

    @property
    def call(self) -> "ToolCall | None":
        """The next call that needs a result from the user, or None."""
        head = self.conversation.turns.head
        if head is None or head is self.skipped:
            return None
        if head is not self.called:
            self.called, self.results = head, []
        return next(iter(head.answer.calls[len(self.results) :]), None)

    @property
    def prompt(self) -> str:
        if self.call is None:
            return "> "
        return result_prompt(self.conversation.calls, len(self.results))

    @property
    def example(self) -> str:
        """The message that Enter alone sends."""
        if not self.examples or self.conversation.turns.head is not None:
            return ""
        return self.examples[self.n_begun % len(self.examples)]

    def template_of(self, model: "LoadedModel") -> "ChatTemplate | None":
        """The chat template for messages to `model`, or None."""
        return model.chat_template if self.in_template else None

    # --- commands ---
    def command_of(self, text: str) -> str | None:
        """The command this line starts with, or None. Paths are not commands; nor are unknown /words in tool results or
        pasted text."""
        match = _COMMAND.match(text)
        if match is None:
            return None
        if match[0] not in self.commands and (self.call is not None or "\n" in text.strip()):
            return None
        return match[0]

    def command(self, name: str, argument: str) -> None:
        """Runs a command. UsageError: there is no command of this name."""
        if name not in self.commands:
            import difflib  # slow to import

            near = difflib.get_close_matches(name, self.commands, 1, 0.6)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"there is no command {name}.{hint} /help lists them.")
        self.commands[name].run(self, argument)

    def words(self, name: str, typed: str) -> Words:
        """Completions for a command's arguments."""
        return self.commands[name].words(self, typed)

    # --- talking ---
    def tell(self, text: str) -> None:
        """Adds a question, or the result of a call; answers once all results are known."""
        if self.call is None:
            self.n_begun += self.conversation.turns.head is None
            pictures, self.pictures, n = self.pictures, [], len(self.conversation.turns.all)
            try:
                self.speak(partial(self.conversation.answer, text, pictures=pictures))
            finally:
                if len(self.conversation.turns.all) == n:
                    self.pictures = pictures  # they are not lost with a question that could not be asked
            self.skipped = None
            return
        self.results.append(text)
        if self.call is None:
            results, self.results = self.results, []
            self.speak(partial(self.conversation.answer_calls, results))

    def speak(self, answer: "Callable[[TokenProgress], Iterator[AnswerPart]]") -> None:
        """Streams an answer, after the progress of reading the prompt. Ctrl-C stops the answer; its text so far stays
        in the conversation."""
        with quiet_keys() as screen, self._interruptible() as stop, ReadingLine() as reading:
            view, repetition = AnswerView(screen), Repetition()
            self.conversation.looking = reading.picture
            for part in answer(reading.step):
                reading.close()
                view.show(part, self.conversation.reading.n_thought if self.conversation.reading else 0)
                if repetition.push(part.text):
                    view.note(f"the answer repeats itself: {STOPS_IT}")
                if stop.is_set:
                    break
            reading.close()
            view.end()
        if stop.is_set:
            console.note("stopped")
        self._say_what_is_missing()

    def _say_what_is_missing(self) -> None:
        result, reading = self.conversation.result, self.conversation.reading
        if result is not None and reading is not None and reading.answer(result).cut:
            console.paragraph("the last call was cut off: the model will not see it, and it gets no result")
        if result is not None and result.reason == "length" and self.conversation.template is not None:
            console.paragraph(f"the answer ended at the limit of {len(result.ids)} tokens (/set n-predict N)")
        if result is not None and result.discarded and not self.said_so:
            console.paragraph(tokens_left_out(self.conversation.model, result.discarded))
            self.said_so = True

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator["Stop"]:
        """Ctrl-C sets the Stop of this answer only. A signal that ends the program does so also, and is raised again
        afterwards."""
        from hybrid.infer import Stop

        stop, ended = Stop(), False

        def end(number: int, frame: object) -> None:
            nonlocal ended
            ended = True
            stop.set()

        before: Any = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
        before_end: Any = signal.signal(signal.SIGTERM, end)
        try:
            with self.conversation.model.stopped_by(stop):
                yield stop
        finally:
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, before_end)
            if ended:
                signal.raise_signal(signal.SIGTERM)

    # --- display ---
    def replay(self) -> None:
        """Prints a loaded conversation."""
        if self.conversation.system:
            _print_past(self.conversation.system.strip("\n"))
        for turn in self.conversation.turns.path:
            self._show(turn)

    def where(self) -> None:
        """Prints the turn that the conversation continues from."""
        turns = self.conversation.turns
        last = turns.head
        console.note(f"on branch {turns.branch}, {f'after turn {last.number}' if last else 'at the beginning'}")
        if last is not None:
            self._show(last)

    def _show(self, turn: "Turn") -> None:
        for line in turn_lines(turn):
            _print_past(line)


def _print_past(text: str) -> None:
    """Prints a text of the conversation so far."""
    CodeText(Screen(), is_past=True).write(text + "\n")


def is_given(value: object) -> bool:
    """Whether this value of an option was given."""
    return value is not None and value is not False and value != []


def place(commands: Mapping[str, ChatCommand]) -> remedies.ErrorContext:
    """The error context of a chat: its commands, and the options of `hybrid run`."""
    from ..main import load

    return remedies.place_of_chat(commands, load("run"))
