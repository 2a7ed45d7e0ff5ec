"""Answers for tasks that generate text (`generation_kwargs`), many at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from hybrid.infer.answers.asking.asker import AnswerSettings, Asker, Prompt
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import with_settings
from hybrid.infer.evaluate.loglikelihood import PairMaker
from hybrid.infer.evaluate.parts import SpreadModel, each
from hybrid.infer.progress import TokenProgress
from hybrid.quant.ggml.errors import Remedy, UsageError, shown

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.evaluate.parts import Measurable

SHARE = 32  # answers per request to one of several models
MOST = 256  # tokens of an answer, if the task sets no limit; the harness's default
# names of the limit on tokens; the first one given counts
MOST_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
# transformers' samplers, turned off: tasks set all that they want
OFF = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
WITHOUT_EFFECT = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "use_cache": True,
}  # settings without effect at these values


@dataclass(frozen=True)
class TaskPrompt:
    """A requested answer. lost: tokens cut off at the beginning of its prompt."""

    ids: list[int]
    params: SamplingParams
    most: int
    until: tuple[str, ...]
    lost: int = 0

    @classmethod
    def of(cls, maker: PairMaker, context: str, settings: Mapping[str, Any], seed: int) -> "TaskPrompt":
        """Made from a task's text and settings. UsageError: an unknown setting, or no room for the answer."""
        rest = dict(settings)
        given = [value for name in MOST_NAMES if (value := rest.pop(name, None)) is not None]
        most = int(given[0]) if given else MOST
        until = rest.pop("until", None) or []
        stops = tuple(text for text in ([until] if isinstance(until, str) else until) if text)
        params = _params(rest, seed)
        ids = maker.ids(context) or [maker.prefix]
        room = maker.n_ctx - most
        if room < 1:
            raise UsageError(
                f"answers of {most} tokens leave no room for a prompt in the context of {maker.n_ctx}.",
                remedy=Remedy.LARGER_CONTEXT,
            )
        lost = max(0, len(ids) - room)
        return cls(ids[lost:], params, most, stops, lost)


def _params(settings: dict[str, Any], seed: int) -> SamplingParams:
    """Greedy sampling, unless the task asks for samples."""
    temperature, sampled = settings.pop("temperature", None), settings.pop("do_sample", None)
    if sampled is None:
        sampled = bool(temperature)
    chosen: dict[str, Any] = {"temperature": 0.0 if not sampled else 1.0 if temperature is None else float(temperature)}
    for name, off in OFF.items():
        value = settings.pop(name, None)
        chosen[name] = off if value is None else type(off)(value)
    for name, value in settings.items():
        if name not in WITHOUT_EFFECT or WITHOUT_EFFECT[name] != value:
            raise UsageError(f"generation_kwargs: {shown(name, 40)} = {shown(value, 40)} is not known here.")
    return with_settings(SamplingParams(seed=seed), chosen)


def generated(model: "Measurable", prompts: Sequence[TaskPrompt], progress: TokenProgress | None = None) -> list[str]:
    """The answers in the order of the prompts, each up to its stop text. HybridError: one could not be computed."""
    if not isinstance(model, SpreadModel):
        return generated_share(model, prompts, progress)
    texts: list[str] = []
    shares = [prompts[begin : begin + SHARE] for begin in range(0, len(prompts), SHARE)]
    for answers in each(model, generated_share, shares):
        texts += answers
        if progress:
            progress(len(texts), len(prompts))
    return texts


def generated_share(
    model: "LoadedModel", prompts: Sequence[TaskPrompt], progress: TokenProgress | None = None
) -> list[str]:
    """As `generated`, by one of several models."""
    asker, jobs = Asker(model.tokenizer, None, model.n_vocab), []
    for prompt in prompts:
        settings = AnswerSettings(prompt.params, prompt.most, prompt.until)
        jobs.append(asker.job(Prompt(prompt.ids), settings, note=False))
    batcher = Batcher(model.runner, min(model.n_seq_max, model.n_ubatch, max(1, len(jobs))), step_seconds=inf)
    done = 0
    try:
        for job in jobs:
            batcher.submit(job)
        for job in batcher.run():
            if job.error is not None:
                raise job.error
            done += 1
            if progress:
                progress(done, len(jobs))
    finally:
        batcher.close()
    return [job.result.text for job in jobs]
