"""From a request to jobs: the prompt's tokens, and how answers are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from hybrid.infer import Model
from hybrid.infer.answers.batches.batching import Job
from hybrid.infer.answers.chat.dialect import Dialect, Manner
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.conversations.ledger import Encoded, Ledger
from hybrid.infer.answers.conversations.message_ends import message_ends
from hybrid.infer.answers.generation.context_shift import DEFAULT_KEEP, kept_tokens
from hybrid.infer.answers.generation.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.stops import stopped_by
from hybrid.quant.ggml.errors import UsageError, shown

from .errors import RequestError
from .fields import AnswerFields
from .forms import compiled, form_of
from .samplers import sampling
from .whose import Whose


@dataclass(frozen=True)
class Defaults:
    """What counts where a request does not say otherwise.

    n_predict      tokens of an answer; -1: as many as fit; None: the route's own
    sampling       None: the model's own
    context_shift  whether older tokens leave a full context, or the answer ends
    think          whether the model thinks before it answers a conversation; None: as its template has it
    think_budget   tokens of thoughts, at most; None: any number
    """

    n_predict: int | None = None
    sampling: SamplingParams | None = None
    context_shift: bool = False
    think: bool | None = None
    think_budget: int | None = None


def check_tokens(ids: Sequence[int], n_vocab: int) -> None:
    """UsageError: a token is outside the vocabulary, however large its number is."""
    if ids and not 0 <= min(ids) <= max(ids) < n_vocab:
        wrong = next(token for token in ids if not 0 <= token < n_vocab)
        raise UsageError(f"token {shown(wrong, 40)} is not of this model's vocabulary of {n_vocab}.")


MOST_PER_TOKEN = 256  # characters: tokens are shorter but for runs of spaces
MOST_LISTED_OF_GUESSES = 1000  # candidates of each token: those of a step's tokens wait for the client together
LAST_MESSAGES = 4  # of a conversation get checkpoints where they end, beside the first: people go back there


@dataclass(frozen=True)
class Prompt:
    """What an answer follows.

    text        that the tokens stand for, so that the answer is known when it comes back with it; None: tokens alone
    plain       see Ledger
    boundaries  see Job
    n_drawn     tokens at its beginning that the ledger has given, the rest is encoded
    """

    ids: list[int]
    text: str | None = None
    plain: bool = False
    boundaries: tuple[int, ...] = ()
    n_drawn: int = 0


@dataclass
class Maker:
    """Makes the jobs of requests to one model.

    most       answers that a request may ask for: more than run and wait together would never fit
    speculate  guess tokens where it pays, unless a request says otherwise
    ledger     the tokens of answers that may come back as text
    """

    model: Model
    template: ChatTemplate | None
    most: int
    speculate: bool = True
    defaults: Defaults = Defaults()
    ledger: Ledger = field(init=False)
    forms: Forms = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.model.tokenizer)
        self.forms = Forms(self.model.tokenizer)

    @cached_property
    def dialect(self) -> Dialect:
        """How the model chats. RequestError: it has no template."""
        template = self.checked_template()
        with stopped_by(None):  # it stays, whoever asks first
            return Dialect(template, self.model.tokenizer, self.forms)

    def rendered(
        self,
        text: str,
        messages: Sequence[Any],
        render: Callable[[Sequence[Any]], str],
        whose: Whose,
        *,
        whole: bool = False,
    ) -> Prompt:
        """What the template has written for these messages. render, whole: see message_ends."""
        self.check_length(text)
        encoded = self.encoded(text, whose)
        ends = message_ends(self.model.tokenizer, render, messages, text, encoded, LAST_MESSAGES, whole=whole)
        return Prompt(encoded.ids, text, boundaries=tuple(ends), n_drawn=len(encoded.known))

    def encoded(self, text: str, whose: Whose, *, plain: bool = False, peek: bool = False) -> Encoded:
        """As this owner's answers were drawn, unless the request does not want that."""
        if not whose.drawn:
            return self.ledger.anew(text, plain=plain)
        return self.ledger.find(text, plain=plain, peek=peek, owner=whose.owner)

    def check_length(self, text: str) -> None:
        """RequestError: too long for the context however it is encoded, which takes memory and time."""
        most = self.model.n_ctx * MOST_PER_TOKEN
        if len(text) > most:
            n_ctx = self.model.n_ctx
            raise RequestError(f"the prompt has {len(text)} characters, a context of {n_ctx} tokens {most} at most")

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are drawn where a request does not say it."""
        return self.defaults.sampling or SamplingParams.from_metadata(self.model.gguf.metadata)

    def checked_template(self) -> ChatTemplate:
        """RequestError: the model has none."""
        if self.template is None:
            raise RequestError("this model has no chat template: use /v1/completions", param="messages")
        return self.template

    def prompts(self, prompt: Any, whose: Whose) -> list[Prompt]:
        """Each of the prompts: a text, tokens, or a list of either."""
        if isinstance(prompt, str):
            return [self.text(prompt, whose)]
        if not prompt:
            raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
        if isinstance(prompt[0], int):
            return [Prompt(prompt)]
        self.check_number(prompt)
        return [self.text(one, whose) if isinstance(one, str) else Prompt(one) for one in prompt]

    def text(self, text: str, whose: Whose, *, plain: bool = True) -> Prompt:
        """A prompt as it is; not plain: special tokens that are written out in it count."""
        self.check_length(text)
        encoded = self.encoded(text, whose, plain=plain)
        return Prompt(encoded.ids, text, plain, n_drawn=len(encoded.known))

    def check_number(self, prompts: list[Any]) -> None:
        """RequestError: there are more prompts than are ever answered at a time."""
        if len(prompts) > self.most:
            raise RequestError(f"{len(prompts)} prompts, this server takes {self.most} at a time", param="prompt")

    def jobs(
        self,
        request: AnswerFields,
        prompts: Sequence[Prompt | list[int]],
        most: int | None,
        n_top: int | None,
        whose: Whose,
        sampled: bool = False,
        manner: Manner | None = None,
    ) -> list[Job]:
        """request.n answers to each of the prompts, of at most `most` tokens; n_top, sampled: see Drawing. manner: in
        the place of the form that the request asks for."""
        request.check()
        manner = self._in_form(request) if manner is None else manner
        if len(prompts) * request.n > self.most:
            raise RequestError(
                f"the request asks for {len(prompts) * request.n} answers, this server takes {self.most} at a time",
                param="n" if len(prompts) == 1 else "prompt",
            )
        tokenizer = self.model.tokenizer
        params = sampling(request, self.sampling, tokenizer)
        speculate = self.speculate if request.speculate is None else request.speculate
        speculate &= (n_top or 0) <= MOST_LISTED_OF_GUESSES
        pin, jobs = request.cache.keep if request.cache is not None else None, []
        for given in prompts:
            prompt = self._fitting(given if isinstance(given, Prompt) else Prompt(given), request, most)
            keep = self._kept(prompt.ids, request.n_keep)
            for i in range(request.n):
                # answers to one prompt differ, and each can be had again
                seed = None if params.seed is None else (params.seed + i) % 2**64
                sampler = Sampler(replace(params, seed=seed), self.model.n_vocab, self.model.tokenizer)
                drawing = Drawing(
                    sampler,
                    tokenizer,
                    -1 if most is None else most,
                    request.stops,
                    request.ignore_eos,
                    n_top,
                    sampled,
                    **manner.drawn,
                    ends=request.stop_token_ids or (),
                    min_tokens=request.min_tokens or 0,
                    special=not request.skip_special_tokens,
                )
                if request.t_max_predict_ms is not None and request.t_max_predict_ms > 0:
                    drawing.most_seconds = request.t_max_predict_ms / 1000
                job = Job(
                    prompt.ids,
                    drawing,
                    keep=keep,
                    use_cache=request.cache_prompt,
                    remember=True,
                    speculate=speculate,
                    owner=whose.owner,
                    client=whose.client,
                    n_drawn=prompt.n_drawn,
                    boundaries=prompt.boundaries,
                    pin=pin,
                    place=None if request.id_slot < 0 else request.id_slot,
                )
                job.on_end = partial(self._note, prompt, job)
                jobs.append(job)
        return jobs

    def _fitting(self, prompt: Prompt, request: AnswerFields, most: int | None) -> Prompt:
        """The end of the prompt that the request asks for. UsageError: it has tokens that the model does not."""
        check_tokens(prompt.ids, self.model.n_vocab)
        last = request.truncate_prompt_tokens
        if last == 0:
            raise RequestError("truncate_prompt_tokens = 0 leaves no prompt", param="truncate_prompt_tokens")
        if last == -1:
            last = max(1, self.model.n_ctx - max(most or 1, 1))
        return prompt if last is None or len(prompt.ids) <= last else Prompt(prompt.ids[-last:])

    def _in_form(self, request: AnswerFields) -> Manner:
        asked = form_of(request)
        return Manner() if asked is None else Manner(compiled(asked, self.forms))

    def _note(self, prompt: Prompt, job: Job) -> None:
        """In the service's thread, when an answer has ended."""
        if prompt.text is not None and job.error is None:
            self.ledger.note_answer(prompt.text, prompt.ids, job.result, plain=prompt.plain, owner=job.owner)

    def _kept(self, ids: list[int], n_keep: int | None) -> int | None:
        if not self.defaults.context_shift or not ids:
            return None
        return kept_tokens(self.model, ids, DEFAULT_KEEP if n_keep is None else n_keep)
