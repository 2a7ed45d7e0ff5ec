"""A loaded model and its thread: from a text or conversation to a job of the batch.

thread = ModelThread(model, parallel=4)
round = thread.to_text("A text that", checked)        # or to_messages(messages, asked, checked)
... Answer handles its events
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.asker import AnswerSettings, Asker, Prompt
from hybrid.infer.answers.asking.named_adapters import NamedAdapters, of_prompt
from hybrid.infer.answers.asking.reading import Reading, SaidAnswer
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.batch.service import Service
from hybrid.infer.answers.chat.dialect import AnswerRules, ChatOptions, Dialect, Exchange
from hybrid.infer.answers.constraints import Constraint
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.engine.applied import Applied
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError

from .images import with_pictures
from .pipeline.model_eyes import ModelEyes
from .settings import CheckedSettings

Message = Mapping[str, Any]
MOST_WAITING = 1 << 20  # practically no limit: callers in this process wait


@dataclass
class Round:
    """One prompt and its answer: of a text, or of a conversation, which needs several rounds if tools are called."""

    job: Job
    reading: Reading
    checked: CheckedSettings
    prompt: Prompt
    exchange: Exchange | None = None
    written: str = field(default="", init=False)  # the answer as the template writes it: Asker.note_written

    @property
    def told(self) -> SaidAnswer:
        """The answer in its parts, without calls that were cut off."""
        return self.reading.answer(self.job.result).without_cut()


class ModelThread:
    """The model, the thread and the formats that all answers share. template: None: the model has none."""

    def __init__(
        self,
        model: LoadedModel,
        parallel: int,
        template: ChatTemplate | None,
        eyes: ModelEyes | None = None,
        adapters: Sequence[str] | None = None,
    ) -> None:
        """eyes: None: the vision tower whose file is beside the model's; adapters: names, None: of their files."""
        self.model, self.template = model, template
        self.adapters = NamedAdapters(model.runner, adapters)
        self.service = Service(model, parallel, most_waiting=MOST_WAITING)
        self.eyes = ModelEyes(model) if eyes is None else eyes
        self.service.on_closed = partial(_end, self.eyes, model)
        self.spare = threading.Lock()  # guards the sequence that answers do not use
        self.close = weakref.finalize(self, self.service.close)  # also when it is collected, or Python exits
        self.asker = Asker(model.tokenizer, template, model.n_vocab)

    @property
    def sampling(self) -> SamplingParams:
        """Default sampling settings."""
        return SamplingParams.from_metadata(self.model.gguf.metadata)

    @property
    def dialect(self) -> Dialect:
        """The model's chat format. TemplateError: it has no template."""
        if self.template is None:
            raise TemplateError(
                f"{self.model.name} has no chat template. Use model.complete(text), or give a template: "
                "hybrid.load(..., template=TEXT)."
            )
        return self.asker.dialect

    # --- rounds ---
    def to_text(self, text: str | Sequence[int], checked: CheckedSettings) -> Round:
        """A round that continues a text or tokens."""
        prompt = self.asker.text(text) if isinstance(text, str) else Prompt([int(token) for token in text])
        return self._round(prompt, Reading(), checked, AnswerRules(self._form(checked)))

    def to_messages(self, messages: Sequence[Message], asked: ChatOptions, checked: CheckedSettings) -> Round:
        """Prepares the next message of a conversation: its job, and how it is read. Raises UsageError or TemplateError
        if the template cannot write the conversation, PictureError if a picture cannot be read.
        """
        dialect = self.dialect
        exchange = dialect.exchange(with_pictures(self.eyes, messages), asked, self._form(checked))
        written, thoughts = exchange.prompt, dialect.format.thoughts
        reading = Reading(exchange.reader, thoughts.closing if thoughts else "", written.thinks)
        return self._round(self.asker.messages(written), reading, checked, exchange.rules, exchange)

    def chosen(self, checked: CheckedSettings) -> Applied:
        """The adapters of the settings. UsageError: there are no such adapters."""
        adapters = self.adapters
        if checked.lora is None:
            return self.model.runner.applied
        numbers = [(adapters.number(name), scale) for name, scale in checked.lora.items()]
        return adapters.chosen({n: adapters.files[n].scale if scale is None else scale for n, scale in numbers})

    def _form(self, checked: CheckedSettings) -> Constraint | None:
        return None if checked.form is None else self.asker.forms.compiled(checked.form)

    def _round(
        self,
        prompt: Prompt,
        reading: Reading,
        checked: CheckedSettings,
        rules: AnswerRules,
        exchange: Exchange | None = None,
    ) -> Round:
        settings = AnswerSettings(checked.params, checked.tokens, checked.stop, rules, checked.logprobs)
        client = threading.get_ident()  # threads take turns: a hundred answers for one do not delay another's
        applied = of_prompt(self.model.runner, self.chosen(checked), prompt.ids)
        job = self.asker.job(prompt, settings, remember=True, speculate=True, client=client, applied=applied)
        return Round(job, reading, checked, prompt, exchange)

    def note(self, made: Round) -> None:
        """Remembers a finished message's tokens, so that they are reused when the caller passes the message back."""
        exchange, job = made.exchange, made.job
        if exchange is not None and job.error is None:
            made.written = self.asker.note_written(
                exchange.prompt, exchange.messages, exchange.asked, made.told, made.prompt.ids, job.result,
            )  # fmt: skip


def _end(eyes: ModelEyes, model: LoadedModel) -> None:
    eyes.close()
    model.close()


def with_seed(checked: CheckedSettings, number: int) -> CheckedSettings:
    """The settings for answer `number` of a conversation: from one seed, every answer gets its own, and can be
    repeated."""
    params = checked.params
    if params.seed is None:
        return checked
    return replace(checked, params=replace(params, seed=(params.seed + number) % 2**64))
