"""From a request to jobs: the prompt's tokens, and how answers are drawn."""

from dataclasses import dataclass, replace
from typing import Any

from hybrid.infer import Model
from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.chat_template import ChatTemplate

from .errors import RequestError
from .fields import AnswerFields


@dataclass(frozen=True)
class Maker:
    """Makes the jobs of requests to one model. `client`: whose requests they are, for fairness.

    most  answers that a request may ask for: more than run and wait together would never fit
    """

    model: Model
    template: ChatTemplate | None
    most: int

    def prompts(self, prompt: Any) -> list[list[int]]:
        """The tokens of each of the prompts: a text, tokens, or a list of either."""
        if isinstance(prompt, str):
            return [self.model.tokenizer.encode(prompt)]
        if not prompt:
            raise RequestError("prompt: expected a text or tokens, found an empty list", param="prompt")
        if isinstance(prompt[0], int):
            return [prompt]
        if len(prompt) > self.most:
            raise RequestError(f"{len(prompt)} prompts, this server takes {self.most} at a time", param="prompt")
        return [self.model.tokenizer.encode(one) if isinstance(one, str) else one for one in prompt]

    def jobs(
        self,
        request: AnswerFields,
        prompts: list[list[int]],
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
        jobs = []
        for ids in prompts:
            for i in range(request.n):
                # answers to one prompt differ, and each can be had again
                seed = None if params.seed is None else (params.seed + i) % 2**64
                sampler = Sampler(replace(params, seed=seed), self.model.n_vocab, self.model.tokenizer)
                drawing = Drawing(
                    sampler, self.model.tokenizer, -1 if most is None else most, stop, request.ignore_eos, n_top
                )
                jobs.append(Job(ids, drawing, remember=True, client=client))
        return jobs

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
