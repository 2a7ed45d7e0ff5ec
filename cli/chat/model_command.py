"""/model: continues the conversation with another model."""

from typing import TYPE_CHECKING

from hybrid.infer.answers.conversations.moving import moved
from hybrid.pipeline import cached_models
from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..terminal.line_editing import Words
from .session import ChatSession

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel

GGUF = (".gguf",)


def model(chat: ChatSession, argument: str) -> None:
    """Prints the current model, or switches to another. If loading fails, nothing changes."""
    if not argument:
        now = chat.conversation.model
        console.note(f"{title(now)}; {now.path}")
        return
    if chat.load is None:
        raise UsageError("this chat cannot continue with another model.")
    before = chat.conversation.model
    after = chat.load(argument)
    try:
        conversation = moved(
            chat.conversation,
            after,
            chat.sampling.params(after.gguf.metadata),
            chat.template_of(after),
            None if chat.eyes_of is None else chat.eyes_of(after),
        )
    except BaseException:
        after.close()
        raise
    chat.conversation, chat.called, chat.results, chat.examples = conversation, None, [], ()
    chat.pictures = []
    if chat.keeper is not None:
        chat.keeper = chat.keeper.moved_to(conversation)
    before.close()
    reads = "; it reads the conversation when you write next" * bool(conversation.turns.path)
    console.paragraph(f"{title(after)}{reads}")
    if conversation.template is None:
        console.paragraph("it has no chat template: it continues your text instead of answering it")


def title(model: "LoadedModel") -> str:
    """A short description of a model."""
    return f"{model.name}, {model.file_type}, {model.n_threads} threads"


def models_here(chat: ChatSession, typed: str) -> Words:
    """Completions: files, folders, and models that were downloaded, converted or run before."""
    from hybrid.pipeline import present

    return Words(typed, dict.fromkeys([*present.names(), *converted_models()]), files=GGUF)


def converted_models() -> list[str]:
    """Folders that have been converted, the most recent first, and the demo's files."""
    known = []
    for each in cached_models.every():
        made_by_us = each.made_of in cached_models.MADE_BY.values()
        if each.in_use and each.made_of != cached_models.MADE_BY["shapes"]:
            known.append(str(each.path) if made_by_us else each.made_of)
    return known
