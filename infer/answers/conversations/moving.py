"""Continues a conversation with another model, which has to read all of it: its tokens and states differ."""

from dataclasses import replace
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

from ..chat.dialect import NOTHING, ChatOptions
from .conversation import Conversation
from .turns import Turn, Turns

if TYPE_CHECKING:
    from ... import LoadedModel
    from ...text.chat_template import ChatTemplate
    from ..asking.eyes import PictureReader
    from ..constraints import Constraint
    from ..sampling import SamplingParams


def moved(
    conversation: Conversation,
    model: "LoadedModel",
    params: "SamplingParams",
    template: "ChatTemplate | None",
    eyes: "PictureReader | None" = None,
) -> Conversation:
    """The same turns and branches, as text, with `model`, its `template` and its `eyes`. `conversation` stays
    unchanged.

    Options that the template does not support are left out. Raises UsageError if the form of answers cannot be compiled
    for the model's tokens, or the model does not read the conversation's pictures.
    """
    other = Conversation(
        model,
        params,
        template,
        conversation.max_tokens,
        conversation.stop,
        conversation.system,
        conversation.speculate,
        conversation.keep,
        _form(conversation.form, model),
        settings=dict(conversation.settings),
        eyes=eyes,
        turns=_as_text(conversation.turns, eyes),
    )
    other.ask(_possible(conversation.asked, other))
    return other


def _as_text(turns: Turns, eyes: "PictureReader | None") -> Turns:
    """The same tree without tokens; numbers and names stay. eyes: read its pictures again."""
    copied = Turns()
    for turn in turns.all:
        parent = copied.all[turn.parent.number - 1] if turn.parent else None
        if turn.pictures and eyes is None:
            raise UsageError(f"turn {turn.number} has a picture, and the other model reads none.")
        pictures = tuple(eyes.read(picture.file, picture.title) for picture in turn.pictures) if eyes else ()
        copied.all.append(Turn(turn.number, parent, turn.question, turn.answer, pictures=pictures))
    copied.branches = {name: copied.all[head.number - 1] if head else None for name, head in turns.branches.items()}
    copied.branch = turns.branch
    return copied


def _form(form: "Constraint | None", model: "LoadedModel") -> "Constraint | None":
    if form is None:
        return None
    from ..constraints.forms import Forms

    return Forms(model.tokenizer).compiled(form.grammar)


def _possible(asked: ChatOptions, conversation: Conversation) -> ChatOptions:
    if conversation.dialect is None:
        return NOTHING
    return asked if conversation.dialect.format.thoughts else replace(asked, think=None, budget=None)
