"""Routes for the server's health and its model."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from . import errors
from .endpoint import get
from .served import Served

COMPLETION, MULTIMODAL, EMBEDDING = "completion", "multimodal", "embedding"  # llama-server's words


def _capabilities(served: Served) -> list[str]:
    """What the model can do, in llama-server's words."""
    if served.is_encoder:
        return [EMBEDDING]
    return [COMPLETION, MULTIMODAL] if served.sees else [COMPLETION]


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
        "capabilities": _capabilities(served),
        "architecture": {
            "input_modalities": ["text", "image"] if served.sees else ["text"],
            "output_modalities": ["embeddings"] if served.is_encoder else ["text"],
        },
        "meta": {
            "n_vocab": model.n_vocab,
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_params": model.n_params,
            "size": model.n_bytes,
        },
    }


def _adapter_entry(served: Served, number: int) -> dict[str, Any]:
    """An adapter, as a model whose parent is the base: vLLM's words."""
    name, file = served.adapters.names[number].name, served.adapters.file_name(number)
    return {**_model_entry(served), "id": name, "root": file, "parent": served.name}


async def models(served: Served, _: Request) -> Response:
    """A list with the model that is served, and its adapters."""
    known = {"name": served.name, "model": served.name, "type": "model", "capabilities": _capabilities(served)}
    adapters = [_adapter_entry(served, number) for number in range(len(served.adapters.names))]
    return JSONResponse({"object": "list", "data": [_model_entry(served), *adapters], "models": [known]})


async def model(served: Served, request: Request) -> Response:
    """The model, or an adapter, by its name."""
    asked = request.path_params["name"]
    if (number := served.adapters.named(asked)) is not None:
        return JSONResponse(_adapter_entry(served, number))
    if asked != served.name:
        return errors.response(404, f"there is no model of this name here, only {served.name}", param="model")
    return JSONResponse(_model_entry(served))


ENDPOINTS = [
    get("/health", "/v1/health", handler=health, of_encoders=True),
    get("/v1/models", "/models", handler=models, of_encoders=True),
    get("/v1/models/{name:path}", handler=model, of_encoders=True),
]
