"""One loaded model and the thread that answers: from a text or a conversation to a job of the batch.

answering = Answering(model, parallel=4)
round = answering.to_text("A text that", manner)        # or to_messages(messages, asked, manner)
... Answer tells what becomes of it
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from hybrid.infer import Model
from hybrid.infer.answers.batches.batching import Job
from hybrid.infer.answers.batches.service import Service
from hybrid.infer.answers.chat.dialect import Asked, Dialect, Exchange
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.conversations.ledger import WRITTEN, Encoded, Ledger
from hybrid.infer.answers.conversations.message_ends import message_ends
from hybrid.infer.answers.conversations.reading import Reading
from hybrid.infer.answers.conversations.turns import Answer as Told
from hybrid.infer.answers.generation.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError

from .settings import Manner

Message = Mapping[str, Any]
MOST_WAITING = 1 << 20  # answers: whoever asks in this process waits
LAST_MESSAGES = 4  # of a conversation get checkpoints where they end, beside the first: people go back there


@dataclass
class Round:
    """One prompt and its answer: a text, or a conversation, of which calls of tools may make several.

    encoded  the prompt: what an earlier answer drew, and the rest
    text     the prompt's own; asked: whether special tokens in it count
    """

    job: Job
    reading: Reading
    manner: Manner
    encoded: Encoded
    text: str
    exchange: Exchange | None = None
    written: str = field(default="", init=False)  # the answer as the template will write it: Ledger.note_rendered

    @property
    def told(self) -> Told:
        """The answer in its parts, without calls that were cut off."""
        return self.reading.answer(self.job.result).without_cut()


class Answering:
    """What all answers of a model share. template: None: the model has none."""

    def __init__(self, model: Model, parallel: int, template: ChatTemplate | None) -> None:
        self.model, self.template = model, template
        self.service = Service(model, parallel, most_waiting=MOST_WAITING)
        self.service.on_closed = model.close
        self.spare = threading.Lock()  # of the sequence that no answer has
        self.close = weakref.finalize(self, self.service.close)  # also when nobody has it any more, or Python ends
        self.ledger, self.forms = Ledger(model.tokenizer), Forms(model.tokenizer)

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are drawn where nobody says it."""
        return SamplingParams.from_metadata(self.model.gguf.metadata)

    @cached_property
    def dialect(self) -> Dialect:
        """How the model chats. TemplateError: it has no template."""
        if self.template is None:
            raise TemplateError(
                f"{self.model.name} has no chat template, so that it does not chat: it is completed with "
                "model.complete(text), or is given one in hybrid.load(..., template=TEXT)."
            )
        return Dialect(self.template, self.model.tokenizer, self.forms)

    # --- rounds ---
    def to_text(self, prompt: str | Sequence[int], manner: Manner) -> Round:
        """The answer that goes on from a text, or from tokens."""
        if isinstance(prompt, str):
            encoded, text = self.ledger.find(prompt, plain=True), prompt
        else:
            encoded, text = Encoded([], [int(token) for token in prompt]), ""
        form = None if manner.form is None else self.forms.compiled(manner.form).copy()
        job = self._job(encoded, manner, (), {"constraint": form})
        made = Round(job, Reading(), manner, encoded, text)
        if text:
            job.on_end = partial(self._note_drawn, job, text, encoded.ids, plain=True)
        return made

    def to_messages(self, messages: Sequence[Message], asked: Asked, manner: Manner) -> Round:
        """The next message of a conversation. UsageError, TemplateError: it cannot be written."""
        dialect = self.dialect
        form = None if manner.form is None else self.forms.compiled(manner.form)
        exchange = dialect.exchange(messages, asked, form)
        written, thoughts = exchange.prompt, dialect.format.thoughts
        encoded = self.ledger.find(written.text)
        ends = message_ends(
            self.model.tokenizer,
            partial(dialect.rendered, written),
            written.messages,
            written.text,
            encoded,
            LAST_MESSAGES,
            whole=thoughts is not None,
        )
        reading = Reading(exchange.reader, thoughts.closing if thoughts else "", written.thinks)
        job = self._job(encoded, manner, tuple(ends), exchange.drawn)
        made = Round(job, reading, manner, encoded, written.text, exchange)
        job.on_end = partial(self._note_drawn, job, written.text, encoded.ids, plain=False)
        return made

    def _job(self, encoded: Encoded, manner: Manner, boundaries: tuple[int, ...], drawn: Mapping[str, Any]) -> Job:
        sampler = Sampler(manner.params, self.model.n_vocab, self.model.tokenizer)
        drawing = Drawing(
            sampler, self.model.tokenizer, manner.tokens, manner.stop, n_top=manner.logprobs, **drawn
        )  # fmt: skip
        client = threading.get_ident()  # one thread's hundred hold up nobody else's one
        return Job(encoded.ids, drawing, remember=True, speculate=True, boundaries=boundaries, client=client)

    def _note_drawn(self, job: Job, text: str, ids: list[int], *, plain: bool) -> None:
        """In the service's thread. What a fault has ended may have tokens without their text."""
        if job.error is None:
            self.ledger.note_answer(text, ids, job.result, plain=plain)

    def note(self, made: Round) -> None:
        """A message has ended: what the model drew stays what it drew when the answer comes back in a conversation,
        with other white space in its calls and around its thoughts."""
        told, exchange, job = made.told, made.exchange, made.job
        if exchange is None or job.error is not None or not (told.thoughts or told.calls):
            return
        # not every template takes what its model says
        rendered = WRITTEN.run(lambda: self.dialect.rendered_with(exchange.messages, exchange.asked, told), lambda: "")
        if rendered:
            made.written = self.ledger.note_rendered(exchange.prompt.text, rendered, made.encoded.ids, job.result)


def with_seed(manner: Manner, number: int) -> Manner:
    """For the answer of that number in a conversation: with a seed its answers differ, and each can be had again."""
    params = manner.params
    if params.seed is None:
        return manner
    return replace(manner, params=replace(params, seed=(params.seed + number) % 2**64))
