"""GET /v1/conversations, DELETE /v1/conversations/{id}: texts in the prompt cache; the room for pinned ones.

A client sees only the texts of its own key and salt (client.py). The memory budget is for all texts together.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.memory import PromptCache
from hybrid.infer.memory.branches import Branch, Branches, branches, find_branch
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import shown

from .cache_usage import conversation_id
from .client import SALT
from .endpoint import Endpoint, get
from .errors import RequestError
from .pictures.prompts import prompt_bytes
from .served import Served

T = TypeVar("T")

FIRST = 60  # characters of a text that are shown
FEW, MOST = 100, 1000  # default and largest number of conversations in an answer


def _entry(branch: Branch, tokenizer: Tokenizer) -> dict[str, Any]:
    ids = [int(token) for token in branch.beginning]
    ids = ids[1:] if ids[0] == tokenizer.bos else ids
    text = prompt_bytes(tokenizer, ids).decode("utf-8", "replace")
    return {
        "id": conversation_id(branch.name),
        "object": "conversation",
        "parent": conversation_id(branch.parent) if branch.parent else None,
        "tokens": branch.n_tokens,
        "tokens_before": branch.start,
        "age_seconds": round(branch.age, 3),
        "bytes": branch.nbytes,
        "checkpoints": branch.n_checkpoints,
        "kept": branch.pinned,
        "beginning": shown(text[:FIRST], 4 * FIRST),
    }


async def conversations(served: Served, request: Request) -> Response:
    """Lists texts and their common beginnings, the most recently used first. `limit`: at most this many."""
    given = request.query_params.get("limit", str(FEW))
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:9]) <= MOST):
        raise RequestError(f"limit: expected 1 to {MOST}, found {shown(given, 40)}", param="limit")
    cache, tokenizer = served.answers.model.cache, served.model.tokenizer
    if cache is None:
        found, pinned, budget = Branches([], 0, 0, 0), 0, 0
    else:
        owner = served.client(request).text_owner
        look = partial(branches, cache, int(given), owner)
        found, pinned = await _called(served, lambda: (look(), _pinned(cache, owner)))
        budget = cache.budget
    return JSONResponse(
        {
            "object": "list",
            "data": [_entry(branch, tokenizer) for branch in found.listed],
            "has_more": found.total > len(found.listed),
            "n_conversations": found.total,
            "tokens": found.n_tokens,
            "checkpoints": found.n_checkpoints,
            "kept_bytes": pinned,
            "budget": budget,
        }
    )


def _pinned(cache: PromptCache, owner: bytes) -> int:
    return cache.pins.nbytes(node for node in cache.pins.nodes if node.root.owner == owner)


async def conversation(served: Served, request: Request) -> Response:
    """One text of the prompt cache."""
    cache, name = _asked(served, request)
    found = await _called(served, lambda: find_branch(cache, name, served.client(request).text_owner))
    if found is None:
        raise _unknown(request)
    return JSONResponse(_entry(found[0], served.model.tokenizer))


async def forget(served: Served, request: Request) -> Response:
    """Drops a text, pinned or not, and all texts that continue it."""
    cache, name = _asked(served, request)

    def dropped() -> bool:
        found = find_branch(cache, name, served.client(request).text_owner)
        if found is not None:
            served.answers.forget_onward(found[1])
        return found is not None

    if not await _called(served, dropped):
        raise _unknown(request)
    return JSONResponse({"id": conversation_id(name), "object": "conversation.deleted", "deleted": True})


def _asked(served: Served, request: Request) -> tuple[PromptCache, int]:
    number: str = request.path_params["id"].removeprefix("c")
    if served.answers.model.cache is None or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise _unknown(request)
    return served.answers.model.cache, int(number)


def _unknown(request: Request) -> RequestError:
    return RequestError(
        f"there is no conversation {shown(request.path_params['id'], 40)}: GET /v1/conversations lists them",
        param="id",
        status=404,
    )


async def _called(served: Served, function: Callable[[], T]) -> T:
    """Calls `function` in the thread that owns the cache, between two steps."""
    return await asyncio.wrap_future(served.service.call(function))


async def check_pins(served: Served, jobs: Sequence[Job]) -> None:
    """Raises UsageError if memory for pinned texts is too small for the request's conversation with "keep": true."""
    cache, asked = served.answers.model.cache, [job for job in jobs if job.pin]
    if not asked:
        return
    if cache is None:
        raise RequestError("cache.keep: this server keeps nothing (--checkpoint-budget 0)", param="cache.keep")
    if len(asked) > 1:
        raise RequestError("cache.keep needs a request for one answer to one prompt", param="cache.keep")
    tokens, owner = asked[0].tokens.astype(np.int32), asked[0].settle(served.answers.model.runner)
    await _called(served, lambda: cache.pins.check(tokens, served.model.n_vocab, cache.budget, owner))


ENDPOINTS = [
    get(
        "/v1/conversations",
        handler=conversations,
        query={"limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": FEW}}, **SALT},
    ),
    get("/v1/conversations/{id}", handler=conversation, query=SALT),
    Endpoint(("/v1/conversations/{id}",), forget, method="DELETE", query=SALT),
]
