"""Unquoted values as JSON. test_xml_calls.py tests them in whole answers."""

import pytest

from hybrid.infer.answers.chat.parameter_types import STRING, TYPES, escaped, quoted, typed


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ('"a"', frozenset({"string", "null"}), '"\\"a\\""'),  # quotes of a text are its own
        ('"a"', frozenset({"integer"}), '"a"'),
        (" null ", frozenset({"string", "null"}), "null"),
        ("None", TYPES, "null"),
        ("null", STRING, '"null"'),
        ("-007", TYPES, "-7"),
        ("0", TYPES, "0"),
        ("100", TYPES, "100"),
        ("1e5", frozenset({"integer", "string"}), '"1e5"'),
    ],
)
def test_typed(text: str, types: frozenset[str], expected: str) -> None:
    assert typed(text, types) == expected


def test_half_a_surrogate_pair_is_an_escape() -> None:
    """A lone surrogate cannot be encoded for sending."""
    assert quoted('\ud83d"\n') == '"\\ud83d\\"\\n"'
    assert escaped("\U0001f600\ude00") == "\U0001f600\\ude00"
