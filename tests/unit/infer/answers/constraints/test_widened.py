"""Schemas that only the compiler refuses: the part at fault is widened, the rest is enforced."""

from collections.abc import Iterator
from typing import Any

import pytest
from verdicts import accepts

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.trial import ByteVocabulary, Trial
from hybrid.infer.answers.constraints.widened import ANY_OBJECT, MOST_PARTS

BYTES: Any = ByteVocabulary()


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial(BYTES, seconds=60)
    yield made
    made.close()


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "says"),
    [
        (of(a={"type": "string"}), ['{"a": "x"}'], ["{}"], []),
        (
            of(a={"type": "string", "pattern": "("}, b={"type": "integer"}),
            ['{"a": "x", "b": 1}'],
            ['{"a": 1, "b": 1}', '{"a": "x"}', '{"a": "x", "b": "y"}'],
            ["the schema at parameters.a cannot be enforced: regex parse error: unclosed group"],
        ),
        (
            of(**{"a/b": {"type": "array", "minItems": 2, "maxItems": 1, "items": {"type": "integer"}}}),
            ['{"a/b": [1]}'],
            ['{"a/b": ["x"]}', '{"a/b": 1}'],
            ["the schema at parameters.a/b cannot be enforced: Unsatisfiable schema: minItems"],
        ),
        (
            of(a={"type": "object", "patternProperties": {"a": {}, "b": {"type": "null"}}, "properties": {"c": {}}}),
            ['{"a": {"c": 1, "b": 2}}'],
            ['{"a": 1}'],
            ["are not disjoint"],
        ),
        (
            of(a={"anyOf": [{"$ref": "#/$defs/x"}]}) | {"$defs": {"x": {"allOf": [{"$ref": "https://x.y/z"}]}}},
            ['{"a": 1}'],
            ["{}"],
            ["Resource"],
        ),
        ({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ['{"b": 1}'], ["1"], [""]),
    ],
)
def test_the_part_to_blame_is_wider(
    schema: dict[str, Any], right: list[str], wrong: list[str], says: list[str], trial: Trial
) -> None:
    made, notes = trial.widened(schema)
    assert len(notes) >= len(says) and all(part in note for part, note in zip(says, notes, strict=False)), notes
    assert notes or made == schema
    held = Constraint(Grammar.json_schema(made), BYTES)
    assert all(accepts(held, BYTES, text) for text in right)
    assert not any(accepts(held, BYTES, text) for text in wrong)


def test_too_many_parts_are_any_object(trial: Trial) -> None:
    bad = {"type": "string", "pattern": "("}
    made, notes = trial.widened(of(**{f"a{i}": bad for i in range(MOST_PARTS + 1)}))
    assert made == ANY_OBJECT and notes[-1] == "any object is accepted as arguments"


def test_what_ends_the_process_is_any_object() -> None:
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(20_000)}
    made = Trial(BYTES)
    try:
        schema, (note,) = made.widened({"$ref": "#/$defs/d0", "$defs": chain})
        assert schema == ANY_OBJECT and "too much time or memory" in note and made.n_ended == 1
        assert made.widened({"type": "object"})[1] == (), "the next one has a new process"
    finally:
        made.close()
