"""POST /page/costs: the tokens that continuing each of several conversations would read.

    {"conversations": [{"messages": [...]}, ...]}  ->  {"costs": [{"tokens": 900, "reused": 812, "read": 88}, ...]}

Pictures that several conversations have are sent once: "pictures" has their data URLs by name, and picture:NAME stands
for one in messages. `model` names the model; one that is not loaded stays so, and nothing is known of its costs:

    {"costs": [{"unknown": "asleep", "on_disk": true}]}    on_disk: what it has read comes back from disk

A chat completion with the same fields would report the same figures in `usage` and `timings`. They are looked
up in the ledger, in memory and on disk, without reading or changing anything. Running answers come first: one
conversation is encoded at a time, for at most half of the time while answers run, and a turn in the model's thread
takes at most LOOK_SECONDS.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.batch.service import Service
from hybrid.infer.memory.prefix_tree import Tokens
from hybrid.quant.ggml.errors import HybridError

from .. import errors
from ..client import Client
from ..conversations import ConversationFields, chat_of
from ..endpoint import post
from ..fields import CacheSalt
from ..in_thread import in_thread
from ..models.entry import ModelEntry
from ..served import Served
from ..strict import Strict

MOST = 64  # conversations
LOOK_SECONDS = 0.002  # of a turn in the model's thread
NAMED = "picture:"  # before a picture's name, in the place of its URL


class CostsRequest(Strict):
    """Conversations, each with the fields of a chat completion that change its prompt.

    pictures  data URLs by the names that stand for them in messages, as picture:NAME
    """

    pictures: dict[str, str] | None = None
    conversations: Annotated[list[ConversationFields], Field(max_length=MOST)]
    model: str | None = None
    cache_salt: CacheSalt = None

    @model_validator(mode="before")
    @classmethod
    def _with_pictures(cls, given: object) -> object:
        """The body with URLs in the place of names; names that `pictures` lacks stay, and are refused as URLs."""
        if not isinstance(given, dict) or not isinstance(urls := given.get("pictures"), dict):
            return given
        for conversation in _listed(given, "conversations"):
            for message in _listed(conversation, "messages"):
                for part in _listed(message, "content"):
                    picture = part.get("image_url")
                    name = picture.get("url") if isinstance(picture, dict) else None
                    if isinstance(name, str) and name.startswith(NAMED):
                        part["image_url"] = {"url": urls.get(name.removeprefix(NAMED), name)}
        return given


def _listed(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list in a body that is not yet checked."""
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def encoded(served: Served, conversation: ConversationFields, whose: Client) -> Tokens | str:
    """The tokens of the prompt, or the error message of a chat completion that would be refused."""
    try:
        ids = chat_of(served.maker, conversation, whose).peek()
        served.answers.batcher.check_prompt([max(0, token) for token in ids])  # pictures' tokens are right
    except HybridError as error:
        response = errors.of_exception(error)
        if response.status_code == 500:
            raise
        message: str = json.loads(bytes(response.body))["error"]["message"]
        return message
    return np.asarray(ids, np.int32)


async def looked_up(service: Service, texts: Sequence[Tokens], owner: bytes = b"") -> list[int]:
    """For each text, how many tokens this owner would not have to read."""
    found: list[int] = []

    def look() -> None:
        end = time.perf_counter() + LOOK_SECONDS
        while len(found) < len(texts):
            found.append(service.known(texts[len(found)], owner))
            if time.perf_counter() > end:
                return

    while len(found) < len(texts):
        await asyncio.wrap_future(service.call(look))
    return found


async def costs(served: Served | ModelEntry, request: Request, body: CostsRequest) -> Response:
    """For each conversation, its tokens and how many would be read."""
    if isinstance(served, ModelEntry):
        unknown = {"unknown": served.state, "on_disk": served.keeps}
        return JSONResponse({"costs": [unknown for _ in body.conversations]})
    asking, prompts = served.client(request, body), list[Tokens | str]()
    for conversation in body.conversations:
        if await request.is_disconnected():
            raise ClientDisconnect  # the page asks again when anything changes
        async with served.counting:
            begin = time.perf_counter()
            prompts.append(await in_thread(request, encoded, served, conversation, asking))
            if served.answers.n_jobs:
                await asyncio.sleep(time.perf_counter() - begin)
    texts = [ids for ids in prompts if not isinstance(ids, str)]
    known = iter(await looked_up(served.answers, texts, asking.text_owner))
    told = [{"error": ids} if isinstance(ids, str) else _cost(len(ids), next(known)) for ids in prompts]
    return JSONResponse({"costs": told})


def _cost(n: int, n_known: int) -> dict[str, Any]:
    return {"tokens": n, "reused": n_known, "read": n - n_known}


ENDPOINTS = [post("/page/costs", handler=costs, schema=CostsRequest, only_looks=True)]
