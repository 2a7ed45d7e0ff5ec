"""Schemas of which a value may match only one."""

from typing import Any

import pytest

from hybrid.infer.answers.constraints.disjoint import MOST_PARTS, Disjoint

STRING, INTEGER, NUMBER = ({"type": kind} for kind in ("string", "integer", "number"))


def of(key: str, value: Any, *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"const": value}}, "required": list(required)}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], True),
        ([STRING, INTEGER, {"type": ["null", "boolean"]}], True),
        ([INTEGER, NUMBER], False),
        ([STRING, {}], False),
        ([STRING, True], False),
        ([{}, False], True),
        ([{"enum": ["a"]}, {"const": "b"}], True),
        ([{"enum": ["a", "b"]}, {"const": "b"}], False),
        ([of("k", 1, "k"), of("k", 2, "k")], True),
        ([of("k", 1, "k"), of("k", 1, "k")], False),
        ([of("k", 1, "k"), of("k", 2)], False),
        ([of("k", 1, "k"), of("l", 2, "l")], False),
        ([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], True),
        ([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/circle"}], False),
        ([{"const": i} for i in range(MOST_PARTS + 1)], False),
    ],
)
def test_disjoint(parts: list[Any], expected: bool) -> None:
    definitions = {"a": of("k", 1, "k"), "b": {"$ref": "#/$defs/c"}, "c": of("k", 2, "k")}
    assert Disjoint(definitions | {"circle": {"$ref": "#/$defs/circle"}}).are(parts) == expected


def test_long_lists_are_compared_in_time() -> None:
    """Comparing the lists in pairs would take 10^10 comparisons."""
    assert Disjoint({}).are([{"enum": list(range(100_000))}, {"enum": list(range(100_000, 200_000))}])
