"""Bodies that are wrong a million times cost no more than those that are wrong once."""

import inspect
import itertools
import json
from typing import Any

from pydantic_core import core_schema

from .errors import RequestError

MOST_FIELDS = 1 << 14  # of an object in a body: most have a dozen, those of biases some thousand
MOST_OBJECTS = 1 << 17  # in a body: each is checked by itself
KINDS = {  # whose checks may end at the first wrong value; pydantic learnt it of one after the other
    kind
    for kind, function in (("list", core_schema.list_schema), ("dict", core_schema.dict_schema))
    if "fail_fast" in inspect.signature(function).parameters
}


def fail_fast(schema: Any) -> None:
    """Make a schema of pydantic's end at the first wrong value of each list and object that it holds."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # a field may have this name
        if isinstance(kind, str) and kind in KINDS:
            schema["fail_fast"] = True
        for part in schema.values():
            fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            fail_fast(part)


def loads(raw: bytes) -> object:
    """The value of a body. RequestError: it is not JSON, an object in it has more than MOST_FIELDS fields, or there are
    more than MOST_OBJECTS."""
    n_objects = itertools.count(1)

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if next(n_objects) > MOST_OBJECTS:
            raise RequestError(f"the body has more than {MOST_OBJECTS} objects. Send fewer messages, parts or tools.")
        if len(pairs) > MOST_FIELDS:
            raise RequestError(f"an object of the body has {len(pairs)} fields, expected at most {MOST_FIELDS}")
        return dict(pairs)

    try:
        text = raw.decode()
        value: object = json.loads(text, object_pairs_hook=made, parse_constant=_no_number)
        if "\\ud" in text.lower():  # half a character, where a client cut a text: no answer could repeat it
            whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
            value = json.loads(whole.decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        raise RequestError("the body is not JSON") from None
    return value


def _no_number(name: str) -> object:
    """NaN and Infinity, which Python would take."""
    raise ValueError(name)
