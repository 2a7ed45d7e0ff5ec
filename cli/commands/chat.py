"""The chat that `hybrid run` opens in a terminal: line editing, commands, and streaming answers."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.infer.answers.conversation import Conversation
from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console, remedies, saved_chats
from ..chains import cache_paths
from ..context_shift import tokens_left_out

if TYPE_CHECKING:
    from hybrid.infer import Model, Stop
    from hybrid.infer.answers.constraints import Constraint
    from hybrid.infer.answers.sampling import SamplingParams

HELP = {
    "/exit": "leave (Ctrl-D does too)",
    "/clear": "forget the conversation",
    "/regen": "generate another answer to the last question",
    "/undo": "take the last question and its answer back",
    "/edit N TEXT": "ask TEXT instead of the Nth question; what followed stays in the tree",
    "/fork NAME": "begin a branch here and go on with it",
    "/switch NAME": "go on with another branch; a number: from that turn, on the branch that ends there or a new one",
    "/tree": "all turns and branches",
    "/save FILE": "write the conversation and the model's state",
    "/load FILE": "go on from a saved conversation; nothing is processed again",
    "/stats": "tokens, speed and memory so far",
    "/help": "this list",
}
KEYS = 'Alt-Enter, a \\ at the end of the line, or """ around several lines: a longer message. Ctrl-C stops an answer.'


@dataclass
class Chat:
    """One chat session. `read` returns the next message and raises EOFError at the end."""

    conversation: Conversation
    read: Callable[[], str]
    keep: Callable[[], object] = lambda: None  # after every turn
    said_so: bool = False  # that the context was shifted

    def loop(self) -> None:
        """Read, answer and obey commands until the user leaves."""
        while True:
            try:
                text = self.read()
            except EOFError:
                return
            except KeyboardInterrupt:
                console.note("Ctrl-D or /exit leaves")
                continue
            try:
                if text.startswith("/"):
                    if not self.command(text.strip()):
                        return
                elif text.strip():
                    self.speak(self.conversation.answer(text))
                with contextlib.suppress(KeyboardInterrupt):  # the file is then as it was
                    self.keep()
            except HybridError as err:
                console.error(remedies.message(err, place()))
            except OSError as err:
                console.error(f"{err.filename}: {err.strerror}.")

    def command(self, line: str) -> bool:
        """Runs a /command; False ends the chat."""
        name, _, argument = line.partition(" ")
        argument = argument.strip()
        match name:
            case "/exit" | "/quit":
                return False
            case "/clear":
                self.conversation.clear()
                console.note("forgotten")
            case "/regen":
                self.speak(self.conversation.regenerate())
            case "/undo":
                turn = self.conversation.undo()
                console.note(f"taken back: {turn.user.strip()[:60]} (/switch {turn.number} goes there again)")
            case "/edit":
                number, _, text = argument.partition(" ")
                if not number.isdecimal() or not text.strip():
                    raise UsageError("/edit needs the number of a question and its new text: /edit 3 TEXT")
                self.speak(self.conversation.edit(int(number), text.strip()))
            case "/fork":
                self.conversation.turns.fork(self._word(name, argument))
                console.note(f"on branch {self.conversation.turns.branch}")
            case "/switch":
                self.conversation.turns.switch(self._word(name, argument))
                self.where()
            case "/tree":
                console.note("\n".join(self.conversation.turns.lines()))
            case "/save":
                size = self.conversation.save(self._path(name, argument))
                console.note(f"saved {len(self.conversation.seq.tokens)} tokens to {argument}, {console.size(size)}")
            case "/load":
                self.conversation.load(self._path(name, argument))
                console.note(f"{len(self.conversation.seq.tokens)} tokens, as they were")
                self.replay()
            case "/stats":
                console.note(statistics(self.conversation))
            case "/help":
                console.note(help_text())
            case _:
                raise UsageError(f"there is no command {name}. /help lists them.")
        return True

    def replay(self) -> None:
        """Shows a loaded conversation."""
        for message in self.conversation.messages:
            self._show(message)

    def _show(self, message: dict[str, str]) -> None:
        mark = "> " if message["role"] == "user" else ""
        console.out(console.dim(mark + message["content"].strip("\n")))

    def where(self) -> None:
        """Shows the turn that the conversation goes on from."""
        turns = self.conversation.turns
        last = turns.head
        console.note(f"on branch {turns.branch}, {f'after turn {last.number}' if last else 'at the beginning'}")
        for message in self.conversation.messages[-2:] if last else ():
            self._show(message)

    def speak(self, pieces: Iterator[str]) -> None:
        """Prints an answer as it comes. Ctrl-C ends the answer; what was said stays in the conversation."""
        last = ""
        with self._interruptible() as stop:
            for piece in pieces:
                # sentencepiece's space before the first word is not for the eye
                shown = piece if last else piece.lstrip()
                console.out(shown, end="")
                last = shown or last
                if stop.is_set:
                    break
        console.out("" if last.endswith("\n") else "\n")
        if stop.is_set:
            console.note("stopped")
        result = self.conversation.result
        if result is not None and result.discarded and not self.said_so:
            console.note(tokens_left_out(self.conversation.model, result.discarded))
            self.said_so = True

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator["Stop"]:
        """Ctrl-C sets the Stop of this answer, which ends what the model computes for it, and nothing after it."""
        from hybrid.infer import Stop

        stop = Stop()
        before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
        try:
            with self.conversation.model.stopped_by(stop):
                yield stop
        finally:
            signal.signal(signal.SIGINT, before)

    @staticmethod
    def _word(command: str, argument: str) -> str:
        if not argument:
            raise UsageError(f"{command} needs a name: {command} NAME")
        return argument

    @staticmethod
    def _path(command: str, argument: str) -> Path:
        if not argument:
            raise UsageError(f"{command} needs a file name: {command} FILE")
        return Path(argument).expanduser()


def place() -> remedies.Place:
    """What an error in a chat can be answered with: its commands, and the options of `hybrid run`."""
    from ..main import load

    return remedies.place_of_chat(HELP, load("run"))


def help_text() -> str:
    width = max(map(len, HELP))
    return "\n".join([*(f"{name.ljust(width)}  {what}" for name, what in HELP.items()), KEYS])


def statistics(conversation: Conversation) -> str:
    """What /stats shows."""
    model, stats = conversation.model, conversation.stats
    held = len(conversation.seq.tokens)
    memory = model.memory.bytes_state_per_seq + held * model.memory.bytes_kv_per_token
    cache = model.cache
    kept = (
        f"{cache.n_tokens} tokens, {cache.n_checkpoints} checkpoints, {console.size(cache.nbytes)}"
        if cache is not None
        else "nothing (--checkpoint-budget 0)"
    )
    lines = [
        f"context     {held} of {model.n_ctx} tokens, {console.size(memory)}",
        f"prompt      {stats.n_prompt} tokens processed {console.rate(stats.n_prompt, stats.prompt_seconds)}, "
        f"{stats.n_reused} were there already",
        f"kept        {kept}",
        f"generated   {stats.n_generated} tokens {console.rate(stats.n_generated, stats.gen_seconds)}",
    ]
    return "\n".join(lines)


def chat(
    model: "Model",
    params: "SamplingParams",
    max_tokens: int,
    stop: list[str],
    state: Path | None,
    no_template: bool,
    system: str = "",
    go_on: bool = False,
    speculate: bool = False,
    keep: int | None = None,
    form: "Constraint | None" = None,
) -> None:
    """Chats until /exit or Ctrl-D, and keeps the chat: in `state`, or among the chats of this model.

    Goes on from `state` if that file exists, or with the last chat if told to `go_on`.
    """
    template = None if no_template else model.chat_template
    conversation = Conversation(model, params, template, max_tokens, stop, system, speculate, keep, form)
    session = Chat(conversation, prompt_reader())
    how = "chat" if template is not None else "plain completion (no chat template)"
    console.note(f"{model.name}, {model.file_type}, {model.n_threads} threads; {how}. /help lists commands.")
    path = state if state is not None else saved_chats.last(model) if go_on else saved_chats.new(model)
    if path.exists():
        conversation.load(path)
        console.note(f"restored {len(conversation.seq.tokens)} tokens from {path}")
        session.replay()
    keeper = saved_chats.Keeper(conversation, path, among_chats=state is None)
    session.keep = keeper.after_turn
    session.loop()
    size = keeper.at_end()
    if size is not None:
        how = f"--state {state}" if state is not None else "--continue"
        console.note(f"kept in {path}, {console.size(size)}; {how} goes on with it")


def prompt_reader(**session_options: Any) -> Callable[[], str]:
    """Reads messages with prompt_toolkit: history across sessions, completion of commands, several lines."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    history: History = InMemoryHistory()
    with contextlib.suppress(OSError):
        folder = cache_paths.state_dir()
        folder.mkdir(parents=True, exist_ok=True)
        history = FileHistory(str(folder / "history"))

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        if unfinished(event.current_buffer.text):
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=history,
        multiline=True,
        key_bindings=keys,
        completer=WordCompleter([name.split()[0] for name in HELP], sentence=True),
        complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
        prompt_continuation="  ",
        **session_options,
    )
    return lambda: joined(session.prompt("> "))


def unfinished(text: str) -> bool:
    """Whether Enter begins another line: after a trailing backslash, or inside triple quotes."""
    return text.endswith("\\") or (text.lstrip().startswith('"""') and text.count('"""') % 2 == 1)


def joined(text: str) -> str:
    """The message as it is meant: continuation backslashes and the triple quotes around it are not part of it."""
    stripped = text.strip()
    if len(stripped) >= 6 and stripped.startswith('"""') and stripped.endswith('"""'):
        return stripped[3:-3].strip("\n")
    return text.replace("\\\n", "\n")
