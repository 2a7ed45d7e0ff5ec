"""From a request to jobs: tokens of the prompt, and settings of the answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.asker import AnswerSettings, Asker, Prompt
from hybrid.infer.answers.asking.ledger import Ledger
from hybrid.infer.answers.asking.named_adapters import of_prompt
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.batch.job import PromptTooLongError
from hybrid.infer.answers.chat.dialect import AnswerRules, Dialect
from hybrid.infer.answers.chat.prompting import ChatPrompt
from hybrid.infer.answers.drawing.context_shift import DEFAULT_KEEP, kept_tokens
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.program.threads import Interrupted, Stop
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.stops import GoneError, look, stopped_by, telling
from hybrid.quant.ggml.errors import UsageError, shown

from .backend import ServedModel
from .client import Client
from .errors import RequestError
from .fields import AnswerFields
from .forms import compiled, form_of
from .pictures.sight import Sight
from .samplers import sampling

if TYPE_CHECKING:
    from hybrid.infer.answers.asking.eyes import SeenPicture


@dataclass(frozen=True)
class ServerDefaults:
    """Settings for requests that do not set their own.

    n_predict      tokens of an answer; -1: as many as fit; None: the route's default
    sampling       None: the model's own
    context_shift  whether a full context drops older tokens, or ends the answer
    think          whether the model thinks before it answers; None: as the template decides
    think_budget   limit on tokens of thoughts; None: no limit
    suffix_first   in prompts with a gap the text after it comes first
    """

    n_predict: int | None = None
    sampling: SamplingParams | None = None
    context_shift: bool = False
    think: bool | None = None
    think_budget: int | None = None
    suffix_first: bool = False


def check_tokens(ids: Sequence[int], n_vocab: int) -> None:
    """UsageError: a token id is outside the vocabulary."""
    if ids and not 0 <= min(ids) <= max(ids) < n_vocab:
        wrong = next(token for token in ids if not 0 <= token < n_vocab)
        raise UsageError(f"token {shown(wrong, 40)} is outside this model's vocabulary of {n_vocab}.")


MOST_PER_TOKEN = 256  # characters; only runs of spaces make longer tokens
MOST_LISTED_OF_GUESSES = 1000  # candidates per token: all tokens of a step wait for the client together


@dataclass
class Maker:
    """Makes the jobs of requests to one model.

    most       limit on answers per request: more than run and wait together can never fit
    speculate  guess tokens if it pays, unless a request says otherwise
    sight      reads pictures
    """

    model: ServedModel
    template: ChatTemplate | None
    most: int
    speculate: bool = True
    defaults: ServerDefaults = ServerDefaults()
    sight: Sight = field(default_factory=Sight)

    def __post_init__(self) -> None:
        self.asker = Asker(self.model.tokenizer, self.template, self.model.n_vocab)

    @property
    def ledger(self) -> Ledger:
        """The tokens of answers, for when a client sends the answers back as text."""
        return self.asker.ledger

    @property
    def dialect(self) -> Dialect:
        """The model's chat format. RequestError: the model has no template."""
        self.checked_template()
        with stopped_by(None):  # computed for all requests: the first client going away does not stop it
            return self.asker.dialect

    def messages(self, written: ChatPrompt, whose: Client) -> Prompt:
        """The prompt for messages that the template has written."""
        self.check_length(written.text)
        if written.pictures:
            self._look_at(written.pictures, self.n_tokens(written, whose))
        return self.asker.messages(written, owner=whose.owner, drawn=whose.drawn)

    def n_tokens(self, written: ChatPrompt, whose: Client) -> int:
        """The number of tokens of that prompt, without recording their use."""
        self.check_length(written.text)
        return self.asker.n_tokens(written, owner=whose.owner, drawn=whose.drawn)

    def _look_at(self, pictures: "Sequence[SeenPicture]", n: int) -> None:
        """Lets the vision tower read the pictures of a prompt of n tokens; stops when the client has gone.
        PromptTooLongError: nothing was read."""
        if n > self.model.n_ctx:
            raise PromptTooLongError(n, self.model.n_ctx)
        for picture in pictures:
            look()
            stop = Stop()
            try:
                with telling(stop.set):
                    picture.runs(stop=stop)
            except Interrupted:
                look()
                raise GoneError("nobody waits for this picture any more.") from None

    def peek(self, written: ChatPrompt, whose: Client) -> list[int]:
        """The tokens of that prompt, without recording their use."""
        self.check_length(written.text)
        return self.asker.peeked(written, owner=whose.owner, drawn=whose.drawn)

    @property
    def most_characters(self) -> int:
        """Characters of the longest text that may fit the context."""
        return self.model.n_ctx * MOST_PER_TOKEN

    def check_length(self, text: str) -> None:
        """RequestError: the text is too long for the context in any encoding; checked before encoding, which takes
        memory and time."""
        if len(text) > (most := self.most_characters):
            n_ctx = self.model.n_ctx
            raise RequestError(f"the prompt has {len(text)} characters, a context of {n_ctx} tokens {most} at most")

    @property
    def sampling(self) -> SamplingParams:
        """Default sampling settings."""
        return self.defaults.sampling or SamplingParams.from_metadata(self.model.gguf.metadata)

    def checked_template(self) -> ChatTemplate:
        """The chat template. RequestError: the model has none."""
        if self.template is None:
            raise RequestError("this model has no chat template: use /v1/completions", param="messages")
        return self.template

    def prompts(self, prompt: Any, whose: Client, *, plain: bool = False, add_special: bool = True) -> list[Prompt]:
        """The prompts of a request: a text, a list of tokens, or a list of either. plain, add_special: see `text`."""
        text = partial(self.text, whose=whose, plain=plain, add_special=add_special)
        if isinstance(prompt, str):
            return [text(prompt)]
        if not prompt:
            raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
        if isinstance(prompt[0], int):
            return [Prompt(prompt)]
        self.check_number(prompt)
        return [text(one) if isinstance(one, str) else Prompt(one) for one in prompt]

    def text(
        self,
        text: str,
        whose: Client,
        *,
        plain: bool = False,
        add_special: bool = True,
        pictures: "Sequence[SeenPicture]" = (),
    ) -> Prompt:
        """A raw prompt. plain: control tokens written in the text stay text; not add_special: without BOS and EOS.
        pictures: whose texts it has, in order."""
        self.check_length(text)
        if pictures:
            self._look_at(pictures, sum(picture.features for picture in pictures))
        if not add_special:
            return Prompt(self.model.tokenizer.encode(text, add_special=False, parse_special=not plain))
        return self.asker.text(text, plain=plain, owner=whose.owner, drawn=whose.drawn, seen=pictures)

    def following(self, after: Sequence[int], prompt: Prompt) -> Prompt:
        """The prompt after the tokens of an earlier text; its answers are then not recognized later. RequestError: it
        has pictures."""
        if not after:
            return prompt
        if prompt.pictures:
            raise RequestError("context and pictures exclude each other", param="context")
        bos = self.model.tokenizer.bos
        return Prompt([*after, *prompt.ids[bos is not None and prompt.ids[:1] == [bos] :]])

    def check_number(self, prompts: list[Any]) -> None:
        """RequestError: more prompts than the server can answer at a time."""
        if len(prompts) > self.most:
            raise RequestError(f"{len(prompts)} prompts, this server takes {self.most} at a time", param="prompt")

    def jobs(
        self,
        request: AnswerFields,
        prompts: Sequence[Prompt | list[int]],
        most: int | None,
        n_top: int | None,
        whose: Client,
        sampled: bool = False,
        rules: AnswerRules | None = None,
    ) -> list[Job]:
        """request.n jobs for each prompt, each with at most `most` tokens; n_top, sampled: see Drawing. rules: replace
        the request's form."""
        rules = self._in_form(request) if rules is None else rules
        if len(prompts) * request.n > self.most:
            raise RequestError(
                f"the request asks for {len(prompts) * request.n} answers, this server takes {self.most} at a time",
                param="n" if len(prompts) == 1 else "prompt",
            )
        params = sampling(request, self.sampling, self.model.tokenizer)
        limit = request.t_max_predict_ms
        settings = AnswerSettings(
            params,
            -1 if most is None else most,
            request.stops,
            rules,
            n_top,
            sampled,
            request.ignore_eos,
            ends=request.stop_token_ids or (),
            min_tokens=request.min_tokens or 0,
            special=not request.skip_special_tokens,
            most_seconds=math.inf if limit is None or limit <= 0 else limit / 1000,
        )
        speculate = self.speculate if request.speculate is None else request.speculate
        speculate &= (n_top or 0) <= MOST_LISTED_OF_GUESSES
        pin, jobs = request.cache.keep if request.cache is not None else None, []
        for given in prompts:
            prompt = self._fitting(given if isinstance(given, Prompt) else Prompt(given), request, most)
            keep = self._kept(prompt.ids, request.n_keep)
            assert isinstance(self.model, LoadedModel)  # routes make no jobs for an encoder
            applied = None if whose.applied is None else of_prompt(self.model.runner, whose.applied, prompt.ids)
            for i in range(request.n):
                # answers to one prompt have different seeds, each of which repeats its answer
                seed = None if params.seed is None else (params.seed + i) % 2**64
                jobs.append(
                    self.asker.job(
                        prompt,
                        replace(settings, params=replace(params, seed=seed)),
                        keep=keep,
                        use_cache=request.cache_prompt,
                        remember=True,
                        speculate=speculate,
                        owner=whose.owner,
                        applied=applied,
                        client=whose.client,
                        pin=pin,
                        place=None if request.id_slot < 0 else request.id_slot,
                    )
                )
        return jobs

    def _fitting(self, prompt: Prompt, request: AnswerFields, most: int | None) -> Prompt:
        """The prompt, or its last `truncate_prompt_tokens` tokens if the request sets that (-1: as many as leave room
        for an
        answer of `most` tokens). Raises UsageError if a token is outside the vocabulary.
        """
        if not prompt.pictures:  # a client may not name a picture's tokens
            check_tokens(prompt.ids, self.model.n_vocab)
        last = request.truncate_prompt_tokens
        if last is not None and prompt.pictures:
            raise RequestError("truncate_prompt_tokens and pictures exclude each other", param="truncate_prompt_tokens")
        if last == 0:
            raise RequestError("truncate_prompt_tokens = 0 leaves no prompt", param="truncate_prompt_tokens")
        if last == -1:
            last = max(1, self.model.n_ctx - max(most or 1, 1))
        return prompt if last is None or len(prompt.ids) <= last else Prompt(prompt.ids[-last:])

    def _in_form(self, request: AnswerFields) -> AnswerRules:
        asked = form_of(request)
        return AnswerRules() if asked is None else AnswerRules(compiled(asked, self.asker.forms))

    def _kept(self, ids: list[int], n_keep: int | None) -> int | None:
        if not self.defaults.context_shift or not ids:
            return None
        assert isinstance(self.model, LoadedModel)  # routes make no jobs for an encoder
        return kept_tokens(self.model, ids, DEFAULT_KEEP if n_keep is None else n_keep)
