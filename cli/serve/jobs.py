"""From a request to jobs: the prompt's tokens, and how answers are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hybrid.infer import Model
from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import Drawing
from hybrid.infer.answers.ledger import Ledger
from hybrid.infer.answers.message_ends import message_ends
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate

from .errors import RequestError
from .fields import AnswerFields

MOST_PER_TOKEN = 256  # characters: tokens are shorter but for runs of spaces
LAST_MESSAGES = 4  # of a conversation get checkpoints where they end, beside the first: people go back there


@dataclass(frozen=True)
class Prompt:
    """What an answer follows.

    text        that the tokens stand for, so that the answer is known when it comes back with it; None: tokens alone
    plain       see Ledger
    boundaries  see Job
    """

    ids: list[int]
    text: str | None = None
    plain: bool = False
    boundaries: tuple[int, ...] = ()


@dataclass
class Maker:
    """Makes the jobs of requests to one model. `client`: whose requests they are, for fairness.

    most       answers that a request may ask for: more than run and wait together would never fit
    speculate  guess tokens where it pays, unless a request says otherwise
    ledger     the tokens of answers that may come back as text
    """

    model: Model
    template: ChatTemplate | None
    most: int
    speculate: bool = True
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.model.tokenizer)

    def conversation(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> Prompt:
        """Messages in the model's template; more: see ChatTemplate.render. TemplateError: it does not take them."""
        template = self.template
        if template is None:
            raise RequestError("this model has no chat template: use /v1/completions", param="messages")
        text = template.render(messages, **more)
        self.check_length(text)
        encoded = self.ledger.find(text)
        part = partial(template.render, **{**more, "add_generation_prompt": False})
        ends = message_ends(self.model.tokenizer, part, messages, text, encoded, LAST_MESSAGES)
        return Prompt(encoded.ids, text, boundaries=tuple(ends))

    def check_length(self, text: str) -> None:
        """RequestError: too long for the context however it is encoded, which takes memory and time."""
        most = self.model.n_ctx * MOST_PER_TOKEN
        if len(text) > most:
            n_ctx = self.model.n_ctx
            raise RequestError(f"the prompt has {len(text)} characters, a context of {n_ctx} tokens {most} at most")

    def prompts(self, prompt: Any) -> list[Prompt]:
        """Each of the prompts: a text, tokens, or a list of either."""
        if isinstance(prompt, str):
            return [self.text(prompt)]
        if not prompt:
            raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
        if isinstance(prompt[0], int):
            return [Prompt(prompt)]
        if len(prompt) > self.most:
            raise RequestError(f"{len(prompt)} prompts, this server takes {self.most} at a time", param="prompt")
        return [self.text(one) if isinstance(one, str) else Prompt(one) for one in prompt]

    def text(self, text: str, *, plain: bool = True) -> Prompt:
        """A prompt as it is; not plain: special tokens that are written out in it count."""
        self.check_length(text)
        return Prompt(self.ledger.encode(text, plain=plain), text, plain)

    def jobs(
        self,
        request: AnswerFields,
        prompts: Sequence[Prompt | list[int]],
        most: int | None,
        n_top: int | None,
        client: object,
    ) -> list[Job]:
        """request.n answers to each of the prompts, of at most `most` tokens; n_top: see Drawing."""
        if len(prompts) * request.n > self.most:
            raise RequestError(
                f"the request asks for {len(prompts) * request.n} answers, this server takes {self.most} at a time",
                param="n" if len(prompts) == 1 else "prompt",
            )
        params = self._params(request)
        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        speculate = self.speculate if request.speculate is None else request.speculate
        pin, jobs = request.cache.keep if request.cache is not None else None, []
        for given in prompts:
            prompt = given if isinstance(given, Prompt) else Prompt(given)
            for i in range(request.n):
                # answers to one prompt differ, and each can be had again
                seed = None if params.seed is None else (params.seed + i) % 2**64
                sampler = Sampler(replace(params, seed=seed), self.model.n_vocab, self.model.tokenizer)
                drawing = Drawing(
                    sampler, self.model.tokenizer, -1 if most is None else most, stop, request.ignore_eos, n_top
                )
                job = Job(
                    prompt.ids,
                    drawing,
                    remember=True,
                    speculate=speculate,
                    client=client,
                    boundaries=prompt.boundaries,
                    pin=pin,
                )
                job.on_end = partial(self._note, prompt, job)
                jobs.append(job)
        return jobs

    def _note(self, prompt: Prompt, job: Job) -> None:
        """In the service's thread, when an answer has ended."""
        if prompt.text is not None:
            self.ledger.note_answer(prompt.text, prompt.ids, job.result, plain=prompt.plain)

    def _params(self, request: AnswerFields) -> SamplingParams:
        return SamplingParams.from_metadata(
            self.model.gguf.metadata,
            temp=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            repeat_penalty=request.repeat_penalty,
            repeat_last_n=request.repeat_last_n,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            seed=request.seed,
            logit_bias=self._bias(request.logit_bias or {}),
        )

    def _bias(self, given: dict[str, float]) -> dict[int, float]:
        """By id; OpenAI's -100 means never."""
        try:
            return {int(token): -float("inf") if bias <= -100 else bias for token, bias in given.items()}
        except ValueError:
            wrong = next(token for token in given if not token.lstrip("-").isdigit())
            raise RequestError(f"logit_bias: {wrong!r} is not the id of a token", param="logit_bias") from None
