"""Widens the parts of a schema that cannot be compiled, until the whole compiles: for tools, after relaxed.py.

A part first keeps its types, properties and items; if that does not compile either, only its types; at last, any value
fits.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from .grammar import Grammar
from .relaxed import spoken

MOST_PARTS = 20  # parts that are widened before the schema becomes any object
ANY_OBJECT: dict[str, Any] = {"type": "object"}
_MADE_OF = ("type", "$ref", "properties", "required", "items", "prefixItems", "additionalProperties")


def widened(
    schema: dict[str, Any], fault: Callable[[Grammar], str | None], place: Callable[[Grammar], str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The wider schema, and a sentence for each widened part.

    schema  from `relaxed`
    fault   returns why a form cannot be compiled; None if it can
    place   returns the JSON pointer of the part of such a form that is to blame
    """
    notes: list[str] = []
    for _ in range(MOST_PARTS):
        grammar = Grammar.json_schema(schema)
        why = fault(grammar)
        if why is None:
            return schema, tuple(notes)
        pointer = place(grammar)
        steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        if steps:
            part = reduce(lambda found, step: found[int(step) if isinstance(found, list) else step], steps, schema)
            alone: object = {"$defs": schema.get("$defs", {}), **part} if isinstance(part, dict) else part
            why = (fault(Grammar.json_schema(alone)) if alone is not False else None) or why
        schema = _with(schema, steps, _wider) if steps else _wider(schema) or ANY_OBJECT
        note = f"the schema at {spoken(pointer)} cannot be enforced: {why}"
        notes += [note] if note not in notes else []
    return ANY_OBJECT, (*notes[:1], "any object is accepted as arguments")


def _with(schema: Any, steps: list[str], change: Callable[[Any], Any]) -> Any:
    """A copy in which the part at `steps` is changed."""
    if not steps:
        return change(schema)
    if isinstance(schema, list):
        at = int(steps[0])
        return [*schema[:at], _with(schema[at], steps[1:], change), *schema[at + 1 :]]
    return {**schema, steps[0]: _with(schema[steps[0]], steps[1:], change)}


def _wider(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {}
    shared = {"$defs": part["$defs"]} if "$defs" in part else {}
    made = {key: part[key] for key in _MADE_OF if key in part}
    if "patternProperties" in part:
        made["additionalProperties"] = True
    if len(made) + len(shared) < len(part):
        return shared | made
    if "type" in made and len(made) > 1:
        return shared | {"type": made["type"]}
    return {}
