"""Dates and times in schemas, as RFC 3339 has them: llguidance takes 29 February in any year, and leap seconds at any
time. Here there are no leap seconds at all."""

from typing import Any

from .where import NAMED

_DAYS = (
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_DATE = f"({_DAYS}|{_LEAP})"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[Tt]{_TIME}$"}
VALUES = ("const", "default", "enum", "example", "examples")  # keywords whose values are no schemas


def with_exact_dates(schema: Any) -> Any:
    """A schema with patterns in the place of the formats of PATTERNS; nothing else changes."""
    if isinstance(schema, list):
        return [with_exact_dates(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _value(name, value) for name, value in schema.items()}
    known = made.get("format")
    if not isinstance(known, str) or known not in PATTERNS:
        return made
    del made["format"]
    if "pattern" not in made:
        return {**made, "pattern": PATTERNS[known]}
    more = made.get("allOf")
    return {**made, "allOf": [*(more if isinstance(more, list) else []), {"pattern": PATTERNS[known]}]}


def _value(keyword: str, value: Any) -> Any:
    if keyword in VALUES:
        return value
    if keyword in NAMED and isinstance(value, dict):  # the names may be those of keywords
        return {name: with_exact_dates(part) for name, part in value.items()}
    return with_exact_dates(value)
