"""--models-file: settings of single models, in TOML. A table is named as the model is in requests.

    [coder]
    model = "qwen3-coder.gguf"        # a file, a folder, or ORG/NAME:TYPE; without it: the model of this name
    aliases = ["claude-*", "gpt-4o"]  # other names, in which * and ? stand for any characters
    pinned = true                     # it stays loaded
    idle = "30m"                      # it sleeps after this time without a request
    ctx = 32768                       # and the options of `hybrid serve` about one model, without their dashes
    temp = 0.6

Paths are relative to the file's folder. Every key must be known.
"""

import difflib
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from typer.models import OptionInfo

from hybrid.quant.ggml.errors import UsageError, shown

from ...options import text_options
from ..opening import ModelSetup

OWN = ("model", "aliases", "pinned", "idle")
GROUPS = ("guessing", "capacity", "vision", "answers", "loading", "sampling")  # fields of ModelSetup
FILES = ("mmproj", "draft", "lora", "chat-template")  # options that name files
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class ModelTable:
    """A table of the file. model: None where the file names none; options: by name, without dashes."""

    name: str
    model: Path | None
    aliases: tuple[str, ...]
    pinned: bool
    idle: float | None
    options: Mapping[str, Any]
    where: str

    def applied(self, setup: ModelSetup) -> ModelSetup:
        """The setup with the options of the table. UsageError: an option is not known, or its value is wrong."""
        for name, value in self.options.items():
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, [*OPTIONS, *OWN], 1, 0.6)
                hint = f" Did you mean {near[0]}?" if near else " The options of `hybrid serve --help` are known."
                raise UsageError(f"{self.where}: {shown(name)} is not known.{hint}")
            setup = OPTIONS[name].applied(setup, value, f"{self.where}: {name}")
        setup.check()
        return setup


def seconds_of(text: object, where: str) -> float:
    """Seconds of `90`, `90s`, `10m` or `2h`. UsageError: another value."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smh]?)", str(text))
    if match is None or isinstance(text, bool):
        raise UsageError(f"{where} {shown(str(text), 40)}: expected a time like 90s, 10m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def read_tables(path: Path) -> list[ModelTable]:
    """The tables of a file. UsageError: it cannot be read, or a value of a table's own key is wrong."""
    try:
        tables = tomllib.loads(text_options.read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown(path)} is no TOML: {error}.") from None
    return [_table(path, name, value) for name, value in tables.items()]


def _table(path: Path, name: str, value: object) -> ModelTable:
    where = f"{shown(path)} [{shown(name)}]"
    if not isinstance(value, dict):
        raise UsageError(f"{shown(path)}: {shown(name)} is outside a table. Begin with a line [NAME].")
    own = {key: value[key] for key in OWN if key in value}
    options = {key: _beside(path, each) if key in FILES else each for key, each in value.items() if key not in OWN}
    model, aliases, pinned = own.get("model"), own.get("aliases", []), own.get("pinned", False)
    if model is not None and not (isinstance(model, str) and model):
        raise UsageError(f"{where}: model: expected a file, a folder or ORG/NAME.")
    if not isinstance(aliases, list) or not all(isinstance(each, str) and each for each in aliases):
        raise UsageError(f"{where}: aliases: expected a list of names.")
    if not isinstance(pinned, bool):
        raise UsageError(f"{where}: pinned: expected true or false.")
    idle = seconds_of(own["idle"], f"{where}: idle") if "idle" in own else None
    named = None if model is None else Path(_beside(path, model))
    return ModelTable(name, named, tuple(aliases), pinned, idle, options, where)


def _beside(path: Path, value: Any) -> Any:
    """A path relative to the settings file's folder, if something is there; other values stay."""
    if isinstance(value, list):
        return [_beside(path, each) for each in value]
    if not isinstance(value, str):
        return value
    file, colon, scale = value.partition(":") if not (path.parent / value).exists() else (value, "", "")
    found = path.parent / file
    return f"{found}{colon}{scale}" if file and found.exists() else value


@dataclass(frozen=True)
class _Option:
    """An option of a group. place: names of the fields that lead to it from ModelSetup."""

    place: tuple[str, ...]
    type: Any
    info: OptionInfo

    def applied(self, setup: Any, value: object, where: str) -> Any:
        """`setup` with this value. UsageError: the value is wrong."""
        return _replaced(setup, self.place, self._value(value, where))

    def _value(self, value: object, where: str) -> object:
        try:
            if self.info.parser is not None:
                return self.info.parser(str(value))
            given: object = TypeAdapter(self.type).validate_python(value)
        except ValidationError as error:
            raise UsageError(f"{where}: {error.errors()[0]['msg']}; found {shown(str(value), 40)}.") from None
        except Exception as error:  # a parser's typer.BadParameter
            raise UsageError(f"{where}: {error}") from None
        least, most = self.info.min, self.info.max
        if isinstance(given, int | float) and not (least is None or given >= least):
            raise UsageError(f"{where}: expected at least {least:g}, found {given:g}.")
        if isinstance(given, int | float) and not (most is None or given <= most):
            raise UsageError(f"{where}: expected at most {most:g}, found {given:g}.")
        return given


def _replaced(group: Any, place: tuple[str, ...], value: object) -> Any:
    first, *rest = place
    return replace(group, **{first: _replaced(getattr(group, first), tuple(rest), value) if rest else value})


def _options(group: Any, place: tuple[str, ...]) -> Iterator[tuple[str, _Option]]:
    """The options of a group of options, with their names without dashes."""
    for field in inspect.signature(group).parameters.values():
        kind, here = field.annotation, (*place, field.name)
        if is_dataclass(kind):
            yield from _options(kind, here)
            continue
        assert get_origin(kind) is not None, "an option is Annotated"
        inner, info = get_args(kind)[:2]
        # typer takes the first name for a default until it reads the signature
        given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
        names = [*given, f"--{field.name.replace('_', '-')}"]
        long = next(name for name in names if name.startswith("--"))
        yield long[2:], _Option(here, inner, info)


def _all_options() -> dict[str, _Option]:
    groups = {field.name: field.annotation for field in inspect.signature(ModelSetup).parameters.values()}
    return {name: option for group in GROUPS for name, option in _options(groups[group], (group,))}


OPTIONS = _all_options()
