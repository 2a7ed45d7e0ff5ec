"""Dates and times in schemas, day by day, and bounds of numbers, one by one."""

import datetime
import itertools

import pytest
from verdicts import accepts

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.corrected import corrected
from hybrid.infer.answers.constraints.trial import ByteVocabulary
from hybrid.quant.ggml.errors import UsageError

VOCABULARY = ByteVocabulary()


def made(schema: object) -> Constraint:
    return Constraint(Grammar.json_schema(schema), VOCABULARY)  # type: ignore[arg-type]


def fits(constraint: Constraint, text: str) -> bool:
    return accepts(constraint, VOCABULARY, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("year", [1900, 2000, 2023, 2024, 2100, 2400])
def test_every_day_of_a_year(year: int) -> None:
    date = made({"type": "string", "format": "date"})
    for month in range(14):
        for day in (0, 1, 9, 28, 29, 30, 31, 32):
            try:
                datetime.date(year, month, day)
                there = True
            except ValueError:
                there = False
            assert fits(date, f'"{year}-{month:02}-{day:02}"') == there


def test_times_and_both_together() -> None:
    for time, there in {
        "23:59:59Z": True,
        "23:59:60Z": False,
        "24:00:00Z": False,
        "08:30:06.283185+01:30": True,
        "08:30:06": False,
        "08:30:06+24:00": False,
    }.items():
        assert fits(made({"format": "time"}), f'"{time}"') == there
        assert fits(made({"format": "date-time"}), f'"2024-02-29T{time}"') == there
        assert not fits(made({"format": "date-time"}), f'"2023-02-29T{time}"')
    assert fits(made({"format": "date"}), "5"), "a format is of strings"


def test_beside_another_pattern_both_hold() -> None:
    late = made({"type": "string", "format": "date", "pattern": "^20", "allOf": [{"pattern": "-02-29$"}]})
    assert fits(late, '"2024-02-29"') and not fits(late, '"1996-02-29"') and not fits(late, '"2024-02-28"')
    assert not fits(late, '"2023-02-29"')


def test_what_is_no_format_stays_as_it_is() -> None:
    for schema in (
        {"const": {"format": "date"}},
        {"enum": [{"format": "date"}]},
        {"default": {"format": "date"}, "format": "uri"},
        {"properties": {"format": {"const": "date"}}},
        {"format": 3},
        True,
    ):
        assert corrected(schema) == schema
    assert corrected({"properties": {"const": {"format": "date"}}}) != {"properties": {"const": {"format": "date"}}}


BOUNDS = (None, -12, -10, -2.5, -2, -1, -0.25, 0, 0.25, 1, 2, 2.5, 10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_bounds(kind: str, some: bool) -> None:
    """No number outside the bounds is allowed, and whole numbers inside are. `some`: all bounds that are near each
    other, and a quarter of the others."""
    texts = [str(n) for n in range(-13, 12)]
    texts += ["-2.5", "-2.4", "-0.25", "-0.1", "0.0", "0.1", "0.25", "0.3", "2.0", "2.5"]
    for low, high in itertools.product(BOUNDS, BOUNDS):
        for least, most in itertools.product(("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            near = low is not None and high is not None and abs(high - low) <= 1
            if some and not near and (BOUNDS.index(low) + BOUNDS.index(high)) % 4:
                continue
            if least.startswith("ex") != most.startswith("ex") and not near:
                continue  # the bounds are independent, unless they meet
            bounds = {name: value for name, value in ((least, low), (most, high)) if value is not None}
            try:
                constraint = made({"type": kind, **bounds})
            except UsageError:  # no value is between them
                continue
            for text in texts:
                value = float(text)
                there = (
                    (low is None or (value > low if least.startswith("ex") else value >= low))
                    and (high is None or (value < high if most.startswith("ex") else value <= high))
                    and (kind == "number" or value == int(value))
                )
                got = fits(constraint, text)
                assert there or not got, (kind, bounds, text)
                assert got or not there or "." in text, (kind, bounds, text)


def test_bounds_that_are_no_numbers_stay() -> None:
    for bounds in ({"exclusiveMinimum": True, "minimum": 3}, {"exclusiveMaximum": "3"}, {"exclusiveMinimum": 0.5}):
        assert corrected(bounds) == bounds
    assert corrected({"exclusiveMinimum": 1, "minimum": 4}) == {"minimum": 4}


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        (r"^\s$", " \u00a0\ufeff", "a"),
        (r"^\S$", "a", " \u00a0\ufeff"),
        (r"^[\sx]$", " x\ufeff", "a"),
        (r"^[^\s]$", "a", " \ufeff"),
        (r"^\\s$", "", "\ufeff "),
    ],
)
def test_the_byte_order_mark_is_white_space(pattern: str, fitting: str, other: str) -> None:
    constraint = made({"type": "string", "pattern": pattern})
    assert all(fits(constraint, f'"{char}"') for char in fitting)
    assert not any(fits(constraint, f'"{char}"') for char in other)
    assert corrected({"patternProperties": {r"\s": {}}}) == {"patternProperties": {r"[\s\uFEFF]": {}}}
    assert corrected({"properties": {r"\s": {}}, "const": {"pattern": r"\s"}}) == {
        "properties": {r"\s": {}},
        "const": {"pattern": r"\s"},
    }
