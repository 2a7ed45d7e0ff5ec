"""/set: sampling settings from now on. Names are the options of `hybrid run` without dashes."""

import inspect
import shlex
from dataclasses import replace
from functools import cache
from typing import Any, get_args

from hybrid.quant.ggml.errors import UsageError, shown

from .. import aliases, console
from ..options.sampling_options import Sampling
from ..terminal.line_editing import Words
from .session import ChatSession

DEFAULT = "default"  # the value that resets a setting to the model's default
_SWITCH = {"on": True, "off": False}


@cache
def names() -> dict[str, str]:
    """Names of settings, mapped to fields of `Sampling`."""
    return {_option(field).lstrip("-"): field for field in inspect.signature(Sampling).parameters}


def set_(chat: ChatSession, argument: str) -> None:
    """Prints all settings or one, or changes one."""
    name, _, text = argument.partition(" ")
    if not name:
        console.note("\n".join(_lines(chat)))
        return
    field = _field(name)
    if text.strip():
        _change(chat, field, text.strip())
    console.note(_line(chat, field, name))


def _change(chat: ChatSession, field: str, text: str) -> None:
    """Changes a setting, or nothing at all. UsageError: an invalid value."""
    conversation = chat.conversation
    value = None if text == DEFAULT else _value(field, text)
    changed: dict[str, Any] = {field: bool(value) if field == "greedy" else value}
    sampling = replace(chat.sampling, **changed)
    # options that exclude each other
    if field == "temp" and value:
        sampling = replace(sampling, greedy=False)
    if field == "greedy" and value:
        sampling = replace(sampling, temp=None)
    conversation.draw_by(sampling.params(conversation.model.gguf.metadata))
    chat.sampling = sampling


def _value(field: str, text: str) -> Any:
    """The value of a setting. UsageError: it has the wrong type."""
    kind = _kind(field)
    try:
        if kind is bool:
            return _SWITCH[text]
        if kind is list:
            return shlex.split(text, posix=True)
        return kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "on or off", int: "a whole number", float: "a number", list: "texts, in quotes where needed"}
        raise UsageError(f"/set {_spelled(field)} {shown(text)}: expected {wanted[kind]}, or {DEFAULT}.") from None


def _lines(chat: ChatSession) -> list[str]:
    width = max(map(len, names()))
    return [_line(chat, field, name.ljust(width)) for name, field in names().items()]


def _line(chat: ChatSession, field: str, name: str) -> str:
    given = getattr(chat.sampling, field)
    text = _shown_value(chat, field)
    return f"{name}  {text}{'' if given is None or given is False or given == [] else '  (set)'}"


def _shown_value(chat: ChatSession, field: str) -> str:
    params = chat.conversation.params
    if field == "greedy":
        return "on" if params.greedy else "off"
    value = getattr(params, field)
    if field == "seed" and value is None:
        return f"random ({chat.conversation.sampler.seed})"
    if field == "samplers":
        return ";".join(value)
    if field == "dry_breakers":
        return " ".join(shlex.quote(text.replace("\n", "\\n")) for text in value) or "none"
    if field == "logit_bias":
        return " ".join(f"{token}={bias:g}" for token, bias in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings(chat: ChatSession, typed: str) -> Words:
    """Completions: names, then usual values of the named setting."""
    name, space, value = typed.partition(" ")
    if not space:
        return Words(typed, names())
    field = names().get(name)
    if field is None:
        return Words(value)
    return Words(value, [*(_SWITCH if _kind(field) is bool else ()), DEFAULT])


def _field(name: str) -> str:
    """The field of a setting. UsageError: unknown."""
    fields = inspect.signature(Sampling).parameters
    plain = name.lstrip("-")
    plain = aliases.OPTIONS.get(f"--{plain.replace('_', '-')}", plain).lstrip("-")
    found = names().get(plain.replace("_", "-"), plain.replace("-", "_"))
    if found not in fields:
        raise UsageError(f"there is no setting {shown(name)}. /set lists them.")
    return found


def _spelled(field: str) -> str:
    return next(name for name, known in names().items() if known == field)


@cache
def _parameter(field: str) -> tuple[type, Any]:
    """The type of an option's values, and its typer declaration."""
    annotation = inspect.signature(Sampling, eval_str=True).parameters[field].annotation
    kind, option = get_args(annotation)
    inner = next((each for each in get_args(kind) if each is not type(None)), kind)
    return (list if get_args(inner) else inner), option


def _kind(field: str) -> type:
    return _parameter(field)[0]


def _option(field: str) -> str:
    option = _parameter(field)[1]
    # with Annotated, typer takes the first option name as if it were the default
    declared = [text for text in (option.default, *(option.param_decls or ())) if str(text).startswith("--")]
    return str(declared[0]) if declared else "--" + field.replace("_", "-")
