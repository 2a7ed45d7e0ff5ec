"""Input of messages: history across sessions, completion of commands and arguments, several lines."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid import cache_paths

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer


@dataclass(frozen=True)
class Words:
    """Completions at the end of `typed`.

    files: also files with these endings, and folders; None: no files
    """

    typed: str = ""
    words: Iterable[str] = ()
    files: tuple[str, ...] | None = None


NO_WORDS = Words()
Arguments = Callable[[str, str], Words]  # (command, text typed after it)


def prompt_reader(
    commands: Iterable[str] = (),
    arguments: Arguments = lambda command, typed: NO_WORDS,
    example: Callable[[], str] = lambda: "",
    **session_options: Any,
) -> Callable[[str], str]:
    """A function that reads a message with prompt_toolkit, given the prompt text.

    commands   words that a message may begin with
    arguments  completions of a command's arguments
    example    the message that Enter alone sends, shown while nothing is typed; "": an empty message
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    history: History = InMemoryHistory()
    with contextlib.suppress(OSError):
        folder = cache_paths.state_dir()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "history").touch(mode=0o600)
        (folder / "history").chmod(0o600)  # other users must not read the prompts
        history = FileHistory(str(folder / "history"))

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.text:
            buffer.insert_text(example())
        if unfinished(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("c-@")  # a Ctrl-D from before the prompt, which the terminal passes on as NUL
    def _(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        # prompt_toolkit's own Tab does nothing while the completer of the last key still runs
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        found = list(completes.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        common = get_common_complete_suffix(buffer.document, found)
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif common:
            buffer.insert_text(common)
        else:
            buffer.start_completion()

    completes = completer(list(commands), arguments)
    session: PromptSession[str] = PromptSession(
        history=history,
        multiline=True,
        key_bindings=keys,
        completer=completes,
        complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
        prompt_continuation="  ",
        **session_options,
    )
    return lambda prompt: joined(session.prompt(prompt, placeholder=[("class:placeholder ansibrightblack", example())]))


def completer(commands: list[str], arguments: Arguments) -> "Completer":
    """Completes commands and their arguments."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, WordCompleter
    from prompt_toolkit.document import Document

    first = WordCompleter(commands, sentence=True)

    class Commands(Completer):
        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            command, space, argument = document.text_before_cursor.partition(" ")
            if not space:
                yield from first.get_completions(document, event)
                return
            if command not in commands:
                return
            found = arguments(command, argument)
            yield from WordCompleter(list(found.words), sentence=True).get_completions(Document(found.typed), event)
            ends = found.files
            if ends is not None:
                paths = PathCompleter(expanduser=True, file_filter=lambda name: is_wanted(name, ends))
                yield from paths.get_completions(Document(found.typed), event)

    return Commands()


def is_wanted(name: str, ends: tuple[str, ...]) -> bool:
    """Whether to complete this name: it is a folder, or a file with one of the endings `ends`."""
    return name.endswith(ends) or Path(name).is_dir()


def unfinished(text: str) -> bool:
    """Whether Enter starts another line: after a trailing backslash, or inside triple quotes."""
    return text.endswith("\\") or (text.lstrip().startswith('"""') and text.count('"""') % 2 == 1)


def joined(text: str) -> str:
    """The message without continuation backslashes and the triple quotes around it."""
    stripped = text.strip()
    if len(stripped) >= 6 and stripped.startswith('"""') and stripped.endswith('"""'):
        return stripped[3:-3].strip("\n")
    return text.replace("\\\n", "\n")
