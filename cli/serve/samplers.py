"""Sampling settings in requests: fields with llama-server's names, and the `SamplingParams` made from them.

Ranges are checked by `SamplingParams`. Other names of fields: infer/answers/sampling/names.py.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import SettingError, with_settings
from hybrid.infer.answers.sampling.params import read_samplers
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

from .errors import RequestError
from .strict import Ignored, Strict

Bias = float | Literal[False]

RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server's values for a random seed
LONGEST_ID = 20  # digits of a token id
NEVER = -100  # OpenAI's bias that forbids a token
LEAST = 1e-30  # top_p that keeps only the most likely token


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


_OTHERS = ("logit_bias", "ignore_eos", "backend_sampling", "repetition_penalty")
FIELDS = [name for name in SamplerFields.model_fields if name not in _OTHERS]


def sampling(request: SamplerFields, defaults: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`defaults` with the request's settings over them. RequestError, UsageError."""
    values = {name: value for name in FIELDS if (value := getattr(request, name)) is not None}
    if values.get("seed") in RANDOM_SEEDS:
        values["seed"] = None
    elif -(2**63) <= values.get("seed", 0) < 0:
        values["seed"] += 2**64  # OpenAI's and vLLM's seeds are signed
    if values.get("top_p") == 0:
        values["top_p"] = LEAST  # OpenAI's 0 means the most likely token
    if request.repetition_penalty is not None and request.repeat_penalty is None:
        values["repetition_penalty"] = request.repetition_penalty
        if request.repetition_penalty != 1:
            values.setdefault("repeat_last_n", -1)
    if (order := values.get("samplers")) is not None:
        try:
            values["samplers"] = read_samplers(order if isinstance(order, str) else ";".join((*order, "")))
        except UsageError as error:
            raise RequestError(str(error), param="samplers") from None
    if request.logit_bias is not None:
        values["logit_bias"] = _biases(request.logit_bias, tokenizer)
    try:
        return with_settings(defaults, values)
    except SettingError as error:
        raise RequestError(str(error), param=error.name) from None


def _biases(given: "dict[str, Bias] | list[list[int | str | Bias]]", tokenizer: Tokenizer) -> dict[int, float]:
    """Biases by token id. The bias of a text applies to each of its tokens; biases of one token add up; false and
    OpenAI's -100 forbid the token."""
    biases: dict[int, float] = {}
    for key, bias in given.items() if isinstance(given, dict) else given:
        if isinstance(bias, str) or bias is True or isinstance(key, float | bool):
            raise RequestError(
                "logit_bias: expected pairs of a token or a text with a number or false", param="logit_bias"
            )
        value = -float("inf") if bias is False or bias <= NEVER else bias
        for token in _tokens(key, tokenizer):
            biases[token] = biases.get(token, 0.0) + value
    return biases


def _tokens(key: int | str, tokenizer: Tokenizer) -> list[int]:
    if isinstance(key, int):
        return [key]
    if key.removeprefix("-").isdecimal() and len(key) < LONGEST_ID:
        return [int(key)]
    return tokenizer.encode(key, add_special=False)
