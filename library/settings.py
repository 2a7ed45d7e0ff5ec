"""Settings of answers as keywords: sampling, limits and form."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypedDict

from hybrid.infer.answers.constraints import Grammar
from hybrid.infer.answers.constraints.form_fields import asked_form
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import with_settings
from hybrid.quant.ggml.errors import UsageError, shown


class Settings(TypedDict, total=False):
    """Keywords of `complete`, `say` and `reply`. Defaults are the model file's, or llama.cpp's.

    tokens    maximum tokens of the answer; -1: as many as fit. max_tokens is another name
    stop      texts that end the answer and are not part of it
    logprobs  report the log-probability of each token and of this many of the most likely tokens in its place
    schema    the answer is JSON of this schema: a JSON schema, or a pydantic class, of which `Answer.data` is then one
    regex, choices, grammar  the answer matches an expression; is one of these texts; matches a grammar (GBNF, Lark)
    seed      of the random numbers; the same seed gives the same answer
    lora      adapter that reads and writes the text: its name, or {name: scale} for several; {}: none
    The rest are sampling settings, see docs/commands.md.
    """

    tokens: int
    max_tokens: int
    stop: str | Sequence[str]
    logprobs: int
    schema: Any
    regex: str
    choices: Sequence[str]
    grammar: str
    seed: int | None
    lora: str | Mapping[str, float]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    logit_bias: Mapping[int, float]
    dynatemp_range: float
    dynatemp_exponent: float
    typ_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_last_n: int
    dry_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    min_keep: int
    samplers: Sequence[str]


_FORMS = {"schema": "json_schema", "regex": "regex", "choices": "choice", "grammar": "grammar"}
_OURS = ("tokens", "max_tokens", "stop", "logprobs", "lora", *_FORMS)


@dataclass(frozen=True)
class CheckedSettings:
    """The checked settings of one answer.

    data  the class of `Answer.data`; None: plain JSON, or no schema
    lora  scales of adapters by name, where None is the scale that it was loaded with; None: the model's own adapters
    """

    params: SamplingParams
    tokens: int
    stop: tuple[str, ...]
    logprobs: int | None
    form: Grammar | None
    data: Any = None
    lora: Mapping[str, float | None] | None = None

    @property
    def is_json(self) -> bool:
        return self.form is not None and self.form.kind == "json_schema"


def checked_settings(settings: Settings, defaults: SamplingParams, tokens: int) -> CheckedSettings:
    """Checks settings. tokens: default limit. UsageError names the invalid setting."""
    given: dict[str, Any] = {**settings}
    unknown = [name for name in given if name not in Settings.__annotations__]
    if unknown:
        known = ", ".join(Settings.__annotations__)
        raise UsageError(f"there is no setting {shown(unknown[0])}. There are: {known}.")
    if "max_tokens" in given and "tokens" in given:
        raise UsageError("tokens and max_tokens are both given. Use one of them.")
    data, form = _form(given)
    stop = given.get("stop") or ()
    tokens = given.get("tokens", given.get("max_tokens", tokens))
    if type(tokens) is not int:
        raise UsageError(f"tokens = {shown(repr(tokens))}, expected a number of tokens, or -1 for as many as fit.")
    return CheckedSettings(
        _params(given, defaults),
        tokens,
        (stop,) if isinstance(stop, str) else tuple(stop),
        given.get("logprobs"),
        form,
        data,
        _lora(given.get("lora")),
    )


def _lora(given: object) -> Mapping[str, float | None] | None:
    if isinstance(given, str):
        return {given: None}
    numbers = isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(scale, Real) and not isinstance(scale, bool) and math.isfinite(scale)
        for name, scale in given.items()
    )
    if given is not None and not numbers:
        raise UsageError(f"lora = {shown(repr(given))}, expected the name of an adapter, or {{name: scale}}.")
    return given  # type: ignore[return-value]  # it was checked


def _params(given: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    try:
        return with_settings(defaults, {name: value for name, value in given.items() if name not in _OURS})
    except TypeError as error:  # for example a string instead of a number
        raise UsageError(f"a setting is of the wrong type: {shown(error)}.") from None


def _form(given: Mapping[str, Any]) -> tuple[Any, Grammar | None]:
    """The class of the data, and the grammar."""
    named = {_FORMS[name]: given[name] for name in _FORMS if given.get(name) is not None}
    if len(named) > 1:
        first, second = [name for name in _FORMS if given.get(name) is not None][:2]
        raise UsageError(f"{first} and {second} are both given. Use one of them.")
    schema, data = named.get("json_schema"), None
    if isinstance(schema, type):
        if not hasattr(schema, "model_json_schema"):
            raise UsageError(f"schema = {shown(schema.__name__)}, expected a JSON schema or a pydantic class.")
        data, named["json_schema"] = schema, schema.model_json_schema()
    if "choice" in named:
        named["choice"] = list(named["choice"])
    try:
        return data, asked_form(named)
    except UsageError as error:
        name = next(ours for ours, theirs in _FORMS.items() if theirs in named)
        raise UsageError(name + str(error).removeprefix(_FORMS[name])) from None


def data_of(text: str, checked: CheckedSettings) -> Any:
    """The value of an answer's text: JSON, or an object of the requested class; None if the text was cut off."""
    if not checked.is_json:
        return None
    try:
        return checked.data.model_validate_json(text) if checked.data is not None else json.loads(text)
    except ValueError:  # pydantic's errors also
        return None
