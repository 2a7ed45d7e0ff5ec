"""Limits on the cost of checking bodies: a body with a million wrong values costs no more than one with one."""

import inspect
import itertools
import json
from typing import Any

from pydantic_core import core_schema

from .errors import RequestError

MOST_FIELDS = 1 << 14  # per object; most have a dozen, logit_bias some thousands
MOST_OBJECTS = 1 << 17  # per body; each is checked on its own
KINDS = {  # kinds of schemas that support fail_fast in newer versions of pydantic
    kind
    for kind, function in (("list", core_schema.list_schema), ("dict", core_schema.dict_schema))
    if "fail_fast" in inspect.signature(function).parameters
}


def fail_fast(schema: Any) -> None:
    """Changes a pydantic schema so that each list and object stops at its first wrong value."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # the name of a field may be "type"
        if isinstance(kind, str) and kind in KINDS:
            schema["fail_fast"] = True
        for part in schema.values():
            fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            fail_fast(part)


def loads(raw: bytes) -> object:
    """The JSON value of a body. RequestError: it is not JSON, an object has more than MOST_FIELDS fields, or there are
    more than MOST_OBJECTS objects."""
    n_objects = itertools.count(1)

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if next(n_objects) > MOST_OBJECTS:
            raise RequestError(f"the body has more than {MOST_OBJECTS} objects. Send fewer messages, parts or tools.")
        if len(pairs) > MOST_FIELDS:
            raise RequestError(f"an object of the body has {len(pairs)} fields, expected at most {MOST_FIELDS}")
        return dict(pairs)

    text = ""
    try:
        text = raw.decode()
        value: object = json.loads(text, object_pairs_hook=made, parse_constant=_no_number)
        if "\\ud" in text.lower():  # half a surrogate pair, from a client that cut a text: no UTF-8 can encode it
            whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
            value = json.loads(whole.decode("utf-16-le", "replace"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(f"the body is not JSON: {error.msg} ({where})" if text else "the body is empty") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise RequestError("the body is not JSON: too many lists or objects inside each other") from None
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    return value


def _no_number(name: str) -> object:
    """Refuses NaN and Infinity, which Python's parser accepts."""
    raise ValueError(f"{name} is no number of JSON")
