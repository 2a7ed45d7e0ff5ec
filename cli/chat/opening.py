"""How a chat begins and ends: what it says of its model, what it goes on with, where it is kept."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.pipeline import models

from .. import console
from ..options.sampling_options import Sampling
from ..options.tool_options import Asking
from ..screen.line_editing import prompt_reader
from . import saved_chats
from .commands import COMMANDS
from .models import title
from .session import Chat

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.answers.constraints import Constraint
    from hybrid.infer.loading.options import LoadOptions

BUNDLED = (
    "This is the bundled model, which shows that all works. It has 11 million weights and was trained on "
    "documentation: it continues such texts, knows nothing, and cannot chat. Enter continues the example; or write a "
    "beginning of your own. A model of yours: hybrid run path/to/model"
)
EXAMPLES = (
    "To install the package, run",
    "If the option is not given,",
    "A function that returns a list of",
)


@dataclass(frozen=True)
class Start:
    """What `hybrid run` was asked for.

    max_tokens   of an answer; None: as many as fit, or most_continued without a template
    state        the file that the chat is kept in and goes on from; None: among the chats of the model
    go_on        with the last of these
    in_template  messages are put into the model's chat template
    is_bundled   nobody has named a model
    """

    sampling: Sampling = field(default_factory=Sampling)
    options: "LoadOptions | None" = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    state: Path | None = None
    go_on: bool = False
    in_template: bool = True
    system: str = ""
    speculate: bool = False
    keep: int | None = None
    asking: Asking = field(default_factory=Asking)
    is_bundled: bool = False
    most_continued: int = -1


def chat(model: "Model", start: Start, form: "Constraint | None" = None) -> None:
    """Chats until the user leaves, and keeps the chat. form: of every answer."""
    template = model.chat_template if start.in_template else None
    most = start.max_tokens
    if most is None:
        most = -1 if template is not None else start.most_continued
    params = start.sampling.params(model)
    conversation = Conversation(
        model, params, template, most, list(start.stop), start.system, start.speculate, start.keep, form
    )
    session = Chat(conversation, lambda prompt: read(prompt), COMMANDS, sampling=start.sampling)
    session.in_template, session.examples = start.in_template, EXAMPLES if start.is_bundled and template is None else ()
    session.load = lambda name: _another(os.path.expanduser(name), start, model)  # noqa: PTH111  may be no path
    read = prompt_reader([n for n, c in COMMANDS.items() if c.help], session.words, lambda: session.example)
    console.note(f"{title(model)}. /help lists commands.")
    for line in told_first(model, start, most):
        console.paragraph(line)
    path = start.state or (saved_chats.last(model) if start.go_on else saved_chats.new(model))
    if path.exists():
        conversation.load(path)
        console.note(f"restored {len(conversation.seq.tokens)} tokens from {path}")
        session.replay()
    conversation.ask(start.asking.over(conversation.asked))
    session.keeper = saved_chats.Keeper(conversation, path, among_chats=start.state is None)
    try:
        session.loop()
        _keep(session, model, start)
    finally:
        if session.conversation.model is not model:
            session.conversation.model.close()


def told_first(model: "Model", start: Start, most: int) -> list[str]:
    """What a model without a template, or one that is used without it, makes of what is written."""
    if start.is_bundled:
        return [BUNDLED]
    continued = "what you write is continued, not answered"
    many = f"{most} tokens at a time (-n)" if most >= 0 else "until the context is full (-n) or you press Ctrl-C"
    if model.chat_template is None:
        return [
            f"{model.path.name} has no chat template, so it was most likely not trained to chat: {continued}, {many}. "
            "What you write next goes on behind that; /clear begins anew."
        ]
    return [] if start.in_template else [f"--no-template: {continued}, {many}."]


def _another(name: str, start: Start, first: "Model") -> "Model":
    """A model to go on with. It guesses as the first one does, but for the draft, which is the first one's."""
    model = models.load(name, start.options, reporter=console.SCREEN)
    model.runner.guessers.ngrams = first.runner.guessers.ngrams
    return model


def _keep(session: Chat, model: "Model", start: Start) -> None:
    keeper = session.keeper
    size = keeper.at_end() if keeper is not None else None
    if keeper is None or size is None:
        return
    now = session.conversation.model
    how = f"--state {start.state}" if start.state is not None else "--continue"
    if now is not model:
        how = f"hybrid run {now.path} {how}"
    console.note(f"kept in {keeper.path}, {console.size(size)}; {how} goes on with it")
