"""Writes calls in a model's format, for templates that do not write the calls in messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .format import CallFormat, JsonCall, NamedCall, XmlCall

Called = tuple[str, str, Mapping[str, Any] | str]  # id, name, arguments; as text if they are not a whole object


def written_calls(form: CallFormat, calls: Sequence[Called]) -> str:
    """The calls with all their tags, and nothing before or after them."""
    texts = [_written(form, *call) for call in calls]
    if form.between is not None:
        return form.begin + form.between.join(texts) + form.end
    return form.again.join(form.begin + text + form.end for text in texts)


def as_object(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """The arguments as an object; text becomes its only entry, "arguments"."""
    return {"arguments": arguments} if isinstance(arguments, str) else dict(arguments)


def _written(form: CallFormat, identifier: str, name: str, given: Mapping[str, Any] | str) -> str:
    kind, arguments = form.call, as_object(given)
    if isinstance(kind, JsonCall):
        call: dict[str, Any] = {kind.name_key: name, kind.arguments_key: given if isinstance(given, str) else arguments}
        if kind.id_key is not None:
            call[kind.id_key] = identifier
        return kind.opening + _json(call) + kind.closing
    if isinstance(kind, NamedCall):
        text = given if isinstance(given, str) else _json(arguments)
        return kind.opening + name + kind.before_arguments + text + kind.closing
    if isinstance(kind, XmlCall):
        parameters = (
            kind.before_key
            + key
            + kind.after_key
            + (value if isinstance(value, str) else _json(value))
            + kind.after_value
            for key, value in arguments.items()
        )
        return kind.opening + name + kind.after_name + "".join(parameters) + kind.closing
    written = ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
    return f"{kind.opening}{name}({written}){kind.closing}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: object) -> str:
    """The value as a Python literal, with strings in double quotes."""
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    return repr(value)
