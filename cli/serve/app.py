"""The application that uvicorn runs: all routes, and the guards in front of them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from . import cached_conversations, errors, health, metrics, openapi
from .anthropic import messages
from .endpoint import routes
from .guards import Bodies, Ending, Heads, Keys, Pages, most_body
from .llama_server import adapters, completion, embedding, props, slots, templates, tokens
from .openai import chat, completions, embeddings, responses
from .page import costs
from .page.routes import is_page, page_routes
from .request_log import Logged
from .served import Served

MODULES = (
    health, metrics, cached_conversations, openapi,
    chat, completions, responses, embeddings,
    messages,
    completion, adapters, props, templates, tokens, slots, embedding,
    costs,
)  # fmt: skip
ENDPOINTS = [each for module in MODULES for each in module.ENDPOINTS]
METHODS = sorted({each.method for each in ENDPOINTS})


def create_app(served: Served) -> Starlette:
    """The ASGI application for one model."""
    middleware = [Middleware(Ending, served=served), Middleware(Heads, most=served.bounds.most_head)]
    if served.log is not None:
        middleware.insert(0, Middleware(Logged, log=served.log))
    if served.cors:
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=served.cors, allow_headers=["*"], allow_methods=METHODS)
        )
    if not served.keys:
        middleware.append(Middleware(Pages, hosts=served.hosts, allowed=served.cors))
    middleware += [
        Middleware(Keys, keys=served.keys, is_open=is_page if served.page else None, shared=served.shared),
        Middleware(Bodies, seconds=served.bounds.body_seconds, most=most_body(served)),
    ]
    app = Starlette(
        routes=[*routes(ENDPOINTS), *(page_routes() if served.page else ())],
        middleware=middleware,
        exception_handlers={Exception: errors.handle, HTTPException: errors.handle},
    )
    app.state.served, app.state.endpoints = served, ENDPOINTS
    return app
