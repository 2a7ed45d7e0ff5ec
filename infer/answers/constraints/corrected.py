"""Rewrites schemas where llguidance 1.9 would accept values that do not fit.

Dates and times: it accepts 29 February in any year, and leap seconds at any time; here no leap second is accepted.
Excluded bounds: if one is whole and the other bound is less than 1 away, it accepts the bound itself: 0 for
{"exclusiveMinimum": 0, "maximum": 0.5}. Here the bound is moved by a millionth and included.
Whitespace in patterns: in ECMA-262, whose patterns these are, it includes U+FEFF.
"""

from typing import Any

from .schema_place import NAMED

_DAYS = (
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_DATE = f"({_DAYS}|{_LEAP})"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[Tt]{_TIME}$"}
STEP = 1e-6  # llguidance's integers take a nearer bound for the whole number
MOST_WHOLE = 1e9  # up to which floats have such fractions
VALUES = ("const", "default", "enum", "example", "examples")  # keywords whose values are not schemas


def corrected(schema: Any) -> Any:
    """A schema with the same meaning, for llguidance."""
    if isinstance(schema, list):
        return [corrected(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = _with_included_bounds({name: _value(name, value) for name, value in schema.items()})
    if isinstance(made.get("pattern"), str):
        made["pattern"] = with_white_space(made["pattern"])
    known = made.get("format")
    if not isinstance(known, str) or known not in PATTERNS:
        return made
    del made["format"]
    if "pattern" not in made:
        return {**made, "pattern": PATTERNS[known]}
    more = made.get("allOf")
    return {**made, "allOf": [*(more if isinstance(more, list) else []), {"pattern": PATTERNS[known]}]}


def _with_included_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    for excluded, included, way, further in (
        ("exclusiveMinimum", "minimum", 1, max),
        ("exclusiveMaximum", "maximum", -1, min),
    ):
        bound = schema.get(excluded)
        if not isinstance(bound, int | float) or isinstance(bound, bool) or not abs(bound) < MOST_WHOLE:
            continue
        if bound != int(bound):
            continue
        beyond = round(bound + way * STEP, 6)
        other = schema.get(included)
        del schema[excluded]
        schema[included] = further(beyond, float(other)) if isinstance(other, int | float) else beyond
    return schema


def _value(keyword: str, value: Any) -> Any:
    if keyword in VALUES:
        return value
    if keyword in NAMED and isinstance(value, dict):  # names may look like keywords
        is_pattern = keyword == "patternProperties"
        return {with_white_space(name) if is_pattern else name: corrected(part) for name, part in value.items()}
    return corrected(value)


def with_white_space(pattern: str) -> str:
    """The pattern with U+FEFF in \\s and not in \\S; a \\S inside a class stays unchanged."""
    made, at, in_class = "", 0, False
    while at < len(pattern):
        part = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(part)
        in_class = part != "]" if in_class else part == "["
        if part == r"\s":
            part = r"\s\uFEFF" if in_class else r"[\s\uFEFF]"
        elif part == r"\S" and not in_class:
            part = r"[^\s\uFEFF]"
        made += part
    return made
