"""Finds the place in a schema that cannot be compiled: the deepest part that does not compile by itself."""

import json
import time
from collections.abc import Iterator
from typing import Any

MOST_TRIED = 400  # parts that are compiled to find out
MOST_SECONDS = 0.5  # after which no more are compiled
# keywords whose values are schemas, lists of schemas, or schemas by name
ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
SHARED = ("$defs", "definitions", "$schema")  # targets of references in a part


def place_of(text: str, guide: Any) -> str:
    """JSON pointer (RFC 6901) of the part of a schema that is to blame; "" for the whole schema."""
    import llguidance

    root = json.loads(text)
    left, end = MOST_TRIED, time.monotonic() + MOST_SECONDS

    def compiles(schema: Any) -> bool:
        nonlocal left
        left = left - 1 if time.monotonic() < end else 0
        if isinstance(schema, dict) and isinstance(root, dict):
            schema = {**{name: root[name] for name in SHARED if name in root}, **schema}
        source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        return not llguidance.LLMatcher.validate_grammar_with_warnings(source, guide)[0]

    pointer, part = "", root
    while left > 0:
        for step, child in _parts(part):
            if left > 0 and not compiles(child):
                pointer, part = f"{pointer}/{step}", child
                break
        else:
            break
    return pointer


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside a schema, with their pointers relative to it."""
    if not isinstance(schema, dict):
        return
    for name in ONE:
        if isinstance(schema.get(name), dict):
            yield name, schema[name]
    for name in LISTS:
        if isinstance(schema.get(name), list):
            yield from ((f"{name}/{i}", child) for i, child in enumerate(schema[name]))
    for name in NAMED:
        if isinstance(schema.get(name), dict):
            for key, child in schema[name].items():
                yield f"{name}/{_escaped(key)}", child


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
