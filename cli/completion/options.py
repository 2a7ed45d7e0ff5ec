"""The options and arguments of every command: read from the commands once, then cached.

<cache>/completion.json    {"stamp": of the commands' files, "commands": {NAME: Table}}
"""

import enum
import inspect
import json
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..main import COMMANDS, load

MODEL, FILE, TEXT, FLAG = "model", "file", "text", "flag"


@dataclass(frozen=True)
class Parameter:
    """An option or argument. names: of an option, empty for an argument; kind: type of its value (model, file, text,
    nothing); values: all allowed values; many: may be repeated."""

    names: tuple[str, ...]
    kind: str
    values: tuple[str, ...] = ()
    help: str = ""
    many: bool = False


@dataclass(frozen=True)
class Table:
    """A command: its options, its arguments in order, and its subcommands with their descriptions."""

    options: tuple[Parameter, ...] = ()
    arguments: tuple[Parameter, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)


def table(name: str) -> Table:
    """The table of a command such as `run` or `gguf split`; empty for an unknown one."""
    command = name.split()[0]
    if command not in COMMANDS:
        return Table()
    tables = _kept()
    if name not in tables:
        tables |= _read(command)
        _keep(tables)
    return tables.get(name, Table())


# --- from the commands ---
def _read(command: str) -> dict[str, Table]:
    from importlib import import_module

    module = import_module(f"hybrid.cli.commands.{command}")
    loaded = load(command)
    functions = getattr(module, "SUBCOMMANDS", None)
    if functions is None:
        return {command: _of(loaded, getattr(module, command))}
    subcommands = {word: (inspect.getdoc(f) or "").split("\n")[0] for word, f in functions.items()}
    tables = {f"{command} {word}": _of(loaded.commands[word], f) for word, f in functions.items()}
    return {command: Table(commands=subcommands), **tables}


def _of(command: Any, function: Any) -> Table:
    annotations = {name: p.annotation for name, p in inspect.signature(function).parameters.items()}
    options: list[Parameter] = []
    arguments: list[Parameter] = []
    for param in command.params:
        if getattr(param, "hidden", False):
            continue
        parameter = _parameter(param, annotations.get(param.name, str))
        (options if parameter.names else arguments).append(parameter)
    return Table(tuple(options), tuple(arguments))


def _parameter(param: Any, annotation: Any) -> Parameter:
    kind, values = _takes(annotation)
    text = str(getattr(param, "help", None) or "")
    names = (*param.opts, *param.secondary_opts) if param.param_type_name == "option" else ()
    if getattr(param, "is_flag", False):
        kind = FLAG
    elif "ORG/NAME" in text or str(param.metavar).startswith("MODEL"):
        kind = MODEL
    many = typing.get_origin(_plain(annotation)) is list
    return Parameter(names, kind, values, text.split(". ")[0].rstrip("."), many)


def _plain(annotation: Any) -> Any:
    """The annotation without Annotated and without None."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    return annotation


def _takes(annotation: Any) -> tuple[str, tuple[str, ...]]:
    inner = _plain(annotation)
    inner = typing.get_args(inner)[0] if typing.get_origin(inner) is list else inner
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return TEXT, tuple(str(member.value) for member in inner)
    return (FILE if isinstance(inner, type) and issubclass(inner, Path) else TEXT), ()


# --- kept ---
def _stamp() -> str:
    """A stamp that changes with the code: another version, or an edit in a checkout."""
    files = Path(__file__).parent.parent.rglob("*.py")
    return str(max(path.stat().st_mtime_ns for path in files))


def _file() -> Path:
    from hybrid.cache_paths import cache_dir

    return cache_dir() / "completion.json"


def _kept() -> dict[str, Table]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(_file().read_bytes())
        if kept["stamp"] == _stamp():
            return {name: _table(entry) for name, entry in kept["commands"].items()}
    return {}


def _table(entry: Any) -> Table:
    options, arguments = (tuple(Parameter(**_tuples(p)) for p in entry[key]) for key in ("options", "arguments"))
    return Table(options, arguments, dict(entry["commands"]))


def _tuples(parameter: dict[str, Any]) -> dict[str, Any]:
    return {**parameter, "names": tuple(parameter["names"]), "values": tuple(parameter["values"])}


def _keep(tables: Mapping[str, Table]) -> None:
    from hybrid.quant.ggml.replacing import replace_file

    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        entries = {
            name: {
                "options": [asdict(p) for p in t.options],
                "arguments": [asdict(p) for p in t.arguments],
                "commands": dict(t.commands),
            }
            for name, t in tables.items()
        }
        replace_file(_file(), [json.dumps({"stamp": _stamp(), "commands": entries}).encode()])
