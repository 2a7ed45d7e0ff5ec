"""How messages are typed: history across sessions, completion of commands and their arguments, several lines."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .chains import cache_paths

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

PATH = "FILE"  # among the arguments of a command: the name of one


def prompt_reader(
    commands: Iterable[str] = (), arguments: Mapping[str, Sequence[str]] | None = None, **session_options: Any
) -> Callable[[str], str]:
    """Reads messages with prompt_toolkit; what it returns is given the text that asks for one.

    commands   they begin with these words; what follows in a word's text is for people
    arguments  of some of them: the words that may follow; PATH: names of files
    """
    from prompt_toolkit import PromptSession
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
        completer=completer([name.split()[0] for name in commands], arguments or {}),
        complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
        prompt_continuation="  ",
        **session_options,
    )
    return lambda prompt: joined(session.prompt(prompt))


def completer(commands: list[str], arguments: Mapping[str, Sequence[str]]) -> "Completer":
    """Of the command, then of its argument."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, WordCompleter
    from prompt_toolkit.document import Document

    first = WordCompleter(commands, sentence=True)

    class Commands(Completer):
        """Completes what stands before the cursor."""

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            """Names of commands up to the first space, then the words and paths that this command takes."""
            command, space, argument = document.text_before_cursor.partition(" ")
            if not space:
                yield from first.get_completions(document, event)
                return
            words = arguments.get(command, ())
            rest = Document(argument)
            if words:
                yield from WordCompleter([word for word in words if word != PATH]).get_completions(rest, event)
            if PATH in words:
                yield from PathCompleter(expanduser=True).get_completions(rest, event)

    return Commands()


def unfinished(text: str) -> bool:
    """Whether Enter begins another line: after a trailing backslash, or inside triple quotes."""
    return text.endswith("\\") or (text.lstrip().startswith('"""') and text.count('"""') % 2 == 1)


def joined(text: str) -> str:
    """The message as it is meant: continuation backslashes and the triple quotes around it are not part of it."""
    stripped = text.strip()
    if len(stripped) >= 6 and stripped.startswith('"""') and stripped.endswith('"""'):
        return stripped[3:-3].strip("\n")
    return text.replace("\\\n", "\n")
