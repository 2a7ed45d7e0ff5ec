"""A route: where it is, what its body may hold, and what answers it. Each module of a route lists its own."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import errors
from .errors import RequestError
from .fail_fast import loads
from .served import Served

SMALL_BODY = 64 << 10


@dataclass(frozen=True)
class Endpoint:
    """paths    that mean the same, the one that is documented first
    handler     called with (served, request), and the body where there is a schema; what it raises becomes a response
    schema      of the body, which is JSON; None: a GET without one
    error       the response to what was raised, in the shape of this API
    """

    paths: tuple[str, ...]
    handler: Callable[..., Awaitable[Response]]
    schema: type[BaseModel] | None = None
    method: str = "GET"
    error: Callable[[Exception], Response] = errors.of_exception

    async def __call__(self, request: Request) -> Response:
        """The response to a request; a bug of ours is raised."""
        served: Served = request.app.state.served
        try:
            if self.schema is None:
                return await self.handler(served, request)
            return await self.handler(served, request, await self._body(self.schema, request))
        except Exception as error:
            response = self.error(error)
            if response.status_code == 500 and not isinstance(error, RequestError):
                raise
            return response

    async def _body(self, schema: type[BaseModel], request: Request) -> BaseModel:
        """RequestError, ValidationError: it is not what the schema says."""
        raw = await request.body()
        if len(raw) <= SMALL_BODY:
            return schema.model_validate(loads(raw))
        return await run_in_threadpool(lambda: schema.model_validate(loads(raw)))  # streams go on meanwhile


def get(*paths: str, handler: Callable[..., Awaitable[Response]]) -> Endpoint:
    """Of something to read."""
    return Endpoint(paths, handler)


def post(*paths: str, handler: Callable[..., Awaitable[Response]], schema: type[BaseModel]) -> Endpoint:
    """Of something to do."""
    return Endpoint(paths, handler, schema, "POST")


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """What Starlette is given."""
    # a bound method, since Starlette takes other callables for applications of their own
    return [Route(path, each.__call__, methods=[each.method]) for each in endpoints for path in each.paths]


async def json_of(request: Request) -> object:
    """The body. RequestError: it is not JSON."""
    return loads(await request.body())


def client_of(request: Request) -> object:
    """Whose request it is, for fairness."""
    return request.headers.get("authorization") or (request.client.host if request.client else None)
