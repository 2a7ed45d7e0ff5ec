"""The JSON types that a parameter may have, and conversion of values without quotes to JSON of such a type."""

import json
import re
from dataclasses import dataclass
from typing import Any

from .cursor import WHITE
from .tools import Tool

TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
STRING = frozenset({"string"})
MOST_STEPS = 1000  # subschemas that are visited
MOST_DEPTH = 50  # nesting of subschemas and references
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ZEROS = re.compile(r"^(-?)0+(?=\d)")


@dataclass(frozen=True)
class Parameters:
    """The parameters that a tool's schema names, at its top level or in its combinations.

    known        their schemas; a parameter of several parts of anyOf fits any of them
    required     names of the parameters that every call has
    are_of_some  some are named in parts of anyOf or oneOf, one of which must fit
    """

    known: dict[str, Any]
    required: list[str]
    are_of_some: bool = False


def parameters_of(schema: dict[str, Any]) -> Parameters:
    """The parameters in the schema of a tool's arguments."""
    return _Types(schema).parameters(schema)


def types_of(tool: Tool, key: str, parameters: Parameters | None = None) -> frozenset[str]:
    """Types of the parameter `key`: string if the tool does not know it, all types if nothing is said of it."""
    known = (parameters_of(tool.parameters) if parameters is None else parameters).known
    schema = known.get(key, tool.parameters.get("additionalProperties"))
    if key not in known and not isinstance(schema, dict):
        return STRING
    return _Types(tool.parameters).of(schema) or TYPES


class _Types:
    """Reads the schemas of one document."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MOST_STEPS

    def of(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """Types that a value may have, from the keywords that name types or values; empty if these contradict."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > MOST_DEPTH:
            return TYPES
        types = TYPES
        if "type" in schema:
            named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            named = [name for name in named if isinstance(name, str)]
            types &= frozenset([*named, "integer"] if "number" in named else named)
        elif "properties" in schema:
            types = frozenset({"object"})
        elif "items" in schema or "prefixItems" in schema:
            types = frozenset({"array"})
        if "const" in schema:
            types &= {_type(schema["const"])}
        if isinstance(schema.get("enum"), list):
            types &= {_type(value) for value in schema["enum"]}
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                types &= frozenset().union(*(self.of(part, depth + 1) for part in schema[keyword]))
        for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else []:
            types &= self.of(part, depth + 1)
        if isinstance(schema.get("$ref"), str):
            types &= self.of(self._referred(schema["$ref"]), depth + 1)
        return types

    def parameters(self, schema: Any, depth: int = 0) -> Parameters:
        """The parameters that an object's schema names."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > MOST_DEPTH:
            return Parameters({}, [])
        known, required = dict(schema.get("properties") or {}), list(schema.get("required") or [])
        parts = [*schema.get("allOf", []), *([self._referred(schema["$ref"])] if "$ref" in schema else [])]
        some = [self.parameters(part, depth + 1) for part in parts]
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                some.append(_either([self.parameters(part, depth + 1) for part in schema[keyword]]))
        for more in some:
            for key, value in more.known.items():
                known[key] = {"allOf": [known[key], value]} if key in known else value
            required += [key for key in more.required if key not in required]
        return Parameters(known, required, any(more.are_of_some for more in some))

    def _referred(self, reference: str) -> Any:
        """The target of "#/$defs/name"; None if it is missing or outside the document."""
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found


def _either(parts: list[Parameters]) -> Parameters:
    """The parameters of an object that fits one of several schemas."""
    named: dict[str, list[Any]] = {}
    for part in parts:
        for key, value in part.known.items():
            named.setdefault(key, []).append(value)
    known = {key: values[0] if len(values) == 1 else {"anyOf": values} for key, values in named.items()}
    shared = [key for key in parts[0].required if all(key in part.required for part in parts)]
    return Parameters(known, shared, are_of_some=len(parts) > 1)


def typed(text: str, types: frozenset[str]) -> str:
    """JSON of a value written without quotes as `text`: of one of the types if it can be read so, else a string.

    Python's True, False and None and leading zeros of numbers are also read: some templates and models write them.
    """
    if types == STRING:
        return quoted(text)
    bare = text.strip(WHITE)
    readings = [bare, _WORDS.get(bare.lower(), ""), _ZEROS.sub(r"\1", bare)]
    kinds = [(reading, kind) for reading in readings if (kind := _type_of_json(reading)) is not None]
    for reading, kind in kinds:
        if kind in types and kind != "string":
            return reading
    return kinds[0][0] if kinds and "string" not in types else quoted(text)


def escaped(text: str) -> str:
    """The text as it stands in a JSON string, without quotes; texts may be escaped piece by piece."""
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", inside)


def quoted(text: str) -> str:
    return f'"{escaped(text)}"'


def _type_of_json(text: str) -> str | None:
    """The JSON type of a text; None if it is not JSON. Numbers are not converted: they may be of any length."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(text, parse_int=lambda _: 0, parse_float=lambda _: 0.0, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return _type(value)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "object")
