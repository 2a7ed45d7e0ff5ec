"""How an answer is drawn and what form it has, as keywords, and what becomes of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from hybrid.infer.answers.constraints import Grammar
from hybrid.infer.answers.constraints.form_fields import asked_form
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import with_settings
from hybrid.quant.ggml.errors import UsageError, shown


class Settings(TypedDict, total=False):
    """Keywords of `complete`, `say` and `reply`. What is not given is what the model's file says, or llama.cpp's.

    tokens    of the answer, at most; -1: as many as fit
    stop      texts that end the answer and are not part of it
    logprobs  tell how likely each token was, with so many of the likeliest in its place
    schema    the answer is JSON of it: a JSON schema, or a class of pydantic's, of which `Answer.data` is then one
    regex, choices, grammar  the whole answer matches an expression; is one of some texts; is of a grammar (GBNF, Lark)
    seed      of what is random; the same one gives the same answer
    The others are the samplers, see docs/commands.md.
    """

    tokens: int
    stop: str | Sequence[str]
    logprobs: int
    schema: Any
    regex: str
    choices: Sequence[str]
    grammar: str
    seed: int | None
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
_OURS = ("tokens", "stop", "logprobs", *_FORMS)


@dataclass(frozen=True)
class CheckedSettings:
    """The settings of one answer, checked. data: the class that its text is data of; None: JSON, or nothing."""

    params: SamplingParams
    tokens: int
    stop: tuple[str, ...]
    logprobs: int | None
    form: Grammar | None
    data: Any = None

    @property
    def is_json(self) -> bool:
        return self.form is not None and self.form.kind == "json_schema"


def checked_settings(settings: Settings, defaults: SamplingParams, tokens: int) -> CheckedSettings:
    """tokens: where the settings do not say it. UsageError names the setting that cannot be used."""
    given: dict[str, Any] = {**settings}
    unknown = [name for name in given if name not in Settings.__annotations__]
    if unknown:
        known = ", ".join(Settings.__annotations__)
        raise UsageError(f"there is no setting {shown(unknown[0])}. There are: {known}.")
    data, form = _form(given)
    stop = given.get("stop") or ()
    tokens = given.get("tokens", tokens)
    if type(tokens) is not int:
        raise UsageError(f"tokens = {shown(repr(tokens))}, expected a number of tokens, or -1 for as many as fit.")
    return CheckedSettings(
        _params(given, defaults),
        tokens,
        (stop,) if isinstance(stop, str) else tuple(stop),
        given.get("logprobs"),
        form,
        data,
    )


def _params(given: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    try:
        return with_settings(defaults, {name: value for name, value in given.items() if name not in _OURS})
    except TypeError as error:  # a text, say, where a number is expected
        raise UsageError(f"a setting is of the wrong type: {shown(error)}.") from None


def _form(given: Mapping[str, Any]) -> tuple[Any, Grammar | None]:
    """The class that the text is data of, and the form."""
    named = {_FORMS[name]: given[name] for name in _FORMS if given.get(name) is not None}
    if len(named) > 1:
        first, second = [name for name in _FORMS if given.get(name) is not None][:2]
        raise UsageError(f"{first} and {second} are both given. Use one of them.")
    schema, data = named.get("json_schema"), None
    if isinstance(schema, type):
        if not hasattr(schema, "model_json_schema"):
            raise UsageError(f"schema = {shown(schema.__name__)}, expected a JSON schema or a class of pydantic's.")
        data, named["json_schema"] = schema, _closed(schema.model_json_schema())
    if "choice" in named:
        named["choice"] = list(named["choice"])
    try:
        return data, asked_form(named)
    except UsageError as error:
        name = next(ours for ours, theirs in _FORMS.items() if theirs in named)
        raise UsageError(name + str(error).removeprefix(_FORMS[name])) from None


def _closed(schema: Any) -> Any:
    """Objects have nothing beside what the class has: it would be dropped."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        inner.setdefault("additionalProperties", False)
    return inner


def data_of(text: str, checked: CheckedSettings) -> Any:
    """What an answer's text says, in JSON or as an object of the class that was asked for; None: it is cut off."""
    if not checked.is_json:
        return None
    try:
        return checked.data.model_validate_json(text) if checked.data is not None else json.loads(text)
    except ValueError:  # pydantic's, too
        return None
