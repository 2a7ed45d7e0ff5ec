"""One loaded model and the thread that answers: from a text or a conversation to a job of the batch.

answering = Answering(model, parallel=4)
round = answering.to_text("A text that", manner)        # or to_messages(messages, asked, manner)
... Answer tells what becomes of it
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.asker import Asker, Prompt
from hybrid.infer.answers.asking.reading import Reading
from hybrid.infer.answers.asking.reading import SaidAnswer as Told
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.batch.service import Service
from hybrid.infer.answers.chat.dialect import ChatOptions, Dialect, Exchange
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError

from .settings import AnswerSettings

Message = Mapping[str, Any]
MOST_WAITING = 1 << 20  # answers: whoever asks in this process waits


@dataclass
class Round:
    """One prompt and its answer: a text, or a conversation, of which calls of tools may make several."""

    job: Job
    reading: Reading
    manner: AnswerSettings
    prompt: Prompt
    exchange: Exchange | None = None
    written: str = field(default="", init=False)  # the answer as the template will write it: Asker.note_written

    @property
    def told(self) -> Told:
        """The answer in its parts, without calls that were cut off."""
        return self.reading.answer(self.job.result).without_cut()


class ModelThread:
    """What all answers of a model share. template: None: the model has none."""

    def __init__(self, model: LoadedModel, parallel: int, template: ChatTemplate | None) -> None:
        self.model, self.template = model, template
        self.service = Service(model, parallel, most_waiting=MOST_WAITING)
        self.service.on_closed = model.close
        self.spare = threading.Lock()  # of the sequence that no answer has
        self.close = weakref.finalize(self, self.service.close)  # also when nobody has it any more, or Python ends
        self.asker = Asker(model.tokenizer, template)

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are drawn where nobody says it."""
        return SamplingParams.from_metadata(self.model.gguf.metadata)

    @property
    def dialect(self) -> Dialect:
        """How the model chats. TemplateError: it has no template."""
        if self.template is None:
            raise TemplateError(
                f"{self.model.name} has no chat template, so that it does not chat: it is completed with "
                "model.complete(text), or is given one in hybrid.load(..., template=TEXT)."
            )
        return self.asker.dialect

    # --- rounds ---
    def to_text(self, text: str | Sequence[int], manner: AnswerSettings) -> Round:
        """The answer that goes on from a text, or from tokens."""
        prompt = self.asker.text(text) if isinstance(text, str) else Prompt([int(token) for token in text])
        form = None if manner.form is None else self.asker.forms.compiled(manner.form).copy()
        return self._round(prompt, Reading(), manner, {"constraint": form})

    def to_messages(self, messages: Sequence[Message], asked: ChatOptions, manner: AnswerSettings) -> Round:
        """The next message of a conversation. UsageError, TemplateError: it cannot be written."""
        dialect = self.dialect
        form = None if manner.form is None else self.asker.forms.compiled(manner.form)
        exchange = dialect.exchange(messages, asked, form)
        written, thoughts = exchange.prompt, dialect.format.thoughts
        reading = Reading(exchange.reader, thoughts.closing if thoughts else "", written.thinks)
        return self._round(self.asker.messages(written), reading, manner, exchange.drawn, exchange)

    def _round(
        self,
        prompt: Prompt,
        reading: Reading,
        manner: AnswerSettings,
        drawn: Mapping[str, Any],
        exchange: Exchange | None = None,
    ) -> Round:
        sampler = Sampler(manner.params, self.model.n_vocab, self.model.tokenizer)
        drawing = Drawing(
            sampler, self.model.tokenizer, manner.tokens, manner.stop, n_top=manner.logprobs, **drawn
        )  # fmt: skip
        client = threading.get_ident()  # one thread's hundred hold up nobody else's one
        job = Job(prompt.ids, drawing, remember=True, speculate=True, boundaries=prompt.boundaries, client=client)
        job.on_end = partial(self._note_drawn, job, prompt)
        return Round(job, reading, manner, prompt, exchange)

    def _note_drawn(self, job: Job, prompt: Prompt) -> None:
        """In the service's thread. What a fault has ended may have tokens without their text."""
        if job.error is None:
            self.asker.note(prompt, job.result)

    def note(self, made: Round) -> None:
        """A message has ended: what the model drew stays what it drew when the answer comes back in a conversation."""
        exchange, job = made.exchange, made.job
        if exchange is not None and job.error is None:
            made.written = self.asker.note_written(
                exchange.prompt, exchange.messages, exchange.asked, made.told, made.prompt.ids, job.result
            )  # fmt: skip


def with_seed(manner: AnswerSettings, number: int) -> AnswerSettings:
    """For the answer of that number in a conversation: with a seed its answers differ, and each can be had again."""
    params = manner.params
    if params.seed is None:
        return manner
    return replace(manner, params=replace(params, seed=(params.seed + number) % 2**64))
