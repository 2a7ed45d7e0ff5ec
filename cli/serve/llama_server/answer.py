"""An answer in llama-server's format: text, settings, reason of the end, timings."""

import math
from collections.abc import Sequence
from typing import Any

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import TextPiece
from hybrid.infer.answers.drawing.probabilities import listed
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import OTHER_NAMES
from hybrid.infer.answers.sampling.requested import FIELDS, RANDOM_SEEDS
from hybrid.infer.engine.applied import NONE

from ..fields import AnswerFields
from ..paused_json import Pausing
from ..pictures.prompts import prompt_text
from ..served import Served
from ..timings import ServerTimings

STOP_TYPES = {"eos": "eos", "stop": "word", "length": "limit", "context": "limit"}

_OTHERS = ("logit_bias", "repetition_penalty")  # the first has an entry of its own, the second is repeat_penalty
# settings that requests cannot change
_FIXED: dict[str, Any] = {
    "grammar": "", "grammar_lazy": False, "grammar_triggers": [], "preserved_tokens": [], "chat_format": "Content-only",
    "reasoning_format": "none", "reasoning_in_content": False, "generation_prompt": "", "n_discard": 0,
    "speculative.types": "none", "backend_sampling": False, "lora": [],
}  # fmt: skip


def sampling_settings(params: SamplingParams, seed: int | None) -> dict[str, Any]:
    """The sampling settings under llama-server's names; seed None: a random one."""
    known = {name: getattr(params, OTHER_NAMES.get(name, name)) for name in FIELDS if name not in _OTHERS}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
    return {**listed, "seed": RANDOM_SEEDS[1] if seed is None else seed, **_FIXED}


def generation_settings(served: Served, body: AnswerFields, job: Job) -> dict[str, Any]:
    """All settings of the answer."""
    sampler, tokenizer = job.drawing.sampler, served.model.tokenizer
    biases = dict(sampler.params.logit_bias)
    if body.ignore_eos:
        biases.update(dict.fromkeys(sorted(tokenizer.eog), -math.inf))
    return {
        **sampling_settings(sampler.params, sampler.seed),
        "stop": body.stops,
        "max_tokens": job.drawing.max_tokens,
        "n_predict": job.drawing.max_tokens,
        "n_keep": body.n_keep or 0,
        "ignore_eos": body.ignore_eos,
        "stream": body.stream,
        "logit_bias": [
            {"bias": bias if math.isfinite(bias) else None, "token": token} for token, bias in biases.items()
        ],
        "n_probs": job.drawing.n_top or 0,
        "timings_per_token": body.timings_per_token,
        "post_sampling_probs": job.drawing.sampled,
        "lora": [{"id": number, "scale": scale} for number, scale in (job.applied or NONE).scales],
    }


def whole_answer(
    served: Served, body: AnswerFields, index: int, job: Job, pieces: Sequence[TextPiece], *, tokens: bool = False
) -> dict[str, Any]:
    """The complete answer object. tokens: include the sampled ids."""
    result = job.result
    answer = {
        "index": index,
        "content": result.text,
        "tokens": list(result.ids) if tokens else [],
        "id_slot": job.place,
        "stop": True,
        "model": served.adapters.model_of(body.model),
        "tokens_predicted": len(result.ids),
        "tokens_evaluated": len(job.ids),
        "generation_settings": generation_settings(served, body, job),
        "prompt": prompt_text(served.model.tokenizer, job.ids),
        "has_new_line": "\n" in result.text,
        "truncated": result.reason == "context" or result.discarded > 0,
        "stop_type": STOP_TYPES[result.reason],
        "stopping_word": result.stop or "",
        "tokens_cached": len(job.ids) + len(result.ids) - len(result.pending) - result.discarded,
        "timings": ServerTimings.of(job).as_json(),
    }
    known = probabilities(served, job, pieces)
    return {**answer, "completion_probabilities": known} if known else answer


def probabilities(served: Served, job: Job, pieces: Sequence[TextPiece]) -> list[dict[str, Any]]:
    """Probabilities of the tokens, if requested."""
    return [Pausing(each) for each in listed(served.model.tokenizer, pieces, job.drawing.sampled)]
