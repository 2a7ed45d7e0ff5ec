"""Settings of samplers by the names that requests, Python's keywords and evaluation tasks use."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hybrid.quant.ggml.errors import UsageError

from .params import SamplingParams

# name in llama-server, OpenAI, vLLM or transformers -> name in SamplingParams
OTHER_NAMES = {
    "temperature": "temp",
    "typical_p": "typ_p",
    "repetition_penalty": "repeat_penalty",
    "dry_penalty_last_n": "dry_last_n",
    "dry_sequence_breakers": "dry_breakers",
}
LISTS = ("dry_breakers", "samplers")


class SettingError(UsageError):
    """One setting cannot be used. name: as the caller gave it."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def with_settings(params: SamplingParams, given: Mapping[str, Any]) -> SamplingParams:
    """`params` with the given values, by any of their names.

    Raises SettingError if a value cannot be used, UsageError if two contradict each other, TypeError for a wrong type.
    """
    values: dict[str, Any] = {OTHER_NAMES.get(name, name): value for name, value in given.items()}
    values |= {name: tuple(values[name]) for name in LISTS if name in values}
    try:
        return replace(params, **values)
    except UsageError:
        for name in given:
            _check_alone(params, name, values)
        raise


def _check_alone(params: SamplingParams, name: str, values: Mapping[str, Any]) -> None:
    field = OTHER_NAMES.get(name, name)
    try:
        replace(params, **{field: values[field]})
    except UsageError as error:
        says = str(error)
        raise SettingError(name + says.removeprefix(field) if says.startswith(field) else says, name) from None
