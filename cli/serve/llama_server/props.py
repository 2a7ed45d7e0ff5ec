"""GET /props, /version and /slots, and the routes of llama-server that answer 501 here."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.faults import SidePath
from hybrid.infer.text.chat_template import special_tokens

from .. import errors
from ..endpoint import get
from ..models.entry import ModelEntry
from ..models.router import ModelRouter
from ..pictures.prompts import MARKER
from ..served import Served
from .answer import sampling_settings

KEEPING = SidePath("the /props of sleeping models")


def package_version() -> str:
    """The version of this package; "0" if it is not installed."""
    try:
        return version("hybrid-lm")
    except PackageNotFoundError:
        return "0"


BUILD = f"hybrid-{package_version()}"


async def props(served: Served, request: Request) -> Response:
    """The model, its templates, and default settings of answers. With several models and without a name also what
    llama-server's router says of itself."""
    return JSONResponse({**_props(served), "is_sleeping": False, **_router(request.app.state.router, request)})


def asleep(router: ModelRouter, request: Request) -> Response | None:
    """/props of a model that sleeps, which is not loaded for that; None: it has to be loaded."""
    entry, about = router.find(request.query_params.get("model")), _router(router, request)
    if entry.served is None and entry.props is not None:
        return JSONResponse({**entry.props, "is_sleeping": True, **about})
    is_asleep = entry.served is None
    if about and (entry.facts.is_encoder or (is_asleep and not router.autoload)):  # it says little, but no error
        path = "" if entry.path is None else entry.path.name
        settings = {"params": {}, "n_ctx": 0}  # as llama-server's router says
        brief = {"default_generation_settings": settings, "model_alias": entry.name, "model_path": path}
        return JSONResponse({**brief, "build_info": BUILD, "is_sleeping": is_asleep, **about})
    return None


def keep(entry: ModelEntry, served: Served) -> None:
    """Keeps what /props says of a model that falls asleep."""
    if not served.is_encoder and served.service.is_open:
        entry.props = KEEPING.run(lambda: _props(served), lambda: None)


def _router(router: ModelRouter, request: Request) -> dict[str, Any]:
    """What the server of several models says of itself, if the request names none of them."""
    if router.only or request.query_params.get("model"):
        return {}
    return {"role": "router", "max_instances": router.most or 0, "models_autoload": router.autoload}


def _props(served: Served) -> dict[str, Any]:
    model, maker = served.answers.model, served.maker
    params = maker.sampling
    n_predict = -1 if maker.defaults.n_predict is None else maker.defaults.n_predict
    settings = {**sampling_settings(params, params.seed), "n_predict": n_predict, "max_tokens": n_predict}
    tokens = special_tokens(model.tokenizer)
    return {
        "default_generation_settings": {"params": settings, "n_ctx": model.n_ctx},
        "total_slots": served.answers.batcher.n_parallel,
        "model_alias": served.name,
        "model_ftype": model.file_type,
        "model_path": model.path.name,  # the name only: clients do not learn folders
        "modalities": {"vision": served.sees, "video": False, "audio": False},
        **({"media_marker": MARKER} if served.sees else {}),
        "endpoint_slots": served.settings.slots,
        "endpoint_props": False,
        "endpoint_metrics": True,
        **_templates(served),
        "bos_token": tokens.get("bos_token", ""),
        "eos_token": tokens.get("eos_token", ""),
        "build_info": BUILD,
        "stages": _stages(model),
    }


def _stages(model: LoadedModel) -> list[dict[str, Any]]:
    """First and last block of each stage, for a model divided by --stages."""
    return [{"blocks": [blocks.start, blocks.stop - 1]} for blocks in model.engine.stages]


def _templates(served: Served) -> dict[str, Any]:
    """The model's chat template and its capabilities, in llama-server's words."""
    template = served.maker.template
    if template is None:
        return {"chat_template": "", "chat_template_caps": {}}
    known = served.maker.dialect.format
    several = known.calls.between is not None or bool(known.calls.again)
    caps = {
        "supports_tools": known.takes_tools,
        "supports_tool_calls": known.takes_calls,
        "supports_parallel_tool_calls": several,
        "supports_object_arguments": known.takes_calls and not known.calls.as_text,
        "supports_thinking": known.thoughts is not None,
        "supports_preserve_reasoning": known.thoughts is not None and known.thoughts.field is not None,
    }
    other = served.model.gguf.metadata.get("tokenizer.chat_template.tool_use")
    more = {"chat_template_tool_use": other} if isinstance(other, str) else {}
    return {"chat_template": template.source, "chat_template_caps": caps, **more}


async def about_version(_served: Served, _: Request) -> Response:
    """The version of this package."""
    return JSONResponse({"version": package_version()})


async def slots(served: Served, request: Request) -> Response:
    """The slots for answers, and the job of each."""
    if not served.settings.slots:
        return errors.response(501, "this server does not show its slots (--no-slots)")
    running = {job.place: job for job in served.answers.running}
    n_parallel = served.answers.batcher.n_parallel
    if request.query_params.get("fail_on_no_slot") and len(running) >= n_parallel:
        return errors.response(503, "no slot is free")
    owner = served.client(request).owner
    return JSONResponse([_slot(served, index, running.get(index), owner) for index in range(n_parallel)])


def _slot(served: Served, index: int, job: Job | None, owner: bytes) -> dict[str, Any]:
    """Figures of a slot. Only the owner also sees the settings, which may contain texts."""
    slot = {"id": index, "n_ctx": served.model.n_ctx, "speculative": False, "is_processing": job is not None}
    if job is None:
        return slot
    result, drawing = job.result, job.drawing
    left = drawing.left
    settings = sampling_settings(drawing.sampler.params, drawing.sampler.seed) if job.owner == owner else {}
    return {
        **slot,
        "n_prompt_tokens": len(job.ids),
        "n_prompt_tokens_processed": result.prompt_tokens,
        "n_prompt_tokens_cache": job.n_known,
        "params": {
            **settings,
            "n_predict": drawing.max_tokens,
            "max_tokens": drawing.max_tokens,
        },
        "next_token": [
            {
                "has_next_token": drawing.ended is None,
                "has_new_line": "\n" in result.text,
                "n_remain": -1 if left is None else left,
                "n_decoded": len(result.ids),
            }
        ],
    }


ENDPOINTS = [
    get("/props", handler=props, query={"model": {"schema": {"type": "string"}}}, asleep=asleep),
    get("/version", handler=about_version),
    get("/slots", handler=slots),
]
