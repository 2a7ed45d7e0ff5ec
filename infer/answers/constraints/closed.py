"""Closes objects of a schema: an answer has only the properties that the schema names, unless it says otherwise.

JSON Schema allows every object further properties. A weak model then invents some, and clients that parse the answer
refuse it; llama.cpp and OpenAI's strict mode close objects likewise. Every answer still fits the given schema.
"""

from collections.abc import Callable, Iterator
from typing import Any

from .schema_place import NAMED

# keywords that decide which properties an object may have, or combine several schemas for one object
OPEN = (
    "additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "minProperties",
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
    "$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor",
)  # fmt: skip
# keywords whose schemas describe a part of the object around them: others describe the rest
PARTIAL = ("allOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "contains", "propertyNames")
EITHER = ("anyOf", "oneOf")
VALUES = ("const", "default", "enum", "example", "examples")  # keywords whose values are not schemas


def closed(schema: Any) -> Any:
    """The schema, with `additionalProperties: false` in every object that names properties and that only one schema
    describes."""
    return _closed(schema, "#", _partial(schema), is_part=False)


def closed_object(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without further properties, if it names some and has no keyword about others."""
    known, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(known, dict) or any(name in schema for name in OPEN):
        return schema
    if not isinstance(required, list) or not all(isinstance(name, str) and name in known for name in required):
        return schema
    return {**schema, "additionalProperties": False}


def _closed(schema: Any, pointer: str, partial: frozenset[str], *, is_part: bool) -> Any:
    """pointer: of the schema, as references have it. partial: see `_partial`."""
    if not isinstance(schema, dict):
        return schema
    made = {**schema}
    for name, value in schema.items():
        if name in VALUES:
            continue
        inside = is_part if name in EITHER else False
        for step, part, put in _parts(name, value):
            found = _closed(part, pointer + step, partial, is_part=inside or _is_part(name, schema))
            made[name] = put(made[name], found)
    return made if is_part or pointer in partial or (pointer != "#" and "$id" in schema) else closed_object(made)


def _partial(schema: Any) -> frozenset[str]:
    """References to schemas that describe only a part of an object."""
    found = list(_references(schema, "#", is_part=False))
    partial: set[str] = {ref for _, ref, is_part in found if is_part}
    while True:
        more = {ref for pointer, ref, _ in found if ref not in partial and pointer in partial}
        if not more:
            return frozenset(partial)
        partial |= more


def _references(schema: Any, pointer: str, *, is_part: bool) -> Iterator[tuple[str, str, bool]]:
    """All references: where they are, where to, and whether they describe a part of an object."""
    if not isinstance(schema, dict):
        return
    if isinstance(ref := schema.get("$ref"), str):
        yield pointer, ref, is_part or any(name in schema for name in ("properties", "required", *PARTIAL, *EITHER))
    for name, value in schema.items():
        if name not in VALUES:
            inside = _is_part(name, schema) or (is_part and name in EITHER)
            for step, part, _ in _parts(name, value):
                yield from _references(part, pointer + step, is_part=inside)


def _is_part(name: str, schema: dict[str, Any]) -> bool:
    """Whether the schemas of the keyword describe a part of the object that `schema` describes."""
    return name in PARTIAL or (name in EITHER and ("properties" in schema or "$ref" in schema))


Put = Callable[[Any, Any], Any]  # the keyword's value and a new part -> the value with that part


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any, Put]]:
    """The schemas in a keyword's value, each with its pointer from there."""
    if isinstance(value, list):
        for i, part in enumerate(value):
            yield f"/{name}/{i}", part, lambda whole, part, i=i: [*whole[:i], part, *whole[i + 1 :]]  # type: ignore[misc]
    elif isinstance(value, dict) and name in NAMED:
        for key, part in value.items():
            step = key.replace("~", "~0").replace("/", "~1")
            yield f"/{name}/{step}", part, lambda whole, part, key=key: {**whole, key: part}  # type: ignore[misc]
    elif isinstance(value, dict):
        yield f"/{name}", value, lambda _, part: part
