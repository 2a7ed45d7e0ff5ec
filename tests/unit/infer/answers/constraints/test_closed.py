"""Objects of schemas are closed where only one schema describes them, and nowhere else."""

import json
from typing import Any

import pytest

from hybrid.infer.answers.constraints.closed import closed

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**A, "additionalProperties": False}
B = {"type": "object", "properties": {"b": A}, "required": ["b"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, CLOSED),
        (B, {**B, "properties": {"b": CLOSED}, "additionalProperties": False}),
        ({"items": A}, {"items": CLOSED}),
        ({"prefixItems": [A, True]}, {"prefixItems": [CLOSED, True]}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        (
            {"$defs": {"a": A}, "properties": {"x": {"$ref": "#/$defs/a"}}},
            {"$defs": {"a": CLOSED}, "properties": {"x": {"$ref": "#/$defs/a"}}, "additionalProperties": False},
        ),
        (
            {"properties": {"properties": A, "enum": {"const": A}}},
            {"properties": {"properties": CLOSED, "enum": {"const": A}}, "additionalProperties": False},
        ),
    ],
)
def test_closed(schema: Any, expected: Any) -> None:
    before = json.dumps(schema)
    assert closed(schema) == expected and json.dumps(schema) == before
    assert closed(expected) == expected


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        {**A, "additionalProperties": True},
        {**A, "patternProperties": {"^x": {}}},
        {**A, "unevaluatedProperties": False},
        {**A, "minProperties": 2},
        {**A, "required": ["z"]},
        {"allOf": [A, {"properties": {"b": {}}}]},
        {"allOf": [{"anyOf": [A, {"properties": {"b": {}}}]}, {"required": ["c"]}]},
        {**A, "anyOf": [{"properties": {"b": {}}}, {"required": ["c"]}]},
        {"if": A, "then": {"required": ["b"]}},
        {"not": A},
        {"$defs": {"a": A}, "allOf": [{"$ref": "#/$defs/a"}, {"required": ["b"]}]},
        {"$defs": {"a": A, "b": {"$ref": "#/$defs/a"}}, "allOf": [{"$ref": "#/$defs/b"}]},
        {"$defs": {"a": A}, "$ref": "#/$defs/a", "required": ["b"]},
        {"$defs": {"a": {**A, "$anchor": "here"}}, "allOf": [{"$ref": "#here"}]},
        {"$defs": {"a/b~c": A}, "allOf": [{"$ref": "#/$defs/a~1b~0c"}]},
        {"const": A, "enum": [A], "default": A},
    ],
)
def test_left_open(schema: Any) -> None:
    """Another schema adds properties to the object, or the schema says itself which ones it may have."""
    assert closed(schema) == schema
