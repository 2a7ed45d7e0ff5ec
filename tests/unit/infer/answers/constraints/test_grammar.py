"""Verdicts of suites that others wrote: llama.cpp's (tests/test-grammar-integration.cpp, MIT) and the
JSON-Schema-Test-Suite of 2020-12 (json-schema-org, MIT): nothing that is invalid is let through."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from verdicts import accepts

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

# (name, text) -> why the verdict is another one than llama.cpp's
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


def test_json_schema_test_suite(data_dir: Path, tokenizer: Tokenizer) -> None:
    suite = json.loads((data_dir / "grammars" / "json_schema_test_suite.json").read_text())
    verdicts: Counter[tuple[bool, bool]] = Counter()
    n_refused = 0
    for name, groups in suite.items():
        for schema, tests in groups:
            try:
                constraint = Constraint(Grammar.json_schema(schema), tokenizer)
            except UsageError:
                n_refused += 1
                continue
            for value, valid in tests:
                got = accepts(constraint, tokenizer, json.dumps(value, ensure_ascii=False))
                verdicts[valid, got] += 1
                assert valid or not got, (name, schema, value)
    # what is refused is refused whole; valid values that cannot be drawn are those in another order or form
    assert verdicts[True, True] > 300 and verdicts[False, False] > 220 and verdicts[True, False] < 30
    assert n_refused < 215


@pytest.mark.parametrize("text", ["root ::= [a-z]+", "  root ::= x\nx ::= y\ny ::= [0-9]", "# a comment\nroot::=[a]"])
def test_gbnf_is_told_from_lark(text: str) -> None:
    assert Grammar.of_text(text).kind == "gbnf"
    assert Grammar.of_text('start: "a"').kind == "lark"


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"kind": "poem", "text": ""}, {"kind": "regex"}, {"kind": "regex", "text": 3},
        {"kind": "composed", "text": "no JSON"}, {"kind": "composed", "text": "[]"}, {"kind": "composed", "text": "{}"},
        {"kind": "composed", "text": '{"name": "n", "parts": {"a": {"grammar": {"kind": "regex", "text": ""}}}}'},
        {"kind": "composed", "text": '{"name": "n", "lark": "", "parts": {"a": 3}}'},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_damaged_file_holds_is_no_grammar(value: object) -> None:
    with pytest.raises(ValueError):
        Grammar.from_json(value)
