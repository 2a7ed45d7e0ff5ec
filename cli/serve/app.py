"""The application that uvicorn runs: all routes, and the guards in front of them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from . import cached_conversations, errors, health, metrics, openapi
from .anthropic import messages
from .endpoint import routes
from .guards import Bodies, Ending, Heads, Keys, Pages, most_body
from .llama_server import adapters, completion, embedding, infill, props, slots, templates, tokens
from .models import routes as model_routes
from .models.router import ModelRouter
from .ollama import chat as ollama_chat
from .ollama import embed, generate, models, status
from .openai import chat, completions, embeddings, responses, responses_by_id
from .page import costs
from .page.routes import is_page, page_routes
from .ranking import classify, rerank, score
from .request_log import Logged
from .tei import embed as tei_embed

MODULES = (
    health, model_routes, metrics, cached_conversations, openapi,
    chat, completions, responses, responses_by_id, embeddings,
    messages,
    completion, infill, adapters, props, templates, tokens, slots, embedding,
    ollama_chat, generate, embed, models, status,
    rerank, score, classify, tei_embed,
    costs,
)  # fmt: skip
ENDPOINTS = [each for module in MODULES for each in module.ENDPOINTS]
METHODS = sorted({each.method for each in ENDPOINTS})


def create_app(router: ModelRouter) -> Starlette:
    """The ASGI application for the models of a router."""
    settings = router.settings
    middleware = [Middleware(Ending, router=router), Middleware(Heads, most=settings.bounds.most_head)]
    if settings.log is not None:
        middleware.insert(0, Middleware(Logged, log=settings.log))
    if settings.cors:
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=settings.cors, allow_headers=["*"], allow_methods=METHODS)
        )
    if not settings.keys:
        middleware.append(Middleware(Pages, hosts=settings.hosts, allowed=settings.cors))
    middleware += [
        Middleware(Keys, keys=settings.keys, is_open=is_page if settings.page else None, shared=settings.shared),
        Middleware(Bodies, seconds=settings.bounds.body_seconds, most=most_body(router)),
    ]
    app = Starlette(
        routes=[*routes(ENDPOINTS), Route("/", status.status), *(page_routes() if settings.page else ())],
        middleware=middleware,
        exception_handlers={Exception: errors.handle, HTTPException: errors.handle},
    )
    app.state.router, app.state.endpoints = router, ENDPOINTS
    router.on_sleep = props.keep
    return app
