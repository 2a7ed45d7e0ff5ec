"""Routes of stored responses. A response belongs to the API key and the salt that it was made with (client.py): for
another one it does not exist."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.quant.ggml.errors import shown

from ..client import SALT, asked_by
from ..endpoint import Endpoint, get
from ..errors import RequestError
from ..models.router import ModelRouter
from ..strict import LONGEST_NAME
from .replay import replayed
from .stored import StoredResponse

FEW, MOST = 20, 100  # default and largest number of items in an answer
ORDERS = ("desc", "asc")
MOST_DIGITS = 9  # of a number in the query


def _found(router: ModelRouter, request: Request) -> StoredResponse:
    name = request.path_params["id"]
    stored = router.settings.stored.get(name, asked_by(request).owner)
    if stored is None:
        raise RequestError(f"Response with id '{shown(name, LONGEST_NAME)}' not found.", status=404)
    return stored


async def stored_response(router: ModelRouter, request: Request) -> Response:
    """A stored response; with stream = true the events of one in the background."""
    stored = _found(router, request)
    streams = request.query_params.get("stream", "false")
    if streams not in ("true", "false"):
        raise RequestError(f"stream: expected true or false, found {shown(streams, 40)}", param="stream")
    if streams == "true":
        answer = router.settings.background.known(stored.id)
        if answer is None:
            raise RequestError(
                "stream: the events of this response are not kept, since it did not run in the background, or ended "
                "long ago. Fetch it without stream.",
                param="stream",
            )
        return replayed(answer, _number(request, "starting_after", -1, 0, 10**MOST_DIGITS) + 1)
    return JSONResponse(stored.as_object())


async def delete_response(router: ModelRouter, request: Request) -> Response:
    """Drops a stored response, and ends its answer. Responses that continue it can then not be continued."""
    stored = _found(router, request)
    router.settings.stored.remove(stored.id, stored.owner)
    if (answer := router.settings.background.running(stored.id)) is not None:
        await answer.end()
    router.settings.background.forget(stored.id)
    return JSONResponse({"id": stored.id, "object": "response", "deleted": True})


async def cancel_response(router: ModelRouter, request: Request) -> Response:
    """Ends an answer in the background; an ended one does not change."""
    stored = _found(router, request)
    if not stored.as_object()["background"]:
        raise RequestError("Cannot cancel a synchronous response.")
    if (answer := router.settings.background.running(stored.id)) is not None:
        await answer.end()
    return JSONResponse(_found(router, request).as_object())


async def response_input_items(router: ModelRouter, request: Request) -> Response:
    """The items of a response's request and of the responses that it continues, the last ones first."""
    stored = _found(router, request)
    order = request.query_params.get("order", ORDERS[0])
    if order not in ORDERS:
        raise RequestError(f"order: expected asc or desc, found {shown(order, 40)}", param="order")
    limit = _number(request, "limit", FEW, 1, MOST)
    items = _all_items(router, stored)
    if order == "desc":
        items = items[::-1]
    if (after := request.query_params.get("after")) is not None:
        at = next((at for at, item in enumerate(items) if item.get("id") == after), None)
        if at is None:
            raise RequestError(f"after: there is no item '{shown(after, LONGEST_NAME)}'", param="after")
        items = items[at + 1 :]
    page = items[:limit]
    ids = [item.get("id") for item in (page[:1] + page[-1:])] or [None]
    more = {"first_id": ids[0], "last_id": ids[-1], "has_more": len(items) > len(page)}
    return JSONResponse({"object": "list", "data": page, **more})


def _all_items(router: ModelRouter, stored: StoredResponse) -> list[dict[str, Any]]:
    """The items that were read for the answer. Items of dropped responses are not among them."""
    items = stored.items()
    if stored.previous is not None:
        try:
            line = router.settings.stored.line(stored.previous, stored.owner)
        except KeyError:
            line = []
        items = [item for one in line for item in (*one.items(), *one.as_object()["output"])] + items
    return items


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A number in the query. RequestError: it is no number, or out of range."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and least <= int(given[: MOST_DIGITS + 1]) <= most):
        raise RequestError(f"{name}: expected {least} to {most}, found {shown(given, 40)}", param=name)
    return int(given)


_INTEGER = {"type": "integer"}
ENDPOINTS = [
    get(
        "/v1/responses/{id}",
        handler=stored_response,
        of_server=True,
        query={
            "stream": {"schema": {"type": "boolean", "default": False}},
            "starting_after": {"schema": {**_INTEGER, "minimum": 0}},
            **SALT,
        },
    ),
    Endpoint(("/v1/responses/{id}",), delete_response, method="DELETE", query=SALT, of_server=True),
    Endpoint(("/v1/responses/{id}/cancel",), cancel_response, method="POST", query=SALT, of_server=True),
    get(
        "/v1/responses/{id}/input_items",
        handler=response_input_items,
        of_server=True,
        query={
            "limit": {"schema": {**_INTEGER, "minimum": 1, "maximum": MOST, "default": FEW}},
            "order": {"schema": {"enum": ORDERS, "default": ORDERS[0]}},
            "after": {"schema": {"type": "string"}},
            **SALT,
        },
    ),
]
