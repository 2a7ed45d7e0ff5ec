"""The items of a request for storing and listing: with IDs, and with contents as lists of parts."""

import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from hybrid.quant.ggml.errors import shown

from ..errors import RequestError
from ..strict import LONGEST_NAME
from .items import InputItem, MessageItem, ReferenceItem
from .stored import RUNNING, StoredResponses

ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(list[InputItem])
LONGEST_ID = 100  # characters: a longer one of a client's is replaced
_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_"}


def own_items(
    given: str | Sequence[InputItem | ReferenceItem], stored: StoredResponses, owner: bytes
) -> list[InputItem]:
    """The items of a request: a text is a message of the user, and references are replaced by the named items.
    RequestError: there is no such item."""
    if isinstance(given, str):
        return [MessageItem.model_validate({"role": "user", "content": given})]
    items: list[InputItem] = []
    for at, item in enumerate(given):
        if not isinstance(item, ReferenceItem):
            items.append(item)
            continue
        found = stored.item(item.id, owner)
        if found is None:
            told = shown(item.id, LONGEST_NAME)
            raise RequestError(f"Item with id '{told}' not found.", param=f"input.{at}", status=404)
        items += ITEMS.validate_python([found])
    return items


def items_before(stored: StoredResponses, name: str | None, owner: bytes) -> list[InputItem]:
    """The items of a response and of all responses before it. RequestError: one is not there, or has not ended."""
    if name is None:
        return []
    try:
        line = stored.line(name, owner)
    except KeyError as missing:
        told = shown(missing.args[0], LONGEST_NAME)
        raise RequestError(f"Previous response with id '{told}' not found.", param="previous_response_id") from None
    items: list[dict[str, Any]] = []
    for one in line:
        response = one.as_object()
        if response["status"] in RUNNING:
            raise RequestError(
                f"Response with id '{one.id}' has not ended yet: it cannot be continued.", param="previous_response_id"
            )
        items += one.items() + response["output"]
    return ITEMS.validate_python(items)


def listed_items(items: Sequence[InputItem]) -> list[dict[str, Any]]:
    """The items as JSON."""
    return [_listed(item) for item in items]


def _listed(item: InputItem) -> dict[str, Any]:
    told = item.model_dump(mode="json", exclude_none=True)
    given = told.get("id")
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_ID:
        told["id"] = _PREFIXES.get(item.type, "item_") + uuid.uuid4().hex
    told["type"] = item.type
    told.setdefault("status", "completed")
    if isinstance(item, MessageItem) and isinstance(item.content, str):
        kind = "output_text" if item.role == "assistant" else "input_text"
        part: dict[str, Any] = {"type": kind, "text": item.content}
        told["content"] = [{**part, "annotations": []} if kind == "output_text" else part]
    return told
