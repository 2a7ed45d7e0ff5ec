"""Commands that save and load conversations."""

from pathlib import Path

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..terminal.line_editing import Words
from . import saved_chats, setting_commands
from .session import ChatSession


def save(chat: ChatSession, argument: str) -> None:
    size = chat.conversation.save(_path("/save", argument))
    console.note(f"saved {len(chat.conversation.seq.tokens)} tokens to {argument}, {console.size(size)}")


def load(chat: ChatSession, argument: str) -> None:
    path = _path("/load", argument)
    chat.conversation.load(path)
    setting_commands.restore(chat, path)
    console.note(f"{len(chat.conversation.seq.tokens)} tokens, unchanged")
    chat.replay()


def any_file(chat: ChatSession, typed: str) -> Words:
    return Words(typed, files=("",))


def saved_files(chat: ChatSession, typed: str) -> Words:
    """Completions: files, and kept chats of this model."""
    return Words(typed, map(str, saved_chats.of_model(chat.conversation.model)), files=("",))


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise UsageError(f"{command} needs a file name: {command} FILE")
    return Path(argument).expanduser()
