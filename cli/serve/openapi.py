"""GET /openapi.json: description of all routes, made from the schemas that check their bodies."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from . import errors
from .endpoint import Endpoint, get
from .guards import OPEN_PATHS
from .models.router import ModelRouter

_TEXT, _NULL = {"type": "string"}, {"type": "null"}


_ERRORS = {shape.name: shape.schema for shape in (errors.OPENAIS, *errors.SHAPES.values())}
_WHY = {
    400: "A field is wrong or not supported; the message names it.",
    401: "The key is missing or wrong.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    429: "As many requests wait as may; Retry-After says in how many seconds to try again.",
    500: "An error inside the server.",
    501: "The server was started without an option that this route needs.",
    503: "The server ends, or the model no longer answers.",
    504: "The answer took longer than it may.",
    507: "The disk, or the part of it that the server may use, is full.",
}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document(endpoints: Sequence[Endpoint], *, with_keys: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document. with_keys: requests need an API key."""
    schemas = {schema for each in endpoints if (schema := each.schema or each.reads) is not None}
    ordered: list[Any] = sorted(schemas, key=lambda schema: (schema.__module__, schema.__name__))
    references, definitions = models_json_schema(
        [(schema, "validation") for schema in ordered], ref_template="#/components/schemas/{model}"
    )
    for definition in definitions["$defs"].values():
        _allow_null(definition)
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        if each.is_refusal:
            continue
        schema = each.schema or each.reads
        body: Any = references[schema, "validation"] if schema is not None else None
        if each.reads is not None:
            body = {"anyOf": [body, {"description": "Where it is not needed it is not looked at."}]}
        path = each.paths[0]
        paths.setdefault(_template(path), {})[each.method.lower()] = _operation(each, path, body, with_keys=with_keys)
    components: dict[str, Any] = {"schemas": {**definitions["$defs"], **_ERRORS}}
    more: dict[str, Any] = {}
    if with_keys:
        components["securitySchemes"] = _KEYS
        more["security"] = [{name: []} for name in _KEYS]
    info = {"title": "hybrid", "version": version("hybrid-lm"), "description": "A language model over HTTP."}
    return {"openapi": "3.1.0", "info": info, **more, "paths": paths, "components": components}


def _allow_null(definition: dict[str, Any]) -> None:
    """Allows null for each field that may be absent."""
    for name, field in definition.get("properties", {}).items():
        kinds = field.get("anyOf", [])
        may_be_anything = not {"anyOf", "type", "enum", "const", "$ref"} & set(field)
        if name in definition.get("required", ()) or may_be_anything or _NULL in kinds or None in field.get("enum", ()):
            continue
        if kinds:
            kinds.append(_NULL)
            continue
        outside = {key: field[key] for key in ("default", "title", "description") if key in field}
        inside = {key: value for key, value in field.items() if key not in outside}
        definition["properties"][name] = {"anyOf": [inside, _NULL], **outside}


def _template(path: str) -> str:
    """Starlette's path without the types of its parameters."""
    return re.sub(r":\w+}", "}", path)


def _operation(each: Endpoint, path: str, body: Any, *, with_keys: bool) -> dict[str, Any]:
    room = each.handler.__module__.rpartition("cli.serve.")[2].partition(".")[0].replace("_", "-")
    told: dict[str, Any] = {
        "summary": (each.handler.__doc__ or "").partition("\n")[0],
        "operationId": each.handler.__name__,
        "tags": [room],
        "responses": {"200": _answer(each), **_failures(each, path, with_keys=with_keys)},
    }
    if len(each.paths) > 1:
        told["description"] = f"The same at {', '.join(map(_template, each.paths[1:]))}."
    if body is not None:
        told["requestBody"] = {
            "required": each.schema is not None,
            "content": {"application/json": {"schema": body}},
        }
    names = re.findall(r"{(\w+)", path)
    told["parameters"] = [
        *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names),
        *({"name": name, "in": "query", **more} for name, more in each.query.items()),
    ]
    if with_keys and path in OPEN_PATHS:
        told["security"] = []
    return told


def _answer(each: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {each.media: {}}
    description = "The answer."
    if each.schema is not None and "stream" in each.schema.model_fields:
        content[each.streams] = {}
        described = {"text/event-stream": "server-sent events", "application/x-ndjson": "lines of JSON"}[each.streams]
        description = f"The answer; with stream = true as {described}, while it is generated."
    return {"description": description, "content": content}


def _failures(each: Endpoint, path: str, *, with_keys: bool) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{errors.shape_of(path).name}"}}}
    possible = {500, 503, *each.failures}
    if each.schema is not None:
        possible |= {400, 408, 413, 429, 501, 504}
    if each.query or not each.of_encoders:
        possible.add(400)
    if "{" in path:
        possible.add(404)
        possible |= {507} if each.method == "POST" else set()
    if with_keys and path not in OPEN_PATHS:
        possible.add(401)
    return {str(status): {"description": _WHY[status], "content": content} for status in sorted(possible)}


async def openapi(router: ModelRouter, request: Request) -> Response:
    """Returns the document."""
    return JSONResponse(document(request.app.state.endpoints, with_keys=bool(router.settings.keys)))


ENDPOINTS = [get("/openapi.json", handler=openapi, of_server=True)]
