"""Dates and times of schemas, day by day."""

import datetime

import pytest
from verdicts import accepts

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.dates import with_exact_dates
from hybrid.infer.answers.constraints.trial import ByteVocabulary

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
        assert with_exact_dates(schema) == schema
    assert with_exact_dates({"properties": {"const": {"format": "date"}}}) != {
        "properties": {"const": {"format": "date"}}
    }
