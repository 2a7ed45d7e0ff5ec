"""Whether a text is a valid answer of a form; what becomes of a suite's schemas."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.trial import ByteVocabulary
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError


def accepts(constraint: Constraint, tokenizer: Tokenizer, text: str) -> bool:
    """Whether the whole text is a valid answer."""
    state = constraint.copy()
    try:
        for token in tokenizer.encode(text, add_special=False, continues=True):
            state.accept(token)
    except HybridError:
        return False
    return state.may_end


def value_of(text: str) -> Any:
    """The JSON value; a number beyond the range of floats becomes a large one, as validators refuse infinity."""
    return json.loads(text, parse_float=lambda number: max(-1e308, min(1e308, float(number))))


SUITES = ("json_schema_test_suite", "json_schema_test_suite_optional")
# pattern of a refusal's message -> reason; the first match counts
_REASONS = (
    (r"Unimplemented keys: (\[[^\]]*\])", ""),
    (r"Unknown format: (\S+)", "`format`: {}"),
    ("oneOf constraints are not supported", "`oneOf` whose schemas may overlap"),
    ("Resource .* is not present", "`$ref` to another document"),
    ("are not disjoint", "`patternProperties` that overlap"),
    ("schema is false", "`false`: no answer fits"),
    ("Expected positive integer", "a count with a fraction: `2.0`"),
    ("too many digits", "`multipleOf` of 17 digits"),
    ("Failed to generate regex for float range", "numbers beyond 2^63 as bounds"),
    ("regex parse error", "`pattern` with escapes of ECMAScript's own"),
)


def reasons(refusal: str) -> list[str]:
    """The reasons of a refusal, mostly keywords."""
    for expression, reason in _REASONS:
        found = re.search(expression, refusal)
        if found is not None and not reason:
            return [f"`{keyword}`" for keyword in json.loads(found[1])]
        if found is not None:
            return [reason.format(*found.groups())]
    raise AssertionError(f"a new kind of refusal: {refusal}")


def groups(suite: Path) -> Iterator[tuple[str, Any, list[tuple[Any, bool]]]]:
    """(keyword, schema, [(value, whether it is valid)]) of a file of tests/data/grammars."""
    for keyword, found in json.loads(suite.read_text(encoding="utf-8")).items():
        for schema, tests in found:
            yield keyword, schema, [(value, valid) for value, valid in tests]


def refusals(folder: Path) -> tuple[int, Counter[str]]:
    """The number of schemas in the suites, and a count of refused schemas per reason."""
    n, counts, vocabulary = 0, Counter[str](), ByteVocabulary()
    for suite in SUITES:
        for _, schema, _ in groups(folder / f"{suite}.json"):
            n += 1
            try:
                Constraint(Grammar.json_schema(schema), vocabulary)  # type: ignore[arg-type]
            except UsageError as error:
                counts["all"] += 1
                counts.update(reasons(str(error)))
    return n, counts
