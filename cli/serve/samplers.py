"""Sampling settings in requests: fields with llama-server's names, and the `SamplingParams` made from them.

Ranges are checked by `SamplingParams`. Special values: infer/answers/sampling/requested.py.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import SettingError
from hybrid.infer.answers.sampling.requested import FIELDS, with_requested
from hybrid.infer.text.tokenizer import Tokenizer

from .errors import RequestError
from .strict import Ignored, Strict

Bias = float | Literal[False]


class SamplerFields(Strict):
    """The fields of `SamplingParams`."""

    seed: int | None = None
    temperature: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    min_keep: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: Annotated[
        float | None, Field(description="vLLM's name of repeat_penalty: of all tokens so far, the prompt's also.")
    ] = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    samplers: list[str] | str | None = None
    logit_bias: dict[str, Bias] | list[Annotated[list[int | str | Bias], Field(min_length=2, max_length=2)]] | None = (
        None
    )
    ignore_eos: bool = False
    backend_sampling: Ignored

    def unheeded(self) -> Iterator[tuple[str, str]]:
        """Adds the second of two names of one setting."""
        yield from super().unheeded()
        if self.repetition_penalty is not None and self.repeat_penalty is not None:
            yield "repetition_penalty", "repeat_penalty says the same"


def sampling(request: SamplerFields, defaults: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`defaults` with the request's settings over them. RequestError, UsageError."""
    try:
        return with_requested(defaults, {name: getattr(request, name) for name in FIELDS}, tokenizer)
    except SettingError as error:
        raise RequestError(str(error), param=error.name) from None
