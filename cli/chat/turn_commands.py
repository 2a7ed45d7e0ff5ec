"""Commands that go back in a conversation, and that switch branches."""

import shutil
from functools import partial

from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..terminal.line_editing import Words
from . import saved_chats
from .session import ChatSession


def clear(chat: ChatSession, _: str) -> None:
    """Begins a new conversation. A kept chat stays in its file, and the new one gets another."""
    keeper = chat.keeper
    kept = keeper is not None and keeper.among_chats and keeper.is_saved
    chat.conversation.clear()
    if kept:
        path = saved_chats.new(chat.conversation.model)
        chat.keeper = saved_chats.Keeper(chat.conversation, path, among_chats=True)
    console.paragraph("a new conversation begins" + "; `hybrid state` lists the one so far" * kept)


def regenerate(chat: ChatSession, _: str) -> None:
    if chat.conversation.turns.head is None:
        raise UsageError("there is no answer yet. Write something first.")
    chat.speak(chat.conversation.regenerate)


def undo(chat: ChatSession, _: str) -> None:
    turn = chat.conversation.undo()
    console.paragraph(f"taken back: {turn.title[:60]} (/switch {turn.number} goes there again)")


def edit(chat: ChatSession, argument: str) -> None:
    number, _, text = argument.partition(" ")
    if not number.isdecimal() or not text.strip():
        raise UsageError("/edit needs the number of a turn, as /tree shows it, and the new question: /edit 3 TEXT")
    chat.speak(partial(chat.conversation.edit, int(number), text.strip()))


def fork(chat: ChatSession, argument: str) -> None:
    chat.conversation.turns.fork(_name("/fork", argument))
    console.note(f"on branch {chat.conversation.turns.branch}")


def switch(chat: ChatSession, argument: str) -> None:
    chat.conversation.turns.switch(_name("/switch", argument))
    chat.where()


def tree(chat: ChatSession, _: str) -> None:
    width = shutil.get_terminal_size().columns
    console.note("\n".join(map(console.harmless, chat.conversation.turns.lines(width))))


def branches(chat: ChatSession, typed: str) -> Words:
    """Completions of /switch."""
    turns = chat.conversation.turns
    return Words(typed, [*turns.branches, *(str(turn.number) for turn in turns.all)])


def questions(chat: ChatSession, typed: str) -> Words:
    """Completions of /edit: a number and the question, for editing."""
    asked = [turn for turn in chat.conversation.turns.all if isinstance(turn.question, str)]
    return Words(typed, [f"{turn.number} {turn.question}" for turn in asked])


def _name(command: str, argument: str) -> str:
    if not argument:
        raise UsageError(f"{command} needs a name: {command} NAME")
    return argument
