"""The chat that `hybrid run` opens in a terminal: its commands, and streaming answers."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.infer.answers.chat.prompting import AUTO
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console, remedies, saved_chats
from ..answer_view import AnswerView, result_prompt, turn_lines
from ..context_shift import tokens_left_out
from ..line_editing import PATH, prompt_reader
from ..tool_options import Asking, Think, read_tools

if TYPE_CHECKING:
    from hybrid.infer import Model, Stop
    from hybrid.infer.answers.chat.dialect import Asked
    from hybrid.infer.answers.chat.reader import Part
    from hybrid.infer.answers.chat.tools import ToolCall
    from hybrid.infer.answers.constraints import Constraint
    from hybrid.infer.answers.conversations.turns import Turn
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
    "/tools [FILE|off]": "the tools that can be called; or others from now on, or none",
    "/skip": "give no result of what was called, and ask something else",
    "/think [on|off|auto]": "the thoughts behind the last answer; or whether to think from now on",
    "/save FILE": "write the conversation and the model's state",
    "/load FILE": "go on from a saved conversation; nothing is processed again",
    "/stats": "tokens, speed and memory so far",
    "/help": "this list",
}
ARGUMENTS = {"/think": tuple(Think), "/tools": ("off", PATH), "/save": (PATH,), "/load": (PATH,)}
KEYS = 'Alt-Enter, a \\ at the end of the line, or """ around several lines: a longer message. Ctrl-C stops an answer.'


@dataclass
class Chat:
    """One chat session. `read` returns the next message, asked for with a text, and raises EOFError at the end."""

    conversation: Conversation
    read: Callable[[str], str]
    keep: Callable[[], object] = lambda: None  # after every turn
    said_so: bool = False  # that the context was shifted
    results: list[str] = field(default_factory=list)  # of the calls of `called`, as far as they are known
    called: "Turn | None" = None
    skipped: "Turn | None" = None  # its calls get no results

    def loop(self) -> None:
        """Read, answer and obey commands until the user leaves."""
        while True:
            try:
                text = self.read(self.prompt)
            except EOFError:
                return
            except KeyboardInterrupt:
                console.note("Ctrl-D or /exit leaves")
                continue
            try:
                if self.is_command(text):
                    if not self.command(text.strip()):
                        return
                elif text.strip():
                    self.tell(text)
                with contextlib.suppress(KeyboardInterrupt):  # the file is then as it was
                    self.keep()
            except HybridError as err:
                console.error(remedies.message(err, place()))
            except OSError as err:
                console.error(f"{err.filename}: {err.strerror}.")

    @property
    def call(self) -> "ToolCall | None":
        """The one whose result is asked for."""
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

    def is_command(self, text: str) -> bool:
        """A result may begin as commands do: with a path, say."""
        known = {name.split()[0] for name in HELP} | {"/quit"}
        return text.startswith("/") and (self.call is None or text.split()[0] in known)

    def tell(self, text: str) -> None:
        """A question, or the result of a call; there is no answer until all results are known."""
        if self.call is None:
            self.speak(self.conversation.answer(text))
            self.skipped = None
            return
        self.results.append(text)
        if self.call is None:
            results, self.results = self.results, []
            self.speak(self.conversation.answer_calls(results))

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
                console.note(f"taken back: {turn.title[:60]} (/switch {turn.number} goes there again)")
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
            case "/tools":
                self.tools(argument)
            case "/skip":
                if self.call is None:
                    raise UsageError("there is no call that waits for its result.")
                self.skipped = self.conversation.turns.head
                console.note("the model gets no result; what you write next is a question")
            case "/think":
                self.think(argument)
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

    def tools(self, argument: str) -> None:
        """Lists them, or sets others."""
        conversation = self.conversation
        if argument:
            chosen = conversation.asked.choice if argument != "off" else AUTO
            tools = () if argument == "off" else read_tools(Path(argument).expanduser())
            conversation.ask(replace(conversation.asked, tools=tools, choice=chosen))
        console.note(tools_text(conversation.asked))

    def think(self, argument: str) -> None:
        """Shows the last thoughts, or says whether there are to be any."""
        conversation = self.conversation
        if argument:
            if argument not in [*Think]:
                raise UsageError(f"/think {argument}: expected on, off or auto, or nothing to see the last thoughts.")
            conversation.ask(replace(conversation.asked, think=Think(argument).asked))
            console.note(f"thoughts: {argument}")
            return
        head = conversation.turns.head
        if head is None or not head.answer.thoughts:
            raise UsageError("there are no thoughts behind the last answer.")
        console.out(console.dim(head.answer.thoughts))

    def replay(self) -> None:
        """Shows a loaded conversation."""
        if self.conversation.system:
            console.out(console.dim(self.conversation.system.strip("\n")))
        for turn in self.conversation.turns.path:
            self._show(turn)

    def _show(self, turn: "Turn") -> None:
        for line in turn_lines(turn):
            console.out(console.dim(line))

    def where(self) -> None:
        """Shows the turn that the conversation goes on from."""
        turns = self.conversation.turns
        last = turns.head
        console.note(f"on branch {turns.branch}, {f'after turn {last.number}' if last else 'at the beginning'}")
        if last is not None:
            self._show(last)

    def speak(self, parts: "Iterator[Part]") -> None:
        """Prints an answer as it comes. Ctrl-C ends the answer; what was said stays in the conversation."""
        view = AnswerView()
        with self._interruptible() as stop:
            for part in parts:
                view.show(part, self.conversation.reading.n_thought if self.conversation.reading else 0)
                if stop.is_set:
                    break
        view.end()
        if stop.is_set:
            console.note("stopped")
        result, reading = self.conversation.result, self.conversation.reading
        if result is not None and reading is not None and reading.answer(result).cut:
            console.note("the last call was cut off: the model will not see it, and it gets no result")
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
    if stats.n_thought:
        lines.append(f"thoughts    {stats.n_thought} of these tokens")
    if stats.n_calls:
        lines.append(f"calls       {stats.n_calls}")
    return "\n".join(lines)


def tools_text(asked: "Asked") -> str:
    """What /tools shows."""
    if not asked.tools:
        return "no tools (/tools FILE gives some)"
    called = {
        "auto": "",
        "none": "; none is to be called",
        "required": f"; {asked.choice.name or 'one'} has to be called",
    }
    calls = [
        console.one_line(f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})") for tool in asked.tools
    ]
    width = max(map(len, calls))
    told = [console.one_line(tool.description) for tool in asked.tools]
    lines = [f"{call.ljust(width)}  {text}".rstrip() for call, text in zip(calls, told, strict=True)]
    return "\n".join([*lines, f"{len(lines)} tool{'s' * (len(lines) != 1)}{called[asked.choice.mode]}"])


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
    asking: Asking = Asking(),  # noqa: B008
) -> None:
    """Chats until /exit or Ctrl-D, and keeps the chat: in `state`, or among the chats of this model.

    Goes on from `state` if that file exists, or with the last chat if told to `go_on`.
    """
    template = None if no_template else model.chat_template
    conversation = Conversation(model, params, template, max_tokens, stop, system, speculate, keep, form)
    session = Chat(conversation, prompt_reader(HELP, ARGUMENTS))
    how = "chat" if template is not None else "plain completion (no chat template)"
    console.note(f"{model.name}, {model.file_type}, {model.n_threads} threads; {how}. /help lists commands.")
    path = state if state is not None else saved_chats.last(model) if go_on else saved_chats.new(model)
    if path.exists():
        conversation.load(path)
        console.note(f"restored {len(conversation.seq.tokens)} tokens from {path}")
        session.replay()
    conversation.ask(asking.over(conversation.asked))
    keeper = saved_chats.Keeper(conversation, path, among_chats=state is None)
    session.keep = keeper.after_turn
    session.loop()
    size = keeper.at_end()
    if size is not None:
        how = f"--state {state}" if state is not None else "--continue"
        console.note(f"kept in {path}, {console.size(size)}; {how} goes on with it")
