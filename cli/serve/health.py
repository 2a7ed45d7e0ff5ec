"""The route for the server's health."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from . import errors
from .endpoint import get
from .models.router import ModelRouter


async def health(router: ModelRouter, _: Request) -> Response:
    """200 while requests are answered, also while all models are asleep; 503 afterwards."""
    if router.is_open:
        return JSONResponse({"status": "ok"})
    return errors.response(503, "the model no longer answers")


ENDPOINTS = [get("/health", "/v1/health", handler=health, of_server=True)]
