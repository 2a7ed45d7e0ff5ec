"""The tools that a model may call, the client's choice among them, and the calls; checks clients' input.

    tools = tools_of([{"type": "function", "function": {"name": "f", "parameters": {...}}}])
    choice = choice_of("auto", tools)

No tool is refused for its schema. A schema that cannot be enforced is replaced by the nearest wider one
(infer/answers/constraints/relaxed.py), and `notes` say so.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hybrid.quant.ggml.errors import UsageError, shown

from ..constraints.relaxed import relaxed

MOST_TOOLS = 1024
MOST_BYTES = 1 << 20  # of all tools as JSON
MOST_DEPTH = 100  # nesting of objects and lists
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    parameters  JSON schema of an object that calls must satisfy; {} for any object
    as_given    the form for templates: {"type": "function", "function": {...}}
    notes       one sentence for each part of the given schema that is not enforced
    """

    name: str
    description: str
    parameters: dict[str, Any]
    as_given: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolChoice:
    """Whether tools are called. name: the one tool that must be called; the mode is then "required"."""

    mode: Literal["none", "auto", "required"]
    name: str | None = None


@dataclass
class ToolCall:
    """A call. arguments: JSON text, as far as the model wrote it."""

    id: str
    name: str
    arguments: str


def tools_of(value: object) -> list[Tool]:
    """Parses OpenAI's list, [{"type": "function", "function": {"name", "description", "parameters"}}, ...].

    Raises UsageError, which names the place of the error (tools/2/function/name).
    """
    if not isinstance(value, list):
        raise UsageError(f"tools is {_kind(value)}, expected a list.")
    if len(value) > MOST_TOOLS:
        raise UsageError(f"tools has {len(value)} entries, expected at most {MOST_TOOLS}.")
    if _depth(value) > MOST_DEPTH:
        raise UsageError(f"tools is nested deeper than {MOST_DEPTH} levels. Use $ref and $defs.")
    if (size := _size(value)) > MOST_BYTES:
        raise UsageError(f"tools has {size} bytes, expected at most {MOST_BYTES}. Send fewer tools.")
    tools = [_tool(entry, f"tools/{i}") for i, entry in enumerate(value)]
    places: dict[str, int] = {}
    for i, tool in enumerate(tools):
        if (first := places.setdefault(tool.name, i)) != i:
            raise UsageError(
                f"tools/{i}/function/name: '{tool.name}' is the name of tools/{first} already. Rename one."
            )
    return tools


def choice_of(value: object, tools: Sequence[Tool]) -> ToolChoice:
    """Parses "none", "auto", "required" or {"type": "function", "function": {"name": ...}}, or raises UsageError."""
    if isinstance(value, str) and value in ("none", "auto", "required"):
        if value == "required" and not tools:
            raise UsageError("tool_choice is 'required', but there are no tools. Send some, or 'auto'.")
        return ToolChoice(value)  # type: ignore[arg-type]
    if not isinstance(value, dict):
        found = f"'{shown(value)}'" if isinstance(value, str) else _kind(value)
        raise UsageError(f"tool_choice is {found}, expected none, auto, required or a function's name in an object.")
    if value.get("type") != "function":
        found = shown(json.dumps(value.get("type"), default=str))
        raise UsageError(f'tool_choice/type is {found}, expected "function": no other kind is supported.')
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise UsageError(f"tool_choice/function/name is {_kind(name)}, expected the name of a tool.")
    if not any(tool.name == name for tool in tools):
        known = shown(", ".join(tool.name for tool in tools)) or "no tools"
        raise UsageError(f"tool_choice/function/name: there is no tool '{shown(name)}', there is {known}.")
    return ToolChoice("required", name)


def _tool(entry: Any, where: str) -> Tool:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is {_kind(entry)}, expected an object.")
    if entry.get("type") != "function":
        found = shown(json.dumps(entry.get("type")))
        raise UsageError(f'{where}/type is {found}, expected "function": no other kind is supported.')
    function = entry.get("function")
    if not isinstance(function, dict):
        raise UsageError(f"{where}/function is {_kind(function)}, expected an object.")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str):
        raise UsageError(f"{where}/function/name is {_kind(name)}, expected a text.")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{where}/function/name is '{shown(name)}', expected 1 to 64 letters, digits, '_', '-' and '.'."
        )
    if not isinstance(description, str | None):
        raise UsageError(f"{where}/function/description is {_kind(description)}, expected a text.")
    parameters, notes = _parameters(function.get("parameters"), f"{where}/function/parameters")
    if notes and function.get("strict") is True:
        notes = (*notes, "calls are not as strict as `strict` asks for")
    notes = tuple(f"tool `{name}`: {note}" for note in notes)
    return Tool(name, description or "", parameters, {"type": "function", "function": function}, notes)


def _parameters(value: Any, where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema that is enforced, and notes."""
    if value is None:
        return {}, ()
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {_kind(value)}, expected a JSON schema of an object.")
    schema, notes = relaxed(value)
    kinds = schema.get("type", "object")
    if kinds != "object":
        schema["type"] = "object"
        if "object" not in kinds:
            notes = (*notes, f"`type: {kinds}` at parameters cannot be enforced: arguments are an object")
    return schema, notes


def _kind(value: object) -> str:
    """The JSON type of a value, as messages name it."""
    if value is None:
        return "missing"
    names = {bool: "a truth value", str: "a text", dict: "an object", list: "a list"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a number")


def _size(value: object) -> int:
    """Bytes of the value as JSON. Raises UsageError if it is not JSON."""
    try:
        return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:  # half a surrogate pair raises UnicodeError, a ValueError
        raise UsageError(f"tools is not JSON: {shown(error)}.") from None


def _depth(value: object) -> int:
    """Nesting of objects and lists, counted until it exceeds MOST_DEPTH; no recursion."""
    depth, level = 0, [value]
    while depth <= MOST_DEPTH:
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return depth
        depth += 1
    return depth
