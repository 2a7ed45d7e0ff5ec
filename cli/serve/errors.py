"""Errors in the shape of each API; OpenAI's is {"error": {"message", "type", "param", "code"}}.

No error shows a path of this machine or a traceback. A new API is a row of `SHAPES`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from hybrid.infer.answers.batch.job import PromptTooLongError
from hybrid.infer.answers.batch.service import BusyError, ClosedError
from hybrid.infer.answers.constraints.forms import TooManyFormsError
from hybrid.quant.ggml.errors import HybridError, PictureError, TemplateError, UsageError, shown

LONGEST_PATH = 80  # characters of a path that a message shows
# routes of OpenAI's servers -> ours for the same purpose
OTHERS = {
    "/v1/engines": "GET /v1/models",
    "/v1": "GET /v1/models, POST /v1/chat/completions and others; GET /openapi.json lists all routes",
}
RETRY_SECONDS = 5  # value of Retry-After when the queue is full


class RequestError(HybridError):
    """A request that cannot be answered, with the HTTP status and the field that is wrong."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.status = param, status


UNREAD = (408, 413)  # the body may be unread: the connection closes after the answer

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def response(status: int, message: str, *, param: str | None = None, **headers: str) -> JSONResponse:
    """An error response in OpenAI's shape."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": param, "code": status}
    return JSONResponse({"error": error}, status, {"Connection": "close", **headers} if status in UNREAD else headers)


def _too_long(error: PromptTooLongError) -> JSONResponse:
    """The error for a prompt that is too long, in llama-server's words: clients match on them."""
    message = f"the prompt of {error.n_prompt} tokens exceeds the available context size of {error.n_ctx} tokens"
    numbers = {"n_prompt_tokens": error.n_prompt, "n_ctx": error.n_ctx}
    kind = {"type": "exceed_context_size_error", "param": None, "code": 400}
    return JSONResponse({"error": {"message": message, **kind, **numbers}}, 400)


def of_exception(error: Exception) -> JSONResponse:
    """The error response for an exception. A bug of ours becomes a 500 without details."""
    if isinstance(error, RequestError):
        return response(error.status, str(error), param=error.param)
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, BusyError | TooManyFormsError):
        return response(429, str(error), **{"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, ClosedError):
        return response(503, "the model no longer answers")
    if isinstance(error, PromptTooLongError):
        return _too_long(error)
    if isinstance(error, UsageError | TemplateError | PictureError):
        return response(400, str(error))
    if isinstance(error, ClientDisconnect):
        return response(499, "the client has gone")
    if isinstance(error, HTTPException):
        return response(error.status_code, str(error.detail), **error.headers or {})
    return response(500, "an error inside the server")


# names of alternatives that pydantic adds to the path of a field with several types; the last are schemas
_KIND_OF_VALUE = re.compile(
    r"(str|int|float|bool)$|(list|dict|literal)\[|constrained-|function-|[A-Z]\w+(Block|Call|Choice|Item|Object|Part|Tool)$"
)


def _invalid(error: ValidationError) -> JSONResponse:
    """The error for the first field that does not match the schema."""
    # for a field with several types: the error of the alternative that matched furthest
    wrong = error.errors(include_url=False)
    first: dict[str, Any] = dict(max(wrong, key=lambda one: len(one["loc"])))
    path = [str(part) for part in first["loc"] if not _KIND_OF_VALUE.match(str(part))]
    if str(first["type"]).startswith("union_tag"):
        path.append("type")
    param = ".".join(path) or None
    if first["type"] == "union_tag_invalid":
        tags = first["ctx"]
        return response(400, f"{param}: expected {tags['expected_tags']}; found {tags['tag'][:80]!r}", param=param)
    found = first.get("input")
    shown = repr(found) if isinstance(found, str | int | float | bool | None) else type(found).__name__
    return response(400, f"{param or 'the body'}: {first['msg']}; found {shown[:80]}", param=param)


@dataclass(frozen=True)
class ErrorShape:
    """How an API writes an error.

    name    of its schema in the OpenAPI document
    schema  of the body, as JSON schema
    body    makes the body from a status and OpenAI's error object
    """

    name: str
    schema: Mapping[str, Any]
    body: Callable[[int, Mapping[str, Any]], Mapping[str, Any]]


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT = {"type": "string"}
_ANTHROPICS = {403: "permission_error", 413: "request_too_large"}  # types of error that only Anthropic has


def _anthropics(status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = _ANTHROPICS.get(status, _KINDS.get(status, "invalid_request_error")) if status < 500 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": error["message"]}}


OPENAIS = ErrorShape(
    "Error",
    _object(error=_object(message=_TEXT, type=_TEXT, param={"type": ["string", "null"]}, code={"type": "integer"})),
    lambda status, error: {"error": error},
)
SHAPES = {  # prefix of a path -> shape; other paths have OpenAI's
    "/v1/messages": ErrorShape(
        "AnthropicError", _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)), _anthropics
    ),
    "/api/": ErrorShape("OllamaError", _object(error=_TEXT), lambda _, error: {"error": error["message"]}),
}


def shape_of(path: str) -> ErrorShape:
    """The shape that clients of a path expect."""
    return next((shape for beginning, shape in SHAPES.items() if path.startswith(beginning)), OPENAIS)


def for_path(path: str, given: JSONResponse) -> JSONResponse:
    """An error that `response` or `of_exception` made, in the shape that clients of this path expect."""
    shape = shape_of(path)
    if shape is OPENAIS:
        return given
    body = shape.body(given.status_code, json.loads(bytes(given.body))["error"])
    headers = {name: value for name, value in given.headers.items() if name not in ("content-length", "content-type")}
    return JSONResponse(body, given.status_code, headers)


def unknown_route(path: str, known: Sequence[str]) -> str:
    """The message for a path that is no route: it names the route for the same purpose, or the nearest of `known`."""
    use = OTHERS.get(path.rstrip("/"))
    if use is None:
        import difflib  # slow to import

        use = next(iter(difflib.get_close_matches(path[:LONGEST_PATH], known, 1, 0.8)), None)
    where = f"Use {use}." if use is not None else "GET /openapi.json lists all routes."
    return f"there is no route {shown(path, LONGEST_PATH)}. {where}"


async def handle(request: Request, error: Exception) -> JSONResponse:
    """Starlette's exception handler. The response tells the client that uvicorn closes the connection."""
    if isinstance(error, HTTPException) and error.status_code == 404:  # Starlette's, for an unknown route
        known = [path for each in request.app.state.endpoints for path in each.paths]
        error = RequestError(unknown_route(request.url.path, known), status=404)
        return for_path(request.url.path, of_exception(error))
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        told = f"{request.url.path} takes {allowed}; found {request.method}"
        error = HTTPException(405, shown(told, LONGEST_PATH), error.headers)
    response = for_path(request.url.path, of_exception(error))
    if not isinstance(error, HTTPException):
        response.headers["Connection"] = "close"
    return response
