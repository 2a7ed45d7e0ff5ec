"""Parses the form of an answer from JSON: a line of a prompt file, or a request."""

from collections.abc import Mapping
from typing import Any

from hybrid.quant.ggml.errors import UsageError, shown

from .grammar import Grammar

FIELDS = ("response_format", "json_schema", "grammar", "regex", "choice")


def asked_form(fields: Mapping[str, Any]) -> Grammar | None:
    """The form that an object asks for by one of FIELDS, or None. Raises UsageError, which begins with the field, if
    the form cannot be used, or if there are two.
    """
    given = [name for name in FIELDS if fields.get(name) is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are both given. Use one of them.")
    if not given:
        return None
    (name,) = given
    try:
        return _form(name, fields[name])
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _form(name: str, value: Any) -> Grammar | None:
    if name == "response_format":
        return response_format(value)
    if name == "json_schema":
        return Grammar.json_schema(value)
    if name == "choice":
        if not isinstance(value, list):
            raise UsageError(f"expected a list of texts, found {shown(value)}.")
        return Grammar.choice(value)
    if not isinstance(value, str):
        raise UsageError(f"expected a text, found {shown(value)}.")
    return Grammar.of_text(value) if name == "grammar" else Grammar.regex(value)


def response_format(value: Any) -> Grammar | None:
    """Parses OpenAI's `response_format`. {"type": "text"}: any text; "json_object": any object, or one of the `schema`
    that llama-server takes there; "json_schema": one of {"schema": ...}.
    """
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise UsageError(f"expected a type of text, json_object or json_schema, found {shown(value)}.")
    if kind == "text":
        return None
    named = value.get("json_schema")
    schema = named.get("schema") if isinstance(named, Mapping) else value.get("schema")
    if kind == "json_schema" and schema is None:
        raise UsageError("json_schema has no schema.")
    return Grammar.any_json() if schema is None else Grammar.json_schema(schema)
