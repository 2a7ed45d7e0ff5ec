"""Sampling settings as a request has them: JSON with llama-server's, OpenAI's and vLLM's names and special values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from .names import SettingError, with_settings
from .params import MOST, SamplingParams, read_samplers

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

FIELDS = (
    "seed", "temperature", "dynatemp_range", "dynatemp_exponent", "top_p", "top_k", "min_p", "typical_p",
    "top_n_sigma", "min_keep", "xtc_probability", "xtc_threshold", "repeat_penalty", "repetition_penalty",
    "repeat_last_n", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
    "dry_penalty_last_n", "dry_sequence_breakers", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target",
    "adaptive_decay", "samplers", "logit_bias",
)  # fmt: skip
RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server's values for a random seed
LONGEST_ID = 20  # digits of a token id
NEVER = -100  # OpenAI's bias that forbids a token
LEAST = 1e-30  # top_p that keeps only the most likely token


def with_requested(defaults: SamplingParams, given: Mapping[str, Any], tokenizer: "Tokenizer") -> SamplingParams:
    """`defaults` with the settings of a request over them; FIELDS that are absent or None keep the default.

    Raises SettingError if a value cannot be used, UsageError if two contradict each other, TypeError for a wrong type.
    """
    values = {name: value for name in FIELDS if (value := given.get(name)) is not None}
    if values.get("seed") in RANDOM_SEEDS:
        values["seed"] = None
    elif type(values.get("seed", 0)) is int and -(2**63) <= values.get("seed", 0) < 0:
        values["seed"] += 2**64  # OpenAI's and vLLM's seeds are signed
    if -MOST <= values.get("temperature", 0) < 0:
        values["temperature"] = 0  # as in llama-server
    if values.get("top_p") == 0:
        values["top_p"] = LEAST  # OpenAI's 0 means the most likely token
    if values.get("repeat_penalty") is not None:
        values.pop("repetition_penalty", None)
    elif values.get("repetition_penalty", 1) != 1:  # vLLM's, of all tokens so far
        values.setdefault("repeat_last_n", -1)
    if (order := values.get("samplers")) is not None:
        try:
            values["samplers"] = read_samplers(order if isinstance(order, str) else ";".join((*order, "")))
        except UsageError as error:
            raise SettingError(str(error), "samplers") from None
    if "logit_bias" in values:
        values["logit_bias"] = _biases(values["logit_bias"], tokenizer)
    return with_settings(defaults, values)


def _biases(given: Any, tokenizer: "Tokenizer") -> dict[int, float]:
    """Biases by token id. The bias of a text applies to each of its tokens; biases of one token add up; false and
    OpenAI's -100 forbid the token."""
    biases: dict[int, float] = {}
    for key, bias in given.items() if isinstance(given, dict) else given:
        if isinstance(bias, str) or bias is True or isinstance(key, float | bool):
            raise SettingError(
                "logit_bias: expected pairs of a token or a text with a number or false", name="logit_bias"
            )
        value = -float("inf") if bias is False or bias <= NEVER else bias
        for token in _tokens(key, tokenizer):
            biases[token] = biases.get(token, 0.0) + value
    return biases


def _tokens(key: int | str, tokenizer: "Tokenizer") -> list[int]:
    if isinstance(key, int):
        return [key]
    if key.removeprefix("-").isdecimal() and len(key) < LONGEST_ID:
        return [int(key)]
    return tokenizer.encode(key, add_special=False)
