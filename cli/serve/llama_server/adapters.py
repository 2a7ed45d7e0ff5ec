"""GET and POST /lora-adapters."""

from pydantic import RootModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..adapters import LoraChoice
from ..endpoint import Endpoint, get, json_of
from ..served import Served


class LoraScales(RootModel[list[LoraChoice]]):
    """The scales of all adapters; others get 0."""


async def adapters(served: Served, _: Request) -> Response:
    """The LoRA adapters, each with its scale for requests that choose none."""
    return JSONResponse(served.adapters.listed())


async def set_adapters(served: Served, request: Request) -> Response:
    """Sets the scales for requests that choose no adapters; adapters that are not named get scale 0."""
    asked = LoraScales.model_validate(await json_of(request)).root
    served.adapters.set({served.adapters.number(one.id, "id"): one.scale for one in asked})
    return JSONResponse({"success": True})


ENDPOINTS = [
    get("/lora-adapters", handler=adapters),
    Endpoint(("/lora-adapters",), set_adapters, None, "POST", reads=LoraScales),
]
