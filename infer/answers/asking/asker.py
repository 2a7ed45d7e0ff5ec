"""Prompts of texts and conversations, and the tokens of answers that come back in later prompts.

asker = Asker(tokenizer, template)                     # one for each model
prompt = asker.text("A text that")                     # or asker.messages(asker.dialect.prompt(messages, asked))
job = Job(prompt.ids, drawing, boundaries=prompt.boundaries)
job.on_end = lambda: asker.note(prompt, job.result)    # and asker.note_written(...) of a message
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from ..chat.dialect import ChatOptions, Dialect
from ..constraints.forms import Forms
from .ledger import WRITTEN, Encoded, Ledger
from .message_ends import message_ends

if TYPE_CHECKING:
    from ...text.chat_template import ChatTemplate
    from ...text.tokenizer import Tokenizer
    from ..chat.prompting import ChatPrompt
    from ..chat.tools import ToolCall
    from ..drawing.drawing import GenerationResult

LAST_MESSAGES = 4  # of a conversation get checkpoints where they end, beside the first: people go back there


@dataclass(frozen=True)
class Prompt:
    """What an answer follows.

    text        that the tokens stand for, so that the answer is known when it comes back with it; None: tokens alone
    plain       see Ledger
    boundaries  see Job
    known       tokens at its beginning that the ledger has given; the rest is encoded
    """

    ids: list[int]
    text: str | None = None
    plain: bool = False
    boundaries: tuple[int, ...] = ()
    known: Sequence[int] = field(default=(), repr=False)

    @property
    def rest(self) -> list[int]:
        """The tokens after `known`."""
        return self.ids[len(self.known) :]


class Said(Protocol):
    """The parts of a message."""

    @property
    def text(self) -> str: ...
    @property
    def thoughts(self) -> str: ...
    @property
    def calls(self) -> "Sequence[ToolCall]": ...


class Asker:
    """Makes the prompts of one model. It knows the tokens of the model's answers, which clients send back as text.

    Its methods take an `owner`: answers of nobody else come back. drawn=False: the text is encoded anew.
    """

    def __init__(self, tokenizer: "Tokenizer", template: "ChatTemplate | None") -> None:
        self.tokenizer, self.template = tokenizer, template
        self.ledger, self.forms = Ledger(tokenizer), Forms(tokenizer)

    @cached_property
    def dialect(self) -> Dialect:
        """How the model chats. Only for a model with a template."""
        assert self.template is not None
        return Dialect(self.template, self.tokenizer, self.forms)

    def encoded(
        self, text: str, *, plain: bool = False, peek: bool = False, owner: bytes = b"", drawn: bool = True
    ) -> Encoded:
        """A text as this owner's answers were drawn. plain, peek: see `Ledger.find`."""
        if not drawn:
            return self.ledger.anew(text, plain=plain)
        return self.ledger.find(text, plain=plain, peek=peek, owner=owner)

    def text(self, text: str, *, plain: bool = True, owner: bytes = b"", drawn: bool = True) -> Prompt:
        """A prompt as it is; not plain: special tokens that are written out in it count."""
        encoded = self.encoded(text, plain=plain, owner=owner, drawn=drawn)
        return Prompt(encoded.ids, text, plain, known=encoded.known)

    def messages(
        self, written: "ChatPrompt", *, owner: bytes = b"", drawn: bool = True, most: int = LAST_MESSAGES
    ) -> Prompt:
        """The prompt of a conversation, as the template has written it. most: see `message_ends`."""
        encoded = self.encoded(written.text, owner=owner, drawn=drawn)
        return Prompt(encoded.ids, written.text, False, tuple(self.ends(written, encoded, most)), encoded.known)

    def ends(self, written: "ChatPrompt", encoded: Encoded, most: int) -> list[int]:
        """Where the messages of a prompt end in its tokens."""
        render, whole = partial(self.dialect.rendered, written), self.dialect.format.thoughts is not None
        return message_ends(self.tokenizer, render, written.messages, written.text, encoded, most, whole=whole)

    def note(self, prompt: Prompt, result: "GenerationResult", owner: bytes = b"") -> None:
        """Notes an answer that has ended."""
        if prompt.text is not None:
            self.ledger.note_answer(prompt.text, prompt.ids, result, plain=prompt.plain, owner=owner)

    def note_written(
        self,
        written: "ChatPrompt",
        messages: Sequence[Mapping[str, Any]],
        asked: ChatOptions,
        said: Said,
        ids: list[int],
        result: "GenerationResult",
        owner: bytes = b"",
    ) -> str:
        """Notes an ended message with calls or thoughts: the template will write it with other white space, and the
        tokens drawn stand for that text. Returns the text; "": nothing was noted.

        ids: tokens of the prompt
        """
        if not (said.thoughts or said.calls):
            return ""
        # not every template takes what its model says
        rendered = WRITTEN.run(lambda: self.dialect.rendered_with(messages, asked, said), lambda: "")
        return self.ledger.note_rendered(written.text, rendered, ids, result, owner) if rendered else ""
