"""/set: settings of answers from now on. Names are the options of `hybrid run` without dashes.

They are saved with the chat, as typed; options on the command line come before them.
"""

import inspect
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError, shown

from .. import aliases, console
from ..options.sampling_options import Sampling
from ..terminal.line_editing import Words
from .request_commands import system, think
from .session import N_PREDICT, ChatSession, is_given

DEFAULT = "default"  # the value that resets a setting to the model's default
_COMMANDS = {"system": (system, ""), "think": (think, "on"), "nothink": (think, "off")}
_SWITCH = {"on": True, "off": False}
_EXCLUDES = {"temp": "greedy", "greedy": "temp"}
_NOT_GIVEN: dict[str, dict[str, Any]] = {"temp": {"temp": None}, "greedy": {"greedy": False}}


@cache
def names() -> dict[str, str]:
    """Names of settings, mapped to fields of `Sampling` and N_PREDICT."""
    sampling = {_option(field).lstrip("-"): field for field in inspect.signature(Sampling).parameters}
    return {"n-predict": N_PREDICT, **sampling}


def set_(chat: ChatSession, argument: str) -> None:
    """Prints all settings or one, or changes one. ollama's words: `parameter` before a name is skipped, `system TEXT`,
    `think` and `nothink` are commands of their own here."""
    name, _, text = argument.removeprefix("parameter ").partition(" ")
    if name in _COMMANDS:
        command, always = _COMMANDS[name]
        command(chat, always or text.strip())
        return
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
    if field == N_PREDICT:
        conversation.max_tokens = chat.most_by_default if value is None else value
    else:
        _sample_by(chat, field, value)
    if field in _EXCLUDES and value:
        conversation.settings.pop(_spelled(_EXCLUDES[field]), None)
    conversation.settings.pop(_spelled(field), None)
    if is_given(value):
        conversation.settings[_spelled(field)] = text


def restore(chat: ChatSession, path: Path) -> None:
    """Applies the settings of the chat that was loaded from `path`. Raises StateError if one cannot be used; the
    conversation is then empty."""
    conversation, sampler = chat.conversation, chat.conversation.sampler.state()
    for name, text in [*conversation.settings.items()]:
        try:
            field = _field(name)
            if not chat.on_command_line & {field, _EXCLUDES.get(field)}:
                _change(chat, field, text)
        except UsageError as err:
            conversation.clear()
            conversation.settings.clear()
            raise StateError(
                f"{shown(path)}: its setting {shown(name)} cannot be used: {err}", remedy=Remedy.WITHOUT_STATE
            ) from None
    conversation.sampler.set_state(sampler)  # the random numbers go on, whatever seed was set
    if conversation.settings:
        told = ", ".join(f"{name} {text}" for name, text in conversation.settings.items())
        console.paragraph(f"settings of this chat: {console.one_line(told)}")


def _sample_by(chat: ChatSession, field: str, value: Any) -> None:
    """Changes a setting of the sampler. UsageError: an invalid value."""
    conversation = chat.conversation
    changed: dict[str, Any] = {field: bool(value) if field == "greedy" else value}
    sampling = replace(chat.sampling, **changed)
    if field in _EXCLUDES and value:
        sampling = replace(sampling, **_NOT_GIVEN[_EXCLUDES[field]])
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
        value = kind(text)
        if field == N_PREDICT and value < -1:
            raise ValueError
        return value
    except (KeyError, ValueError):
        wanted = {bool: "on or off", int: "a whole number", float: "a number", list: "texts, in quotes where needed"}
        wanted |= {int: "a number of tokens, or -1 until the context is full"} if field == N_PREDICT else {}
        raise UsageError(f"/set {_spelled(field)} {shown(text)}: expected {wanted[kind]}, or {DEFAULT}.") from None


def _lines(chat: ChatSession) -> list[str]:
    width = max(map(len, names()))
    return [_line(chat, field, name.ljust(width)) for name, field in names().items()]


def _line(chat: ChatSession, field: str, name: str) -> str:
    given = chat.conversation.settings.get("n-predict") if field == N_PREDICT else getattr(chat.sampling, field)
    return f"{name}  {_shown_value(chat, field)}{'  (set)' if is_given(given) else ''}"


def _shown_value(chat: ChatSession, field: str) -> str:
    params = chat.conversation.params
    if field == N_PREDICT:
        return str(chat.conversation.max_tokens)
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
    plain = name.lstrip("-")
    plain = aliases.OPTIONS.get(f"--{plain.replace('_', '-')}", plain).lstrip("-")
    found = names().get(plain.replace("_", "-"), plain.replace("-", "_"))
    if found not in names().values():
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
    if field == N_PREDICT:
        return int
    return _parameter(field)[0]


def _option(field: str) -> str:
    option = _parameter(field)[1]
    # with Annotated, typer takes the first option name as if it were the default
    declared = [text for text in (option.default, *(option.param_decls or ())) if str(text).startswith("--")]
    return str(declared[0]) if declared else "--" + field.replace("_", "-")
