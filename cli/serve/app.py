"""The routes, and what stands before them: keys, sizes, errors."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybrid.infer.answers.batching import Job
from hybrid.infer.answers.drawing import TextPiece
from hybrid.infer.answers.service import Service

from . import errors
from .answering import Answering
from .errors import RequestError
from .jobs import Maker
from .schemas import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from .shapes import ChatShape, CompletionShape, Shape, usage

MOST_BODY = 32 << 20
PING_SECONDS = 5.0
Schema = TypeVar("Schema", bound=BaseModel)


@dataclass
class Served:
    """What the routes stand on. keys: one of them comes with every request except /health; empty: none is asked for."""

    service: Service
    maker: Maker
    name: str
    keys: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    started: float = field(default_factory=time.time)
    n_read: int = 0
    n_reused: int = 0
    n_drawn: int = 0

    def count(self, jobs: Sequence[Job]) -> None:
        """After answers have ended, for /metrics."""
        self.n_read += sum(job.result.prompt_tokens for job in jobs)
        self.n_reused += sum(job.n_known for job in jobs)
        self.n_drawn += sum(len(job.result.ids) for job in jobs)


def create_app(served: Served) -> Starlette:
    """The application that uvicorn runs."""
    routes = [
        Route("/health", health),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/metrics", metrics),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
    ]
    middleware = [Middleware(_Limits), Middleware(_Keys, keys=served.keys)]
    if served.cors:
        middleware.insert(0, Middleware(CORSMiddleware, allow_origins=served.cors, allow_headers=["*"]))
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={Exception: errors.handle, HTTPException: errors.handle},
    )
    app.state.served = served
    return app


# --- before the routes ---
class _Keys:
    """401 without one of the keys, compared in constant time."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self.app, self.keys = app, [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.keys and scope["path"] != "/health" and not self._has_key(scope):
            response = errors.response(401, "a key is needed: Authorization: Bearer KEY")
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ") or headers.get(b"x-api-key", b"")
        # all are compared, so that the time does not say which one is near
        return sum(hmac.compare_digest(given, key) for key in self.keys) > 0


class _Limits:
    """413 for a body of more than MOST_BODY bytes, whether it says so or not."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > MOST_BODY:
            response = errors.response(413, f"the body is larger than {MOST_BODY} bytes")
            await response(scope, receive, send)
            return
        n = 0

        async def counted() -> Message:
            nonlocal n
            message = await receive()
            n += len(message.get("body", b""))
            if n > MOST_BODY:
                raise RequestError(f"the body is larger than {MOST_BODY} bytes", status=413)
            return message

        await self.app(scope, counted, send)


async def _parsed(request: Request, schema: type[Schema]) -> Schema:
    """The body as JSON of a schema. RequestError, ValidationError."""
    try:
        values = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise RequestError("the body is not JSON") from None
    return schema.model_validate(values)


def _served(request: Request) -> Served:
    served: Served = request.app.state.served
    return served


def _client(request: Request) -> object:
    return request.headers.get("authorization") or (request.client.host if request.client else None)


Endpoint = Callable[[Request], Awaitable[Response]]


def _refusing(endpoint: Endpoint) -> Endpoint:
    """Errors of input become responses here; what is left is a bug of ours."""

    async def wrapped(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            response = errors.of_exception(error)
            if response.status_code == 500 and not isinstance(error, RequestError):
                raise
            return response

    return wrapped


# --- about the server ---
async def health(request: Request) -> Response:
    """200 while requests are answered, 503 afterwards."""
    if _served(request).service.is_open:
        return JSONResponse({"status": "ok"})
    return errors.response(503, "the model answers no more")


def _model_entry(served: Served) -> dict[str, Any]:
    model = served.maker.model
    return {
        "id": served.name,
        "object": "model",
        "created": int(served.started),
        "owned_by": "hybrid",
        "meta": {
            "n_vocab": model.n_vocab, "n_ctx": model.n_ctx, "n_ctx_train": model.n_ctx_train,
            "n_params": model.n_params, "size": model.n_bytes,
        },
    }  # fmt: skip


async def models(request: Request) -> Response:
    """The one model that is served."""
    return JSONResponse({"object": "list", "data": [_model_entry(_served(request))]})


async def model(request: Request) -> Response:
    """The same by its name."""
    served = _served(request)
    if request.path_params["name"] != served.name:
        return errors.response(404, f"there is no model of this name here, only {served.name}", param="model")
    return JSONResponse(_model_entry(served))


async def metrics(request: Request) -> Response:
    """Prometheus text: llama-server's names where they mean the same."""
    served = _served(request)
    n_jobs, n_parallel = served.service.n_jobs, served.service.batcher.n_parallel
    values = {
        "llamacpp:prompt_tokens_total": served.n_read,
        "llamacpp:tokens_predicted_total": served.n_drawn,
        "llamacpp:requests_processing": min(n_jobs, n_parallel),
        "llamacpp:requests_deferred": max(0, n_jobs - n_parallel),
        "hybrid:prompt_tokens_reused_total": served.n_reused,
        "hybrid:steps_total": served.service.batcher.n_steps,
    }
    lines = [
        f"# TYPE {name} {'counter' if name.endswith('total') else 'gauge'}\n{name} {value}"
        for name, value in values.items()
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


# --- answers ---
@_refusing
async def chat(request: Request) -> Response:
    """POST /v1/chat/completions"""
    body, served = await _parsed(request, ChatRequest), _served(request)
    jobs = await run_in_threadpool(served.maker.chat, body, _client(request))
    return await _answer(request, body, jobs, ChatShape)


@_refusing
async def completions(request: Request) -> Response:
    """POST /v1/completions"""
    body, served = await _parsed(request, CompletionRequest), _served(request)
    jobs = await run_in_threadpool(served.maker.completion, body, _client(request))
    return await _answer(request, body, jobs, CompletionShape)


async def _answer(
    request: Request, body: ChatRequest | CompletionRequest, jobs: list[Job], kind: type[Shape]
) -> Response:
    served = _served(request)
    file = served.maker.model.file
    shape = kind(served.name, file.fingerprint, served.maker.model.tokenizer)
    answering, prompts = Answering(served.service, jobs), jobs[:: body.n]
    answering.submit()
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        events = _stream(served, answering, shape, prompts, with_usage=with_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    try:
        pieces: list[list[TextPiece]] = [[] for _ in jobs]

        async def collect() -> None:
            async for event in answering.events():
                if event.piece is not None:
                    pieces[event.index].append(event.piece)

        await _unless_disconnected(request, collect())
        served.count(jobs)
        return JSONResponse(shape.whole(jobs, prompts, pieces))
    finally:
        answering.close()


async def _unless_disconnected(request: Request, work: Any) -> None:
    """Wait for `work`, but no longer than for the client."""
    task = asyncio.ensure_future(work)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError("the client has gone", status=499)
        await task
    finally:
        for each in (task, leaving):
            each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await each


async def _stream(
    served: Served, answering: Answering, shape: Shape, prompts: Sequence[Job], *, with_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events. Starlette ends this generator when the client goes."""
    waiting: asyncio.Future[Any] | None = None
    try:
        for index in range(len(answering.jobs)):
            if (first := shape.begin(index)) is not None:
                yield _event(shape.chunk([first]))
        events = answering.events()
        while True:
            waiting = waiting or asyncio.ensure_future(anext(events, None))
            done, _ = await asyncio.wait({waiting}, timeout=PING_SECONDS)
            if not done:
                yield ": a prompt is being read\n\n"  # keeps proxies and clients from giving up
                continue
            event, waiting = waiting.result(), None
            if event is None:
                break
            if event.piece is None:
                yield _event(shape.chunk([shape.end(event.index, answering.jobs[event.index])]))
            elif event.piece.text or event.piece.logprobs is not None:
                yield _event(shape.chunk([shape.part(event.index, event.piece)]))
        served.count(answering.jobs)
        if with_usage:
            yield _event(shape.chunk([], usage=usage(answering.jobs, prompts)))
        yield "data: [DONE]\n\n"
    except RequestError as error:
        yield _event(json.loads(bytes(errors.of_exception(error).body)))
    finally:
        if waiting is not None:
            waiting.cancel()
        answering.close()


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


# --- tokens ---
@_refusing
async def tokenize(request: Request) -> Response:
    """POST /tokenize: llama-server's shape for `content`, vLLM's for `prompt`."""
    body, served = await _parsed(request, TokenizeRequest), _served(request)
    if (body.content is None) == (body.prompt is None):
        raise RequestError("give one of content and prompt", param="content")
    tokenizer = served.maker.model.tokenizer
    if body.prompt is not None:
        special = body.add_special_tokens is not False
        ids = await run_in_threadpool(
            tokenizer.encode, body.prompt, add_special=special, parse_special=body.parse_special
        )
        return JSONResponse({"count": len(ids), "max_model_len": served.maker.model.n_ctx, "tokens": ids})
    ids = await run_in_threadpool(
        tokenizer.encode, body.content or "", add_special=bool(body.add_special), parse_special=body.parse_special
    )
    if not body.with_pieces:
        return JSONResponse({"tokens": ids})
    return JSONResponse({"tokens": [{"id": i, "piece": _piece(tokenizer.piece(i))} for i in ids]})


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)


@_refusing
async def detokenize(request: Request) -> Response:
    """POST /detokenize: the text under both names."""
    body, served = await _parsed(request, DetokenizeRequest), _served(request)
    n_vocab = served.maker.model.n_vocab
    wrong = next((token for token in body.tokens if not 0 <= token < n_vocab), None)
    if wrong is not None:
        raise RequestError(f"tokens: {wrong} is not of this model's vocabulary of {n_vocab}", param="tokens")
    text = served.maker.model.tokenizer.decode(body.tokens)
    return JSONResponse({"content": text, "prompt": text})
