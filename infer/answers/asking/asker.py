"""Makes jobs of a batch from texts and conversations, and finds the tokens of earlier answers in later prompts.

asker = Asker(tokenizer, template, n_vocab)            # one for each model
prompt = asker.text("A text that")                     # or asker.messages(asker.dialect.prompt(messages, asked))
job = asker.job(prompt, AnswerSettings(params, 100))   # once it has ended, asker.note_written(...) of a message
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from ...engine.pictures import Picture
from ..batch.job import Job
from ..chat.dialect import AnswerRules, ChatOptions, Dialect
from ..constraints.forms import Forms
from ..drawing.drawing import Drawing
from ..sampling import Sampler, SamplingParams
from .ledger import WRITTEN, Encoded, Ledger
from .message_ends import message_ends
from .placing import Placed, n_placed, peeked, picture_ends, placed

if TYPE_CHECKING:
    from ...text.chat_template import ChatTemplate
    from ...text.tokenizer import Tokenizer
    from ..chat.prompting import ChatPrompt
    from ..chat.tools import ToolCall
    from ..drawing.drawing import GenerationResult
    from .eyes import SeenPicture

LAST_PICTURES = 2  # of a conversation get checkpoints at their ends: people ask again about them
LAST_MESSAGES = 4  # of a conversation get checkpoints at their ends, beside the first: people go back there


@dataclass(frozen=True)
class Prompt:
    """The tokens that an answer follows.

    text        their text; with it the answer is recognized when a client sends it back; None: it is not recognized
    plain       see Ledger
    boundaries  see Job
    known       tokens at the beginning that come from the ledger; the rest is encoded
    pictures    see Job
    """

    ids: list[int]
    text: str | None = None
    plain: bool = False
    boundaries: tuple[int, ...] = ()
    known: Sequence[int] = field(default=(), repr=False)
    pictures: tuple[Picture, ...] = field(default=(), repr=False)

    @property
    def rest(self) -> list[int]:
        """The tokens after `known`."""
        return self.ids[len(self.known) :]


@dataclass(frozen=True)
class AnswerSettings:
    """How an answer is sampled. Drawing explains the fields.

    most_seconds  limit on the time after the first token, for a text that has a line feed
    """

    params: SamplingParams
    max_tokens: int
    stop: Sequence[str] = ()
    rules: AnswerRules = field(default_factory=AnswerRules)
    n_top: int | None = None
    sampled: bool = False
    ignore_eos: bool = False
    ends: Collection[int] = ()
    min_tokens: int = 0
    special: bool = False
    most_seconds: float = math.inf

    def drawing(self, tokenizer: "Tokenizer", n_vocab: int) -> Drawing:
        """The drawing of one answer. Raises UsageError if a setting cannot be used."""
        drawing = Drawing(
            Sampler(self.params, n_vocab, tokenizer),
            tokenizer,
            self.max_tokens,
            self.stop,
            self.ignore_eos,
            self.n_top,
            self.sampled,
            **self.rules.drawn,
            ends=self.ends,
            min_tokens=self.min_tokens,
            special=self.special,
        )
        drawing.most_seconds = self.most_seconds
        return drawing


class Said(Protocol):
    """The parts of a message."""

    @property
    def text(self) -> str: ...
    @property
    def thoughts(self) -> str: ...
    @property
    def calls(self) -> "Sequence[ToolCall]": ...


class Asker:
    """Makes the prompts and jobs of one model, and keeps the tokens of its answers for when clients send them back as
    text.

    Methods take an `owner`, and reuse only that owner's answers. drawn=False: the text is encoded anew.
    forms: compiles grammars; None: a new one.
    """

    def __init__(
        self, tokenizer: "Tokenizer", template: "ChatTemplate | None", n_vocab: int, forms: Forms | None = None
    ) -> None:
        self.tokenizer, self.template, self.n_vocab = tokenizer, template, n_vocab
        self.ledger, self.forms = Ledger(tokenizer), Forms(tokenizer) if forms is None else forms

    @cached_property
    def dialect(self) -> Dialect:
        """How the model chats; only for a model with a template."""
        assert self.template is not None
        return Dialect(self.template, self.tokenizer, self.forms)

    def encoded(
        self,
        text: str,
        *,
        plain: bool = False,
        peek: bool = False,
        owner: bytes = b"",
        drawn: bool = True,
        seen: "Sequence[SeenPicture]" = (),
    ) -> Encoded:
        """A text as tokens, with this owner's answers as sampled. plain, peek: see `Ledger.find`.

        seen: the pictures in the text, in order. Their tokens are in place: each picture is read by the vision tower
        unless its features are at hand. Raises PictureError if the text has not as many places for them.
        """
        encoded = self._found(text, plain=plain, peek=peek, owner=owner, drawn=drawn)
        if not seen:
            return encoded
        found = placed(encoded, seen) or placed(self.ledger.anew(text, plain=plain), seen)
        assert found is not None, "there are no known tokens"
        return found

    def peeked(self, written: "ChatPrompt", *, owner: bytes = b"", drawn: bool = True) -> list[int]:
        """The tokens of a conversation, without recording a use. A picture whose features are not at hand is not read:
        its tokens are of no picture."""
        encoded = self._found(written.text, peek=True, owner=owner, drawn=drawn)
        seen = written.pictures
        if not seen:
            return encoded.ids
        ids = peeked(encoded, seen)
        return peeked(self.ledger.anew(written.text), seen) or [] if ids is None else ids

    def n_tokens(self, written: "ChatPrompt", *, owner: bytes = b"", drawn: bool = True) -> int:
        """The number of tokens of a conversation, which is not recorded as a use; no picture is read."""
        encoded = self._found(written.text, peek=True, owner=owner, drawn=drawn)
        return n_placed(encoded, written.pictures)

    def _found(
        self, text: str, *, plain: bool = False, peek: bool = False, owner: bytes = b"", drawn: bool = True
    ) -> Encoded:
        if not drawn:
            return self.ledger.anew(text, plain=plain)
        return self.ledger.find(text, plain=plain, peek=peek, owner=owner)

    def text(
        self,
        text: str,
        *,
        plain: bool = False,
        owner: bytes = b"",
        drawn: bool = True,
        seen: "Sequence[SeenPicture]" = (),
    ) -> Prompt:
        """The prompt of a raw text. plain: special tokens written in it are ordinary text. seen: the pictures whose
        `text` it has, in order; it is not plain then."""
        encoded = self.encoded(text, plain=plain, owner=owner, drawn=drawn, seen=seen)
        return Prompt(encoded.ids, text, plain, known=encoded.known, pictures=pictures_of(encoded))

    def messages(
        self, written: "ChatPrompt", *, owner: bytes = b"", drawn: bool = True, most: int = LAST_MESSAGES
    ) -> Prompt:
        """The prompt of a conversation that the template has written. most: see `message_ends`."""
        encoded = self.encoded(written.text, owner=owner, drawn=drawn, seen=written.pictures)
        ends = {*self.ends(written, encoded, most), *picture_ends(encoded.ids, written.pictures)[-LAST_PICTURES:]}
        return Prompt(encoded.ids, written.text, False, tuple(sorted(ends)), encoded.known, pictures_of(encoded))

    def ends(self, written: "ChatPrompt", encoded: Encoded, most: int) -> list[int]:
        """Positions in the prompt's tokens at which its messages end."""
        render, whole = partial(self.dialect.rendered, written), self.dialect.format.thoughts is not None
        short = encoded.unplaced if isinstance(encoded, Placed) else encoded
        ends = message_ends(self.tokenizer, render, written.messages, written.text, short, most, whole=whole)
        return encoded.moved(ends) if isinstance(encoded, Placed) else ends

    def job(self, prompt: Prompt, settings: AnswerSettings, *, note: bool = True, **fields: Any) -> Job:
        """The job of a prompt. note: note the answer when it has ended. fields: of Job. Raises UsageError for bad
        settings.
        """
        drawing = settings.drawing(self.tokenizer, self.n_vocab)
        made = {"boundaries": prompt.boundaries, "n_drawn": len(prompt.known), "pictures": prompt.pictures}
        job = Job(prompt.ids, drawing, **{**made, **fields})
        if note:
            job.on_end = partial(self._note_job, prompt, job)
        return job

    def _note_job(self, prompt: Prompt, job: Job) -> None:
        """Runs in the thread that steps. An answer that a fault ended may have tokens without text: it is not noted."""
        if job.error is None:
            self.note(prompt, job.result, job.owner)

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
        """Notes an ended message with calls or thoughts: the template will write it with other whitespace, and the
        sampled tokens stand for that text. Returns the text; "" if nothing was noted.

        ids: tokens of the prompt
        """
        if not (said.thoughts or said.calls):
            return ""
        # not every template accepts its model's answers
        rendered = WRITTEN.run(lambda: self.dialect.rendered_with(messages, asked, said), lambda: "")
        return self.ledger.note_rendered(written.text, rendered, ids, result, owner) if rendered else ""


def pictures_of(encoded: Encoded) -> tuple[Picture, ...]:
    """The pictures of an encoded text."""
    return encoded.pictures if isinstance(encoded, Placed) else ()
