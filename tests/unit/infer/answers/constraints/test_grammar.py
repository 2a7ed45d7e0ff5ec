"""Verdicts of published suites: llama.cpp's (tests/test-grammar-integration.cpp, MIT) and the JSON-Schema-Test-Suite of
2020-12 (json-schema-org, MIT). Nothing invalid is allowed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from verdicts import SUITES, accepts, groups, reasons, value_of

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.trial import ByteVocabulary
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

# (name, text) -> why the verdict differs from llama.cpp's
OTHERWISE = {
    ("min 0", "100000000000000000000000000000000"): "integers of more than 16 digits are integers",
    ("min 2", "12345678900000000"): "integers of more than 16 digits are integers",
    ("min+max items", "1"): "the schema says nothing about what is no array",
    (
        "object properties",
        '{ "number": 1600, "street_name": "Pennsylvania", "street_type":"Avenue", "direction":"NW"}',
    ): "the schema does not forbid other properties",
}
REFUSED = {
    "segfault": "a repetition without anything that is repeated",
    "required props": "uniqueItems",
}


def cases(data_dir: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((data_dir / "grammars" / "llama_cpp.json").read_text())
    return found


def test_llama_cpps_verdicts(data_dir: Path, tokenizer: Tokenizer) -> None:
    wrong, refused, n = [], set(), 0
    for case in cases(data_dir):
        try:
            schema = case["kind"] == "schema"
            grammar = Grammar.json_schema(case["text"]) if schema else Grammar.of_text(case["text"])
            constraint = Constraint(grammar, tokenizer)
        except UsageError:
            refused.add(case["name"])
            continue
        for want in (True, False):
            for text in case["valid" if want else "invalid"]:
                n += 1
                if accepts(constraint, tokenizer, text) != want and (case["name"], text) not in OTHERWISE:
                    wrong.append((case["name"], want, text))
    assert refused == set(REFUSED) and n > 340
    assert wrong == []


# valid values that cannot be drawn, by suite and reason; all other valid values can, and no invalid one
NOT_DRAWN = {
    "json_schema_test_suite": {
        "order of properties": 3,
        "1.0 for 1": 9,
        "format is asserted": 10,
        "objects are closed": 5,
    },
    "json_schema_test_suite_optional": {
        "leap seconds": 8,
        "quoted names and numbers in email": 4,
        "IPv4 in IPv6": 4,
        "1e308": 1,
    },
}


@pytest.mark.parametrize("suite", SUITES)
def test_json_schema_test_suite(suite: str, data_dir: Path) -> None:
    vocabulary, verdicts, accepted = ByteVocabulary(), Counter[tuple[bool, bool]](), []
    n_refused = 0
    for _, schema, tests in groups(data_dir / "grammars" / f"{suite}.json"):
        try:
            constraint = Constraint(Grammar.json_schema(schema), vocabulary)  # type: ignore[arg-type]
        except UsageError as error:
            assert reasons(str(error))
            n_refused += 1
            continue
        for value, valid in tests:
            got = accepts(constraint, vocabulary, json.dumps(value, ensure_ascii=False))  # type: ignore[arg-type]
            verdicts[valid, got] += 1
            accepted += [(schema.get("pattern"), value)] if got and not valid else []
    assert accepted == []
    assert verdicts[True, False] == sum(NOT_DRAWN[suite].values())
    least = {"json_schema_test_suite": (325, 237, 204), "json_schema_test_suite_optional": (198, 187, 29)}[suite]
    assert verdicts[True, True] >= least[0] and verdicts[False, False] >= least[1] and n_refused <= least[2]


# schema -> why it is refused although llama.cpp takes it
SCHEMAS_REFUSED = {
    "string array": "prefixItems must be an array",
    "nullable string array": "prefixItems must be an array",
    "array with empty items and prefixItems": "prefixItems must be an array",
    "unsupported regexp in a property": "look-around, including look-ahead and look-behind, is not supported "
    "(at /properties/a)",
}


def test_llama_cpps_schemas(data_dir: Path) -> None:
    """Each schema of llama.cpp's tests/test-json-schema-to-grammar.cpp compiles or is refused with a reason; random
    answers are valid."""
    vocabulary, refused, n = ByteVocabulary(), {}, 0
    for case in json.loads((data_dir / "grammars" / "llama_cpp_schemas.json").read_text(encoding="utf-8")):
        try:
            constraint = Constraint(Grammar.json_schema(case["schema"]), vocabulary)  # type: ignore[arg-type]
        except UsageError as error:
            if not case["refused"]:
                refused[case["name"]] = str(error)
            continue
        assert not case["refused"], case["name"]
        schema = json.loads(case["schema"])
        old = isinstance(schema.get("items"), list)
        validator = jsonschema_rs.Draft7Validator if old else jsonschema_rs.Draft202012Validator
        is_valid = validator(schema, validate_formats=True).is_valid
        for seed in range(6):
            answer = drawn(constraint.copy(), vocabulary, seed)
            if answer is not None:
                n += 1
                assert is_valid(value_of(answer)), (case["name"], answer)
    assert refused.keys() == SCHEMAS_REFUSED.keys() and n > 200
    assert all(SCHEMAS_REFUSED[name] in says for name, says in refused.items())


def drawn(constraint: Constraint, vocabulary: ByteVocabulary, seed: int) -> str | None:
    """An answer of random bytes that ends as soon as it may; None if it is too long."""
    rng, said = np.random.default_rng(seed), bytearray()
    while len(said) < 400 and not (said and constraint.may_end):
        logits = rng.standard_normal(vocabulary.n_vocab).astype(np.float32)
        logits[0x21:0x7F] += 4
        token = int(constraint.masked(logits).argmax())
        constraint.accept(token)
        said += vocabulary.piece(token)
    return said.decode() if constraint.may_end else None


@pytest.mark.parametrize("text", ["root ::= [a-z]+", "  root ::= x\nx ::= y\ny ::= [0-9]", "# a comment\nroot::=[a]"])
def test_gbnf_is_told_from_lark(text: str) -> None:
    assert Grammar.of_text(text).kind == "gbnf"
    assert Grammar.of_text('start: "a"').kind == "lark"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"kind": "poem", "text": ""},
        {"kind": "regex"},
        {"kind": "regex", "text": 3},
        {"kind": "composed", "text": "no JSON"},
        {"kind": "composed", "text": "[]"},
        {"kind": "composed", "text": "{}"},
        {"kind": "composed", "text": '{"name": "n", "parts": {"a": {"grammar": {"kind": "regex", "text": ""}}}}'},
        {"kind": "composed", "text": '{"name": "n", "lark": "", "parts": {"a": 3}}'},
    ],
    ids=str,
)
def test_what_a_damaged_file_holds_is_no_grammar(value: object) -> None:
    with pytest.raises(ValueError):
        Grammar.from_json(value)
