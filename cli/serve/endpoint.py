"""Endpoints: path, schema of the body, handler. Each module of routes lists its own."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import errors
from .client import asked_by
from .errors import RequestError
from .fail_fast import loads
from .models.entry import ModelEntry
from .models.router import ModelRouter
from .request_log import record_of
from .served import NAMED, SERVED, Served
from .strict import Strict
from .time_limit import time_limit

SMALL_BODY = 64 << 10
AUTOLOAD = "autoload"  # in a query, llama-server's: false: the request loads no model


@dataclass(frozen=True)
class Endpoint:
    """A route of the API.

    paths       equivalent paths; the first one is documented
    handler     called with (served, request), and the body if there is a schema; its exceptions become error responses
    of_server   the handler is called with the router of all models instead of one model
    only_looks  a request loads no model: the handler is called with the entry of a model that is not loaded
    schema      of the JSON body; None: a GET without a body
    of_encoders whether the route exists for encoders also
    query       parameters of the query by name, as in OpenAPI
    reads       schema of a body that the handler reads itself
    failures    statuses besides the usual ones
    asleep      called with (router, request) before a model is loaded: an answer that needs none, or None
    is_refusal  the route exists only to say that it is not supported, and is not documented
    media       media type of the answer, for the OpenAPI document
    streams     media type of an answer that is streamed, for the same
    """

    paths: tuple[str, ...]
    handler: Callable[..., Awaitable[Response]]
    schema: type[Strict] | None = None
    method: str = "GET"
    of_encoders: bool = False
    of_server: bool = False
    only_looks: bool = False
    media: str = "application/json"
    streams: str = "text/event-stream"
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads: type[BaseModel] | None = None
    failures: tuple[int, ...] = ()
    asleep: Callable[[ModelRouter, Request], Response | None] | None = None
    is_refusal: bool = False

    async def __call__(self, request: Request) -> Response:
        """The response to a request. Raises only for bugs of ours."""
        router: ModelRouter = request.app.state.router
        try:
            if self.asleep is not None and (told := self.asleep(router, request)) is not None:
                return told
            body = None if self.schema is None else await self._body(self.schema, request)
            asked = router if self.of_server else await self._model(router, request, body)
            if body is None:
                return await self.handler(asked, request)
            try:
                return await self.handler(asked, request, body)
            finally:  # the handler may add warnings
                record_of(request.scope).notes = router.told.new(asked_by(request).client, body.warnings)
        except Exception as error:
            response = errors.for_path(self.paths[0], errors.of_exception(error))
            if response.status_code == 500 and not isinstance(error, RequestError):
                raise
            return response

    async def _model(self, router: ModelRouter, request: Request, body: Strict | None) -> Served | ModelEntry:
        """The model that the body or the query names, loaded; its entry, if the request only looks and it is not."""
        async with time_limit(request, router.settings.timeout).kept():
            name = named(request, body)
            if self.only_looks and not router.is_ready(entry := router.find(name)):
                return entry
            loads = request.query_params.get(AUTOLOAD) not in ("false", "0")
            asks = self.only_looks or request.method in ("GET", "HEAD")  # a request that asks keeps no model awake
            served = await router.use(request, name, loads=loads, counts=not asks)
        canonical = router.canonical(served, name)
        request.scope[SERVED], request.scope[NAMED] = served, canonical
        if canonical != name and served.adapters.names and body is not None:
            setattr(body, "model", canonical)  # noqa: B010  # answers name the adapter
        if len(router.entries) > 1:
            record_of(request.scope).model = served.name
        if served.is_encoder and not self.of_encoders:
            raise RequestError(f"{served.name} is an encoder, which generates no text: use /v1/embeddings")
        return served

    async def _body(self, schema: type[Strict], request: Request) -> Strict:
        """The checked body. RequestError, ValidationError: the body does not match the schema."""
        raw = await request.body()

        def checked() -> Strict:
            body = schema.model_validate(loads(raw))
            _ = body.warnings  # computed here, in the thread: a large body would block the event loop
            return body

        return (
            checked() if len(raw) <= SMALL_BODY else await run_in_threadpool(checked)
        )  # in a thread, so that streams continue


def named(request: Request, body: Strict | None) -> str | None:
    """The name of the model in the body or the query; None: the request names none."""
    name = getattr(body, "model", None) or request.query_params.get("model")
    return name if isinstance(name, str) else None


def get(*paths: str, handler: Callable[..., Awaitable[Response]], **more: Any) -> Endpoint:
    """An endpoint for GET; more: fields of Endpoint."""
    return Endpoint(paths, handler, **more)


def post(*paths: str, handler: Callable[..., Awaitable[Response]], schema: type[Strict], **more: Any) -> Endpoint:
    """An endpoint for POST; more: fields of Endpoint."""
    return Endpoint(paths, handler, schema, "POST", **more)


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Starlette's routes: one per path, so that Starlette knows all of its methods."""
    found: dict[str, dict[str, Endpoint]] = {}
    for each in endpoints:
        for path in each.paths:
            found.setdefault(path, {})[each.method] = each
    return [Route(path, _by_method(methods), methods=list(methods)) for path, methods in found.items()]


def _by_method(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return call


async def json_of(request: Request) -> object:
    """The JSON value of a request's body. RequestError: it is not JSON."""
    return loads(await request.body())
