"""Schemas that cannot be enforced are relaxed: valid values stay valid, and the enforceable parts are enforced."""

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from random_schemas import schemas, text
from verdicts import accepts, value_of

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.constraint import DeadEndError
from hybrid.infer.answers.constraints.relaxed import MOST_NOTES, can_be_matched, relaxed
from hybrid.infer.answers.constraints.trial import ByteVocabulary, Trial
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

BYTES: Any = ByteVocabulary()
INJECTED: list[tuple[str, Any]] = [
    ("format", "path"), ("format", "uint"), ("pattern", "^(?!zzz)"), ("pattern", r"\b"), ("uniqueItems", True),
    ("uniqueItems", False), ("propertyNames", {"pattern": "^[^q]"}), ("propertyNames", {"maxLength": 9}),
    ("unevaluatedProperties", False), ("unevaluatedProperties", {"type": ["integer", "string", "null"]}),
    ("dependentRequired", {"name": ["age"]}), ("dependentSchemas", {"x": {"required": ["city"]}}),
    ("not", {"const": 5}), ("not", {"required": ["x", "age"]}), ("not", {"type": "boolean"}),
    ("if", {"type": "object"}), ("then", {"maxProperties": 3}), ("else", {"not": {"const": ""}}),
    ("contains", {"type": "integer"}), ("minContains", 0), ("minProperties", 1), ("maxProperties", 3),
    ("oneOf", [{"type": ["string", "object"]}, {"type": ["string", "number"], "maxLength": 2}]),
    ("anyOf", [{"type": ["string", "object", "null"]}, {"minimum": 3}]), ("nullable", True), ("x-order", [1]),
    ("enumDescriptions", ["a"]), ("title", "T"), ("default", None), ("readOnly", True), ("$comment", "c"),
    ("minLength", 1.0), ("unevaluatedItems", False), ("patternProperties", {"^(?=x)": {"type": "integer"}}),
]  # fmt: skip
NODES = ("items", "additionalProperties")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """All subschemas of a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in NODES:
        yield from nodes(schema.get(key))
    for key in LISTS:
        for part in schema.get(key, []):
            yield from nodes(part)
    for key in ("properties", "$defs"):
        for part in schema.get(key, {}).values():
            yield from nodes(part)


def injected(schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with keywords that cannot be enforced, or say nothing, in one to four subschemas."""
    made: dict[str, Any] = json.loads(text(schema))
    places = list(nodes(made))
    for _ in range(rng.randint(1, 4)):
        key, value = rng.choice(INJECTED)
        rng.choice(places).setdefault(key, value)
    return made


def drawn(constraint: Constraint, seed: int, most: int = 120) -> str | None:
    """An answer drawn from random bytes, with letters and ends more likely; None if it does not end."""
    rng, state, ids = np.random.default_rng(seed), constraint.copy(), []
    likely = np.zeros(BYTES.n_vocab, np.float32)
    likely[[*b'"}],ab01', BYTES.n_vocab - 1]] = 4
    try:
        while len(ids) < most and not state.ended:
            token = int(state.masked(likely + rng.standard_normal(BYTES.n_vocab).astype(np.float32)).argmax())
            if token in BYTES.eog:
                break
            state.accept(token)
            ids.append(token)
    except DeadEndError:
        return None
    return bytes(ids).decode() if state.may_end else None


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial(BYTES, seconds=60)
    yield made
    made.close()


@pytest.mark.parametrize("part", range(4))
def test_what_fits_a_schema_fits_the_relaxed_one(part: int, trial: Trial) -> None:
    """If the relaxed schema contradicts itself and cannot be compiled, the widened one is tested."""
    rng, n, n_notes, n_widened = random.Random(part), 0, 0, 0
    for i, schema in enumerate(schemas(160)[part::4]):
        wide = injected(schema, rng)
        made, notes = relaxed(wide)
        n_notes += len(notes)
        try:
            held = Constraint(Grammar.json_schema(made), BYTES)
        except UsageError:
            n_widened += 1
            made, _ = trial.widened(made)
            held = Constraint(Grammar.json_schema(made), BYTES)
        validator, strict = jsonschema_rs.validator_for(wide), Constraint(Grammar.json_schema(schema), BYTES)
        for seed in range(6):
            answer = drawn(strict, 100 * i + seed)
            if answer is not None and validator.is_valid(value_of(answer)):
                n += 1
                assert accepts(held, BYTES, answer), (answer, text(wide), text(made))
    assert n > 150 and n_notes > 20 and n_widened < 5, (n, n_notes, n_widened)


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "notes"),
    [
        (
            {"type": "string", "format": "path"},
            ["/etc", ""],
            [1],
            ["`format: path` at p cannot be enforced: any string"],
        ),
        ({"type": "string", "format": "path", "maxLength": 2}, ["ab"], ["abc"], ["any string is accepted"]),
        ({"type": "integer", "format": "int64"}, [1], ["1"], []),
        ({"type": "string", "pattern": "^(?=a)"}, ["ab"], [1], ["`pattern` at p cannot be enforced"]),
        ({"type": "integer", "pattern": "^(?=a)"}, [1], ["a"], []),
        ({"type": "number", "minimum": 3, "exclusiveMinimum": True}, [3.5], [3, 2], []),
        ({"type": "number", "minimum": 3, "exclusiveMinimum": False}, [3], [2], []),
        ({"minLength": 2.0, "type": "string"}, ["ab"], ["a"], []),
        ({"minLength": -1, "type": "string"}, [""], [1], ["`minLength: -1` at p"]),
        ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, [["a"], []], [["a", 1], [1]], []),
        ({"type": "string", "nullable": True}, ["a", None], [1], []),
        (
            {"properties": {"a": {"$ref": "#/$defs/x", "nullable": True}}, "$defs": {"x": {"type": "integer"}}},
            [{"a": 1}, {"a": None}],
            [{"a": "1"}],
            [],
        ),
        ({"$ref": "#/definitions/a%20b", "definitions": {"a b": {"type": "integer"}}}, [1], ["1"], []),
        ({"$id": "http://x/y", "$ref": "http://x/y#/$defs/x", "$defs": {"x": {"type": "null"}}}, [None], [1], []),
        ({"type": "array", "items": {"$ref": "#"}}, [[[], [[]]]], [[1]], []),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/a/0",
                "minimum": 5,
                "a": [{"type": "integer"}],
            },
            [1],
            ["1"],
            [],
        ),
        ({"$ref": "other.json"}, [1, "a"], [], ["`$ref: other.json` at p cannot be enforced: any value is accepted"]),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, ["a", 1], [None], []),
        (
            {"oneOf": [{"minimum": 1}, {"type": "string"}]},
            ["a", 1],
            [0],
            ["`oneOf` at p cannot be enforced: a value may"],
        ),
        ({"oneOf": [{"type": "integer"}, {"enum": ["a"]}], "anyOf": [{"minimum": 3}]}, [3], [2], ["`oneOf`"]),
        ({"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}, ["a", "c"], ["d"], []),
        (
            {"oneOf": [{"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in "ab"]},
            [{"k": "a"}],
            [{"k": "c"}, {}],
            [],
        ),
        ({"type": "STRING"}, ["a"], [1], []),
        ({"type": "float"}, [1, "a"], [], ["`type: float` at p cannot be enforced: any value is accepted"]),
        ({"enum": []}, [1], [], ["`enum: []` at p"]),
        ({"properties": {"a": 3}}, [{"a": 1}], [], ["`3` at p.a cannot be enforced: any value is accepted"]),
        ({"properties": [], "additionalProperties": False}, [{"a": 1}], [], ["`properties: []` at p"]),
        (
            {"type": "object", "patternProperties": {"(?=a)": {}}, "additionalProperties": False},
            [{"a": 1}],
            [1],
            ["`patternProperties` at p cannot be enforced: further properties are accepted"],
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string", "not": {"const": ""}}},
            [{"a": "b"}],
            [{"a": 1}],
            ["`not` at p.* cannot be enforced: any string is accepted"],
        ),
        ({"items": {"uniqueItems": True}}, [[[1, 1]]], [], ["`uniqueItems` at p[] cannot be enforced: repeated items"]),
        ({"items": {"uniqueItems": False}}, [[[1, 1]]], [], []),
        ({"properties": {"a": {}}, "required": ["a"], "minProperties": 1}, [{"a": 1}], [{}], []),
        ({"properties": {"a": {}}, "minProperties": 1}, [{"a": 1}, {}], [], ["`minProperties` at p"]),
        ({"x-a": {"not": 3}, "errorMessage": 5, "title": "x", "type": "null"}, [None], [1], []),
    ],
)
def test_what_is_held(
    schema: dict[str, Any], right: list[Any], wrong: list[Any], notes: list[str], tokenizer: Tokenizer
) -> None:
    given = json.dumps(schema)
    made, found = relaxed(schema, "p")
    assert json.dumps(schema) == given, "the given schema stays unchanged"
    held = Constraint(Grammar.json_schema(made), tokenizer)
    assert all(accepts(held, tokenizer, json.dumps(value)) for value in right)
    assert not any(accepts(held, tokenizer, json.dumps(value)) for value in wrong)
    assert len(found) == len(notes) and all(note in says for note, says in zip(notes, found, strict=True)), found
    assert relaxed(made, "p") == (made, ()), "relaxed again it is the same"


def test_notes_are_bounded() -> None:
    many = {"properties": {f"a\n{i}": {"format": "x" * 500} for i in range(100)}}
    notes = relaxed(many)[1]
    assert len(notes) == MOST_NOTES and all("\n" not in note and len(note) < 300 for note in notes)


def test_references_do_not_multiply_a_schema() -> None:
    """Each reference is to a part that holds the others, in many spellings."""
    deep: dict[str, Any] = {"type": "string"}
    for i in range(60):
        deep = {"properties": {f"p{i}": deep}}
    pointers = ["#" + "".join(f"/properties/p{59 - i}" for i in range(n)) for n in range(60)]
    spelled = [pointer.replace("p", "%70", n) for pointer in pointers for n in range(30)]
    schema = {**deep, "anyOf": [{"$ref": pointer} for pointer in spelled]}
    made, notes = relaxed(schema)
    assert len(json.dumps(made)) < 20 * len(json.dumps(schema)) and len(made["$defs"]) == len(pointers)
    long = {f"a{i}": {"$ref": "#/items/" + "0" * i + "1"} for i in range(6000)}
    made, notes = relaxed({"properties": long, "items": [{}, {"type": "integer"}]})
    assert "leads nowhere" in notes[-1] and len(made["$defs"]) < 10
    many = {f"a{i}": {"$ref": f"#/properties/a{i}/b/" + "/".join("c" * 5)} for i in range(5)}
    assert len(relaxed({"properties": many})[1]) == 5


@pytest.mark.parametrize("pattern", [r"^\d+$", r"[\w.\-]+", r"a\/b", r"\\b", "[(?=]", "^$", r"\u0041", "[^a]"])
def test_expressions_that_mean_the_same(pattern: str) -> None:
    assert can_be_matched(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(?=a)", r"(?!a)", r"(?<=a)", r"(?<!a)", r"(a)\1", r"\bx", r"x\B", "[]", "[^]", "[a&&b]", "[a[b]", r"\Z"],
)
def test_expressions_that_do_not(pattern: str) -> None:
    assert not can_be_matched(pattern)
