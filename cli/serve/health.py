"""Routes for the server's health and its model."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from . import errors
from .endpoint import get
from .served import Served


async def health(served: Served, _: Request) -> Response:
    """200 while requests are answered, 503 afterwards."""
    if served.service.is_open:
        return JSONResponse({"status": "ok"})
    return errors.response(503, "the model no longer answers")


def _model_entry(served: Served) -> dict[str, Any]:
    model = served.model
    return {
        "id": served.name,
        "object": "model",
        "created": int(served.started),
        "owned_by": "hybrid",
        "meta": {
            "n_vocab": model.n_vocab,
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_params": model.n_params,
            "size": model.n_bytes,
        },
    }


async def models(served: Served, _: Request) -> Response:
    """A list with the one model that is served."""
    return JSONResponse({"object": "list", "data": [_model_entry(served)]})


async def model(served: Served, request: Request) -> Response:
    """The model, by its name."""
    if request.path_params["name"] != served.name:
        return errors.response(404, f"there is no model of this name here, only {served.name}", param="model")
    return JSONResponse(_model_entry(served))


ENDPOINTS = [
    get("/health", "/v1/health", handler=health, of_encoders=True),
    get("/v1/models", "/models", handler=models, of_encoders=True),
    get("/v1/models/{name:path}", handler=model, of_encoders=True),
]
