"""Continues a conversation with another model, which has to read all of it: its tokens and states differ."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ..chat.dialect import NOTHING, ChatOptions
from .conversation import Conversation
from .turns import Turn, Turns

if TYPE_CHECKING:
    from ... import LoadedModel
    from ...text.chat_template import ChatTemplate
    from ..constraints import Constraint
    from ..sampling import SamplingParams


def moved(
    conversation: Conversation,
    model: "LoadedModel",
    params: "SamplingParams",
    template: "ChatTemplate | None",
) -> Conversation:
    """The same turns and branches, as text, with `model` and its `template`. `conversation` stays unchanged.

    Options that the template does not support are left out. Raises UsageError if the form of answers cannot be compiled
    for the model's tokens.
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
        turns=_as_text(conversation.turns),
    )
    other.ask(_possible(conversation.asked, other))
    return other


def _as_text(turns: Turns) -> Turns:
    """The same tree without tokens; numbers and names stay."""
    copied = Turns()
    for turn in turns.all:
        parent = copied.all[turn.parent.number - 1] if turn.parent else None
        copied.all.append(Turn(turn.number, parent, turn.question, turn.answer))
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
