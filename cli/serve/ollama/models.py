"""GET /api/tags, /api/ps and /api/version, POST /api/show: the models in ollama's words."""

import hashlib
import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.evaluate.pooling import stated_pooling
from hybrid.quant.ggml.metadata import StringArray
from hybrid.quant.ggml.reader import GGUFFile

from ..endpoint import get, post
from ..errors import RequestError
from ..fields import Ignored, Strict
from ..in_thread import in_thread
from ..llama_server.props import package_version
from ..models.entry import ModelEntry
from ..models.router import ModelRouter
from ..served import Served

LATEST = ":latest"
API_VERSION = "0.24.0"  # of ollama, with these routes and fields; clients ask for at least some version
NEVER = "2299-12-31T00:00:00Z"  # when a model is unloaded
LONGEST_LIST = 5  # values of a list in model_info, unless `verbose` asks for all
TOLD_ELSEWHERE = ("general.name", "tokenizer.chat_template")
PARAMETERS = "general.sampling."  # keys of a file's own sampling settings


def tagged(name: str) -> str:
    """The name as lists show it: with ollama's tag if it has none."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def name_in_answers(served: Served, asked: str | None) -> str:
    """The model's name as the request has it, like ollama; the listed name if the request has another."""
    return asked if asked is not None and tagged(asked) == tagged(served.name) else tagged(served.name)


def timestamp(seconds: float | None = None) -> str:
    """A time as ollama writes it; None: now."""
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.isoformat().replace("+00:00", "Z")


def human(n: int) -> str:
    """A number of weights: 7.6B, 494.03M."""
    for size, unit, digits in ((10**12, "T", 1), (10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 2)):
        if n >= size:
            return f"{n / size:.{digits}f}{unit}"
    return str(n)


def capabilities(served: Served) -> list[str]:
    """What the model can do, in ollama's words."""
    if served.is_encoder:
        return ["embedding"]
    can = ["completion"]
    if served.maker.template is not None:
        can.append("tools")  # where the template knows none, they are described in the system message
        if served.maker.dialect.format.thoughts is not None:
            can.append("thinking")
    if served.sees:
        can.append("vision")
    if not served.model.tokenizer.vocabulary.fill.missing:
        can.append("insert")
    return can if stated_pooling(served.model.gguf) is None else [*can, "embedding"]


def details(entry: ModelEntry) -> dict[str, Any]:
    """The model's format, family and sizes."""
    facts, served = entry.facts, entry.served
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": human(facts.n_params),
        "quantization_level": facts.file_type,
        "context_length": facts.n_ctx_train if served is None else served.model.n_ctx,
        "embedding_length": facts.n_embd,
    }


def identity(entry: ModelEntry) -> dict[str, Any]:
    """The model in a list."""
    name, facts = tagged(entry.name), entry.facts
    digest = hashlib.sha256(f"{name} {facts.nbytes} {facts.modified}".encode()).hexdigest()
    return {"name": name, "model": name, "size": facts.nbytes, "digest": digest, "details": details(entry)}


def listed(entries: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """The models in the list of models."""
    return [
        {
            **identity(entry),
            "modified_at": timestamp(entry.facts.modified),
            "capabilities": _abilities(entry) if entry.served is None else capabilities(entry.served),
        }
        for entry in entries
    ]


def _abilities(entry: ModelEntry) -> list[str]:
    """What the file of a model says that it can do."""
    if entry.facts.is_encoder:
        return ["embedding"]
    return ["completion", "vision"] if entry.facts.sees else ["completion"]


def running(entries: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """The models in the list of loaded models; they use no GPU."""
    loaded = [(entry, entry.served) for entry in entries if entry.served is not None]
    return [
        {**identity(entry), "expires_at": _end(entry), "size_vram": 0, "context_length": served.model.n_ctx}
        for entry, served in loaded
    ]


def _end(entry: ModelEntry) -> str:
    """When the model is unloaded if no request comes."""
    if entry.idle is None:
        return NEVER
    return timestamp(time.time() + entry.last_used + entry.idle - time.monotonic())


async def tags(router: ModelRouter, request: Request) -> Response:
    """The models of the server."""
    router.rescan()
    return JSONResponse({"models": await in_thread(request, listed, list(router.entries))})


async def ps(router: ModelRouter, request: Request) -> Response:
    """The models that are loaded."""
    return JSONResponse({"models": await in_thread(request, running, list(router.entries))})


async def api_version(_router: ModelRouter, _request: Request) -> Response:
    """The version of ollama whose API this is, and the version of this package."""
    return JSONResponse({"version": API_VERSION, "hybrid": package_version()})


class ShowRequest(Strict):
    """A model by its name. verbose: with the tensors and all values of lists."""

    model: str | None = None
    name: str | None = None
    verbose: bool = False
    system: Ignored
    template: Ignored
    options: Ignored


def shown_model(entry: ModelEntry, served: Served, *, verbose: bool) -> dict[str, Any]:
    """The facts of a model."""
    gguf, maker = served.model.gguf, served.maker
    settings = {key.removeprefix(PARAMETERS): gguf.metadata[key] for key in gguf.metadata if key.startswith(PARAMETERS)}
    told: dict[str, Any] = {
        "license": str(gguf.get("general.license", "")),
        "modelfile": f"# hybrid serve {served.name}\nFROM {served.model.path.name}\n",  # no folder of this machine
        "parameters": "\n".join(f"{name:<30} {value}" for name, value in settings.items()),
        "template": "" if maker.template is None else maker.template.source,
        "details": details(entry),
        # some clients show the base name
        "model_info": {"general.basename": served.name, **_info(gguf, verbose=verbose), **_own_info(served)},
        "capabilities": capabilities(served),
        "modified_at": timestamp(entry.facts.modified),
    }
    if verbose:
        told["tensors"] = [
            {"name": tensor.name, "type": tensor.type.name, "shape": list(tensor.shape)[::-1]}
            for tensor in gguf.tensors.values()
        ]
    return told


def _info(gguf: GGUFFile, *, verbose: bool) -> dict[str, Any]:
    """The metadata of a file. Long lists are empty unless `verbose`."""
    entries = {key: kept.count for key, kept in gguf.metadata.entries.items() if key not in TOLD_ELSEWHERE}
    return {
        key: [] if count > LONGEST_LIST and not verbose else _as_json(gguf.metadata[key])
        for key, count in entries.items()
    }


def _own_info(served: Served) -> dict[str, Any]:
    """Facts of the server. Clients fit their requests to context_length, and cannot have a larger one here."""
    family = served.model.gguf.get("general.architecture", "")
    return {"general.parameter_count": served.model.n_params, f"{family}.context_length": served.model.n_ctx}


def _as_json(value: Any) -> Any:
    """A value of the metadata. A number that JSON lacks is null."""
    if isinstance(value, np.ndarray | StringArray):
        return [_as_json(one) for one in value.tolist()]
    return None if isinstance(value, float) and not math.isfinite(value) else value


async def show(router: ModelRouter, request: Request, body: ShowRequest) -> Response:
    """The facts of a model: its metadata, template and abilities."""
    name = body.model or body.name
    if not name:
        raise RequestError("model is required", param="model")
    entry = router.named(name)
    served = await router.use(request, entry.name)
    return JSONResponse(await in_thread(request, shown_model, entry, served, verbose=body.verbose))


ENDPOINTS = [
    get("/api/tags", handler=tags, of_server=True),
    get("/api/ps", handler=ps, of_server=True),
    get("/api/version", handler=api_version, of_server=True),
    post("/api/show", handler=show, schema=ShowRequest, of_server=True, failures=(404,)),
]
