"""Whether a text is a message in the model's chat template, or raw; which template, and its system message."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from . import text_options
from .tool_options import Asking

if TYPE_CHECKING:
    from hybrid.infer.text.chat_template import ChatTemplate
    from hybrid.infer.text.tokenizer import Tokenizer
    from hybrid.infer.text.tokenizer.vocabulary import MetadataFile

TemplateChoice = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        metavar="FILE|NAME",
        help="Chat template (Jinja) to use instead of the model's: a file, or the name of another in the model's file.",
    ),
]
RAW_STATE = "the text is continued, as in the state file"


@dataclass(frozen=True, eq=False, repr=False)
class Framing:
    """The chat template and the system message around a text."""

    system: Annotated[str, typer.Option(metavar="TEXT", help="System message, in the model's chat template.")] = ""
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--no-raw",
            help="Continue the text as it stands, or answer it as a message in the chat template. Default: answer if "
            "the model has a template (the bundled model continues).",
        ),
    ] = None
    chat_template: TemplateChoice = None
    parse_special: Annotated[
        bool | None,
        typer.Option(
            "--parse-special/--no-parse-special",
            help='Read control tokens written in the text, as "<|im_end|>", as tokens or as plain text. Default: '
            "tokens in a raw text, plain text in messages.",
        ),
    ] = None

    def needs_template(self, asks: Asking) -> str | None:
        """The name of a given option that needs a chat template, or None."""
        return asks.given or ("--system" if self.system else "--chat-template" if self.chat_template else None)

    def check(self, asks: Asking) -> None:
        """UsageError: --raw together with an option that needs the template, or a system message that is not UTF-8."""
        if self.raw and (name := self.needs_template(asks)):
            raise UsageError(f"{name} needs the model's chat template: leave out --raw.")
        text_options.checked(self.system, "--system")

    def chats(self, asks: Asking, *, is_bundled: bool) -> bool:
        """Whether a chat uses the template of its model, if that has one."""
        if self.raw is None and is_bundled:  # it has a template, but was not trained to chat
            return self.needs_template(asks) is not None
        return not self.raw

    def asks(
        self, template: "ChatTemplate | None", asks: Asking, name: str, *, is_bundled: bool, goes_on_raw: bool
    ) -> bool:
        """Whether one text is answered in `template` instead of continued; a note in a terminal says which.

        name         of the model, for messages
        goes_on_raw  the state file before the text holds a raw text
        Raises UsageError if a given option needs a template and the model has none.
        """
        needs = self.needs_template(asks) or ("--no-raw" if self.raw is False else None)
        if needs and template is None:
            raise UsageError(f"{needs} needs a chat template, and {name} has none. Give one with --chat-template.")
        if self.raw is not None or needs is not None:
            return not self.raw
        asked = template is not None and not is_bundled and not goes_on_raw
        if sys.stderr.isatty():
            console.paragraph(_how(name, asked=asked, has_one=template is not None, goes_on_raw=goes_on_raw))
        return asked


def _how(name: str, *, asked: bool, has_one: bool, goes_on_raw: bool) -> str:
    if asked:
        return "the text is put into the model's chat template; --raw continues the text instead"
    if goes_on_raw:
        return RAW_STATE
    return "the text is continued: " + (
        "the bundled model was not trained to chat" if has_one else f"{name} has no chat template"
    )


def chosen_template(
    given: str | None, own: "ChatTemplate | None", gguf: "MetadataFile", tokenizer: "Tokenizer"
) -> "ChatTemplate | None":
    """The template of --chat-template, or the model's `own` if the option was not given.

    UsageError: there is neither a file nor a template in the model's file of that name. TemplateError: it cannot be
    used.
    """
    if given is None:
        return own
    from hybrid.infer.text.chat_template import ChatTemplate, special_tokens

    if not Path(given).exists():
        named = ChatTemplate.from_gguf(gguf, tokenizer, given)
        if named is not None:
            return named
        listed = gguf.metadata.get("tokenizer.chat_templates")
        names = ", ".join(map(str, listed)) if isinstance(listed, list) else ""
        there = f"The model's file has {shown(names)}." if names else "The model's file has no named templates."
        raise UsageError(f"--chat-template {shown(given)}: no such file. {there}")
    source = text_options.read_text(Path(given))
    return ChatTemplate(source, name="the template of --chat-template", tokens=special_tokens(tokenizer))
