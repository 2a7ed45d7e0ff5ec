"""The items of a request as they are stored and listed: with IDs, and with contents as lists of parts."""

import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from .items import InputItem, MessageItem

ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(list[InputItem])
LONGEST_ID = 100  # characters: a longer one of a client's is replaced
_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_"}


def own_items(given: str | Sequence[InputItem]) -> Sequence[InputItem]:
    """The items of a request; a text is a message of the user."""
    return [MessageItem.model_validate({"role": "user", "content": given})] if isinstance(given, str) else given


def listed_items(given: str | Sequence[InputItem]) -> list[dict[str, Any]]:
    """The items of a request as JSON."""
    return [_listed(item) for item in own_items(given)]


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
