"""String schemas as terminals, for parameters whose values are bare text.

A terminal accepts only texts that a reader (parameter_types.py) takes for strings. For a parameter that may only be a
string, these are all texts; for others, texts that do not begin like a value of another type, unless the schema says no
more of that value than its type.
"""

from collections.abc import Callable
from typing import Any

from hybrid.quant.ggml.errors import UsageError, shown

from ..constraints.corrected import PATTERNS, with_white_space
from ..constraints.relaxed import CONSTRAINING
from .lark import ANY, either, literal
from .parameter_types import STRING, TYPES, quoted, typed

OF_STRINGS = {"minLength", "maxLength", "pattern", "format"}
_BEGINNINGS = {"object": "{", "array": r"\[", "number": r"0-9\-", "integer": r"0-9\-", "boolean": "tTfF", "null": "nN"}
_OTHERS = {
    "null": '"null"',
    "boolean": '"true" | "false"',
    "integer": "/-?(0|[1-9][0-9]{0,15})/",
    "number": r"/-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?/",
}
MOST_STEPS = 200  # references and parts of one parameter

_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_URI = r"([A-Za-z0-9._~:@!$\&'()*+,;=\/?-]|%[0-9A-Fa-f]{2})*"
FORMATS = {
    **{name: pattern[1:-1] for name, pattern in PATTERNS.items()},  # without its anchors
    "duration": r"P([0-9]{1,9}W|([0-9]{1,9}D|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?)"
    r"(T([0-9]{1,9}H|[0-9]{1,9}M|[0-9]{1,9}S))?|T([0-9]{1,9}H|[0-9]{1,9}M|[0-9]{1,9}S))",
    "email": rf"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@{_LABEL}(\.{_LABEL})+",
    "hostname": rf"{_LABEL}(\.{_LABEL}){{0,3}}",
    "ipv4": rf"{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}",
    "ipv6": r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|::1",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:\/\/{_LABEL}(\.{_LABEL})*(:[0-9]{{1,4}})?(\/{_URI})?(#{_URI})?",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


class TextValues:
    """Writes the terminals for the values of one tool's parameters.

    root  the tool's schema, to which references refer
    note  called with a keyword that cannot be enforced, its place, and the texts that are accepted instead
    """

    def __init__(self, root: dict[str, Any], note: Callable[[str, str, str], None]) -> None:
        self._root, self._left, self._note = root, MOST_STEPS, note

    def terminal(self, schema: Any, types: frozenset[str], where: str) -> str | None:
        """The body of a terminal; None if no string fits. types: of the parameter; where: its name."""
        self._left = MOST_STEPS
        try:
            return self._terminal(schema, types, where)
        except _TooMuchError:
            self._note("$ref", where, f"it has more than {MOST_STEPS} references and parts, any string is accepted")
            return ANY if types == STRING else rf"({ANY}) & ~({_beginnings(types - STRING)} {ANY})"

    def _terminal(self, schema: Any, types: frozenset[str], where: str) -> str | None:
        if types == STRING:
            return self._string(schema, where, types)
        others = types - STRING
        if "string" not in types:
            return None
        text = self._string(schema, where, types)
        if text is None or (text == ANY and self.covers(schema, types)):
            return text
        if self.covers(schema, types):
            return " | ".join([f"({text})", *(_OTHERS[kind] for kind in sorted(others) if kind in _OTHERS)])
        return rf"({text}) & ~({_beginnings(others)} {ANY})"

    def resolved(self, schema: Any) -> Any:
        """The schema, or the target if it is a reference. Raises UsageError if the target does not exist."""
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            self._step()
            reference, found = schema["$ref"], self._root
            for step in reference[1:].split("/")[1:] if reference.startswith("#") else [None]:
                key = step.replace("~1", "/").replace("~0", "~") if step is not None else None
                if not isinstance(found, dict) or key not in found:
                    raise UsageError(f"the target of $ref {shown(reference)} does not exist.")
                found = found[key]
            rest = {key: value for key, value in schema.items() if key in CONSTRAINING - {"$ref"}}
            schema = {"allOf": [found, rest]} if rest else found
        return schema

    def covers(self, schema: Any, types: frozenset[str]) -> bool:
        """Whether all values of the types other than string fit, so that any reading of a text is valid."""
        self._left = MOST_STEPS
        try:
            return self._covers(schema, types - STRING)
        except _TooMuchError:
            return False

    def _covers(self, schema: Any, others: frozenset[str]) -> bool:
        schema = self.resolved(schema)
        if not isinstance(schema, dict):
            return True
        said = schema.keys() & CONSTRAINING - OF_STRINGS
        for keyword in ("anyOf", "oneOf"):
            if said == {keyword}:
                kinds = [self.resolved(part) for part in schema[keyword]]
                named = [kind["type"] for kind in kinds if isinstance(kind, dict) and _is_bare(kind)]
                return others <= {*named, *(["integer"] if "number" in named else [])}
        return said <= {"type"}

    def _string(self, schema: Any, where: str, types: frozenset[str]) -> str | None:
        """The body of a terminal for the strings that fit; None if no string fits."""
        self._step()
        schema = self.resolved(schema)
        if not isinstance(schema, dict):
            return ANY if schema is not False else None
        kinds = schema.get("type", "string")
        if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
            return None
        bodies: list[str | None] = [self._limits(schema, where)]
        for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
            if values is not None:
                texts = [v for v in values if isinstance(v, str) and typed(v, types) == quoted(v)]
                if not texts:
                    return None
                bodies.append(either([literal(text) for text in texts]))
        for part in schema.get("allOf", []):
            bodies.append(self._string(part, where, types))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                found = [body for part in schema[keyword] if (body := self._string(part, where, types)) is not None]
                bodies.append(" | ".join(f"({body})" for body in found) if found else None)
        if any(body is None for body in bodies):
            return None
        kept = [body for body in bodies if body is not None and body != ANY]
        return " & ".join(f"({body})" for body in kept) if kept else ANY

    def _limits(self, schema: dict[str, Any], where: str) -> str:
        bodies = []
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if least or most is not None:
            bodies.append(f"/(?s:.){{{int(least)},{'' if most is None else int(most)}}}/")
        if "pattern" in schema:
            body = _matching(str(schema["pattern"]))
            if body is None:
                self._note("pattern", where, "any string is accepted")
            else:
                bodies.append(body)
        if "format" in schema and schema["format"] in FORMATS:
            bodies.append(f"/{FORMATS[schema['format']]}/")
        return " & ".join(f"({body})" for body in bodies) if bodies else ANY

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError


class _TooMuchError(Exception):
    """A parameter has more than MOST_STEPS references and parts."""


def _beginnings(types: frozenset[str]) -> str:
    """A terminal for the beginnings of values of these types."""
    return rf"/\s*[{''.join(sorted({_BEGINNINGS[kind] for kind in types}))}]/"


def without_strings(schema: Any, types: frozenset[str]) -> dict[str, Any]:
    """The schema, restricted to values that are not strings."""
    kinds = sorted(types - STRING - ({"integer"} if "number" in types else set()))
    if isinstance(schema, dict) and "type" in schema:
        return {**schema, "type": kinds}
    return {"allOf": [schema if isinstance(schema, dict) else {}, {"type": kinds}]}


def _is_bare(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("type"), str) and schema.keys() & CONSTRAINING - OF_STRINGS == {"type"}


def _matching(pattern: str) -> str | None:
    """Texts that contain a match of the pattern; None if it cannot be read, or has anchors that cannot be enforced."""
    begins, inner = pattern.startswith("^"), with_white_space(pattern.removeprefix("^"))
    ends = inner.endswith("$") and (len(inner) - len(inner[:-1].rstrip("\\"))) % 2 == 1
    inner = inner[:-1] if ends else inner
    anchors, is_split = _bare_characters(inner)
    if anchors or (is_split and (begins or ends)):
        return None
    import llguidance

    try:
        body = f"/({llguidance.regex_to_lark(inner, 'dw')})/"
    except ValueError:
        return None
    return " ".join([*([] if begins else [ANY]), body, *([] if ends else [ANY])])


def _bare_characters(pattern: str) -> tuple[bool, bool]:
    """Whether ^ or $ occurs outside character classes, and | outside groups."""
    anchors = is_split = in_class = escaped = False
    depth = 0
    for char in pattern:
        if escaped or char == "\\":
            escaped = not escaped
            continue
        if in_class:
            in_class = char != "]"
            continue
        in_class = char == "["
        depth += (char == "(") - (char == ")")
        anchors |= char in "^$"
        is_split |= char == "|" and depth == 0
    return anchors, is_split


__all__ = ["FORMATS", "TYPES", "TextValues", "without_strings"]
