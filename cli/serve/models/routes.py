"""Lists of the server's models, and the routes that load and unload one, as llama-server's router has them."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..endpoint import get, post
from ..strict import Strict
from .entry import ModelEntry, State
from .router import ModelRouter

COMPLETION, MULTIMODAL, EMBEDDING = "completion", "multimodal", "embedding"  # llama-server's words
# llama-server's words for the states
VALUES = {State.ASLEEP: "unloaded", State.LOADING: "loading", State.LOADED: "loaded", State.FAILED: "unloaded"}


class NamedModel(Strict):
    """A body that names a model."""

    model: str


def _capabilities(*, is_encoder: bool, sees: bool) -> list[str]:
    """What a model can do, in llama-server's words."""
    if is_encoder:
        return [EMBEDDING]
    return [COMPLETION, MULTIMODAL] if sees else [COMPLETION]


def _entry(router: ModelRouter, entry: ModelEntry) -> dict[str, Any]:
    served, facts = entry.served, entry.facts
    if served is not None:
        model, is_encoder, sees = served.model, served.is_encoder, served.sees
        meta = {"n_vocab": model.n_vocab, "n_ctx": model.n_ctx, "n_ctx_train": model.n_ctx_train}
        meta |= {"n_params": model.n_params, "size": model.n_bytes}
        more = {} if is_encoder else {"chat_template": served.maker.template is not None}
    else:
        is_encoder, sees, more = facts.is_encoder, facts.sees, {}
        meta = {"n_vocab": facts.n_vocab, "n_ctx_train": facts.n_ctx_train}
        meta |= {"n_params": facts.n_params, "size": facts.nbytes}
    why = entry.why or facts.trouble if entry.state in (State.ASLEEP, State.FAILED) else ""
    status: dict[str, Any] = {"value": VALUES[entry.state]}
    if why:
        status |= {"failed": True, "why": why}
    return {
        "id": entry.name,
        "aliases": list(entry.aliases),
        "object": "model",
        "created": int(router.started),
        "owned_by": "hybrid",
        "capabilities": _capabilities(is_encoder=is_encoder, sees=sees),
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["embeddings"] if is_encoder else ["text"],
        },
        "meta": meta,
        "state": State.FAILED if why else entry.state,
        "status": status,
        "pinned": entry.pinned,
        "requests": entry.n_users + len(entry.waiting),
        "memory": entry.measured,
        **more,
    }


def _adapter(router: ModelRouter, entry: ModelEntry, name: str) -> dict[str, Any]:
    """An adapter, as a model whose parent is the base: vLLM's words."""
    served = entry.served
    number = None if served is None else served.adapters.named(name)
    root = {} if served is None or number is None else {"root": served.adapters.file_name(number)}
    return {**_entry(router, entry), "id": name, "aliases": [], "parent": entry.name, **root}


async def models(router: ModelRouter, request: Request) -> Response:
    """A list of all models and their adapters. `reload`: looks for new files first."""
    if request.query_params.get("reload"):
        router.rescan()
    listed, known = list[dict[str, Any]](), list[dict[str, Any]]()
    for entry in router.entries:
        told = _entry(router, entry)
        listed += [told, *(_adapter(router, entry, name) for name in entry.adapters)]
        known.append({"name": entry.name, "model": entry.name, "type": "model", "capabilities": told["capabilities"]})
    return JSONResponse({"object": "list", "data": listed, "models": known})


async def model(router: ModelRouter, request: Request) -> Response:
    """One model or adapter, by its name."""
    name = request.path_params["name"]
    entry = router.named(name)
    adapter = (entry.canonical(name) or "").removeprefix(f"{entry.name}:")
    found = _adapter(router, entry, adapter) if adapter in entry.adapters else _entry(router, entry)
    return JSONResponse(found)


async def load(router: ModelRouter, _: Request, body: NamedModel) -> Response:
    """Begins to load a model; the list says when it is loaded."""
    entry = router.named(body.model)
    if entry.state is not State.LOADED:
        router.begin_load(entry, asked=True)
    return JSONResponse({"success": True, "model": entry.name, "state": entry.state})


async def unload(router: ModelRouter, _: Request, body: NamedModel) -> Response:
    """Unloads a model after the requests that use it have ended."""
    entry = router.named(body.model)
    await router.unload(entry)
    return JSONResponse({"success": True, "model": entry.name, "state": entry.state})


RELOAD = {"reload": {"schema": {"type": "string"}}}
ENDPOINTS = [
    get("/v1/models", "/models", handler=models, of_server=True, query=RELOAD),
    get("/v1/models/{name:path}", handler=model, of_server=True, failures=(404,)),
    post("/models/load", handler=load, schema=NamedModel, of_server=True, failures=(404,)),
    post("/models/unload", handler=unload, schema=NamedModel, of_server=True, failures=(404,)),
]
