"""The beginning and end of a chat: its greeting, the saved chat that it continues, the file it is kept in."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.pipeline import models
from hybrid.pipeline.model_eyes import ModelEyes

from .. import console
from ..options.answer_options import AnswerOptions
from ..options.framing import chosen_template
from ..options.tool_options import Asking
from ..terminal.line_editing import prompt_reader
from . import saved_chats, setting_commands
from .commands import COMMANDS
from .model_command import title
from .session import ChatSession

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import SeenPicture
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.infer.text.chat_template import ChatTemplate

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
    """The options of `hybrid run`.

    answers      n_predict None: most_continued without a template
    options      how the model is loaded
    state        the file to continue from and to save to; None: a kept chat of the model
    go_on        continue the last kept chat
    in_template  put messages into the model's chat template, or into `chat_template` (see `chosen_template`)
    is_bundled   no model was named
    eyes         read pictures for the model; pictures: of the first message
    first        the first message; None: it is typed
    """

    answers: AnswerOptions = field(default_factory=AnswerOptions)
    options: "LoadOptions | None" = None
    state: Path | None = None
    go_on: bool = False
    in_template: bool = True
    system: str = ""
    asking: Asking = field(default_factory=Asking)
    chat_template: str | None = None
    is_bundled: bool = False
    most_continued: int = -1
    eyes: ModelEyes | None = None
    pictures: Sequence["SeenPicture"] = ()
    first: str | None = None


def chat(model: "LoadedModel", start: Start) -> None:
    """Chats until the user leaves, and saves the chat."""
    template, answers = None, start.answers
    if start.in_template:
        template = chosen_template(start.chat_template, model.chat_template, model.gguf, model.tokenizer)
    most = answers.answer_tokens
    if answers.n_predict is None and template is None:
        most = start.most_continued
    conversation = Conversation(
        model,
        answers.params(model),
        template,
        most,
        list(answers.stop),
        start.system,
        answers.speculate,
        answers.keep,
        answers.constraint(model),
        eyes=start.eyes,
    )
    session = ChatSession(
        conversation,
        lambda prompt: read(prompt),
        COMMANDS,
        sampling=answers.sampling,
        most_is_given=answers.n_predict is not None,
        pictures=list(start.pictures),
    )
    session.in_template, session.examples = start.in_template, EXAMPLES if start.is_bundled and template is None else ()
    session.load = lambda name: _another(os.path.expanduser(name), start, model)  # noqa: PTH111  may be no path
    session.eyes_of = ModelEyes
    read = prompt_reader([n for n, c in COMMANDS.items() if c.help], session.words, lambda: session.example)
    console.paragraph(f"{title(model)}. /help lists commands.")
    for line in told_first(model, start, template, most):
        console.paragraph(line)
    path = start.state or (saved_chats.last(model) if start.go_on else saved_chats.new(model))
    if path.exists():
        conversation.load(path)
        console.paragraph(f"restored {len(conversation.seq.tokens)} tokens from {path}")
        setting_commands.restore(session, path)
        session.replay()
    conversation.ask(start.asking.over(conversation.asked))
    session.keeper = saved_chats.Keeper(conversation, path, among_chats=start.state is None)
    try:
        session.loop(start.first)
        _keep(session, model, start)
    finally:
        if session.conversation.model is not model:
            session.conversation.model.close()


def told_first(model: "LoadedModel", start: Start, template: "ChatTemplate | None", most: int) -> list[str]:
    """Notes on a model that has no template, or is used without it: how it treats messages."""
    if start.is_bundled:
        return [BUNDLED]
    continued = "it continues your text instead of answering"
    many = f"{most} tokens at a time" if most >= 0 else "until the context is full or you press Ctrl-C"
    many += " (/set n-predict N)"
    if start.in_template and template is None:
        return [
            f"{model.path.name} has no chat template, so it was most likely not trained to chat: {continued}, {many}. "
            "Your next text is appended; /clear starts over."
        ]
    return [] if start.in_template else [f"--raw: the model continues your text instead of answering, {many}."]


def _another(name: str, start: Start, first: "LoadedModel") -> "LoadedModel":
    """Loads a model for /model. It guesses tokens as `first` does; a draft model is the same one."""
    model = models.load(name, start.options, reporter=console.SCREEN)
    model.runner.guessers.ngrams = first.runner.guessers.ngrams
    return model


def _keep(session: ChatSession, model: "LoadedModel", start: Start) -> None:
    keeper = session.keeper
    size = keeper.at_end() if keeper is not None else None
    if keeper is None or size is None:
        return
    now = session.conversation.model
    how = f"--state {start.state}" if start.state is not None else "--continue"
    if now is not model:
        how = f"hybrid run {now.path} {how}"
    console.paragraph(f"saved to {keeper.path}, {console.size(size)}; {how} continues it")
