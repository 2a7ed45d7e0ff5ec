"""Whether a value may fit only one of several schemas, as far as types, constants and a property that names the kind
tell."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

MOST_PARTS = 100  # that are compared with one another
MOST_REFERENCES = 20  # in a row
_NUMBERS = frozenset({"integer", "number"})


def are_disjoint(parts: list[Any], definitions: Mapping[str, Any]) -> bool:
    """definitions: what "#/$defs/NAME" refers to, by NAME."""
    found = [_resolved(part, definitions) for part in parts]
    return len(found) <= MOST_PARTS and all(_differ(a, b, definitions) for a, b in combinations(found, 2))


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    for _ in range(MOST_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = definitions.get(schema["$ref"].removeprefix("#/$defs/"), True)
    return schema


def _differ(a: Any, b: Any, definitions: Mapping[str, Any]) -> bool:
    if a is False or b is False:
        return True
    if not isinstance(a, dict) or not isinstance(b, dict):
        return False
    if (kinds := _types(a)) and (others := _types(b)) and not kinds & others:
        return True
    values, more = _values(a), _values(b)
    if values is not None and more is not None:
        return not any(value in more for value in values)
    shared = set(a.get("required", ())) & set(b.get("required", ())) & _names(a) & _names(b)
    tags = ((_resolved(one["properties"][key], definitions) for one in (a, b)) for key in sorted(shared))
    return "object" in _types(a) & _types(b) and any(_are_other_values(first, second) for first, second in tags)


def _are_other_values(a: Any, b: Any) -> bool:
    values, others = _values(a), _values(b)
    return values is not None and others is not None and not any(value in others for value in values)


def _names(schema: dict[str, Any]) -> set[str]:
    return set(schema.get("properties", ()))


def _values(schema: Any) -> list[Any] | None:
    """All that fit; None: it does not list them."""
    if not isinstance(schema, dict):
        return None
    found: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return found


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """{}: it does not name them."""
    named = schema.get("type", [])
    found = frozenset([named] if isinstance(named, str) else named)
    return found | _NUMBERS if found & _NUMBERS else found
