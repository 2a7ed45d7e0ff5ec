"""A route: where it is, what its body may hold, and what answers it. Each module of a route lists its own."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import errors
from .client import asked_by
from .errors import RequestError
from .fail_fast import loads
from .request_log import record_of
from .served import Served
from .strict import Strict

SMALL_BODY = 64 << 10


@dataclass(frozen=True)
class Endpoint:
    """paths    that mean the same, the one that is documented first
    handler     called with (served, request), and the body where there is a schema; what it raises becomes a response
    schema      of the body, which is JSON; None: a GET without one
    of_encoders whether a model that only makes embeddings has it, too
    query       parameters of the query by name, each as OpenAPI has them
    reads       the schema of a body that the handler reads itself, where there is one
    failures    statuses that other routes have not
    is_refusal  nothing is there: only said so, and left out of the document
    media       what an answer is, for the document that describes the routes
    """

    paths: tuple[str, ...]
    handler: Callable[..., Awaitable[Response]]
    schema: type[Strict] | None = None
    method: str = "GET"
    of_encoders: bool = False
    media: str = "application/json"
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reads: type[Strict] | None = None
    failures: tuple[int, ...] = ()
    is_refusal: bool = False

    async def __call__(self, request: Request) -> Response:
        """The response to a request; a bug of ours is raised."""
        served: Served = request.app.state.served
        try:
            if served.is_encoder and not self.of_encoders:
                raise RequestError(f"{served.name} is an encoder, which draws no text: use /v1/embeddings")
            if self.schema is None:
                return await self.handler(served, request)
            body = await self._body(self.schema, request)
            try:
                return await self.handler(served, request, body)
            finally:  # the handler may add some
                record_of(request.scope).notes = served.told.new(asked_by(request).client, body.warnings)
        except Exception as error:
            response = errors.for_path(self.paths[0], errors.of_exception(error))
            if response.status_code == 500 and not isinstance(error, RequestError):
                raise
            return response

    async def _body(self, schema: type[Strict], request: Request) -> Strict:
        """RequestError, ValidationError: it is not what the schema says."""
        raw = await request.body()

        def checked() -> Strict:
            body = schema.model_validate(loads(raw))
            _ = body.warnings  # found here: the event loop has no time to go through a large body
            return body

        return checked() if len(raw) <= SMALL_BODY else await run_in_threadpool(checked)  # streams go on meanwhile


def get(*paths: str, handler: Callable[..., Awaitable[Response]], **more: Any) -> Endpoint:
    """Of something to read; more: fields of Endpoint."""
    return Endpoint(paths, handler, **more)


def post(*paths: str, handler: Callable[..., Awaitable[Response]], schema: type[Strict], **more: Any) -> Endpoint:
    """Of something to do; more: fields of Endpoint."""
    return Endpoint(paths, handler, schema, "POST", **more)


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """What Starlette is given: one route for a path, so that it knows all of its methods."""
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
    """The body. RequestError: it is not JSON."""
    return loads(await request.body())
