"""The client that sent a request, and the owner of its texts.

Texts belong to the API key of a request together with its `cache_salt`, given in the body or the query: requests of
another owner cannot continue, list or drop them. Without keys, or with --share-between-keys, the salt alone decides.
The owner is a hash of both, so salts need no memory and owners stay the same over restarts.
"""

import hashlib
from dataclasses import dataclass

from starlette.requests import Request

from hybrid.infer.engine.applied import Applied
from hybrid.infer.memory.pins import OWNER_BYTES, PARTY_BYTES

SALT = {"cache_salt": {"schema": {"type": "string"}}}  # parameter of the query, for the OpenAPI document
KEY = "hybrid.key"  # name in a request's scope: the API key that its texts belong to, as bytes


@dataclass(frozen=True)
class Client:
    """The sender of a request.

    client  requests of one client share one turn in the queue
    owner   owner of the request's texts, whatever their adapters; b"": no owner
    drawn   whether earlier answers in a prompt are replaced by the tokens that were sampled
    applied     adapters that its texts are read with (adapters.py); None: the model's own
    text_owner  owner of texts with these adapters, in the prompt cache
    """

    client: object = None
    owner: bytes = b""
    drawn: bool = True
    applied: Applied | None = None
    text_owner: bytes = b""


def asked_by(request: Request, body: object = None) -> Client:
    """The client of a request, without adapters: see `Served.client`. body: the checked body, which may name a salt."""
    key = request.headers.get("authorization") or request.headers.get("x-api-key")
    client = key or (request.client.host if request.client else None)
    salt = getattr(body, "cache_salt", None) or request.query_params.get("cache_salt", "")
    cache = getattr(body, "cache", None)
    drawn = getattr(body, "cache_prompt", True) and (cache is None or cache.drawn is not False)
    owner = owner_of(request.scope.get(KEY, b""), salt)
    return Client(client, owner, drawn, text_owner=owner)


def owner_of(key: bytes, salt: str) -> bytes:
    """The owner, OWNER_BYTES bytes; the key alone decides the first PARTY_BYTES. b"" without key and salt."""
    if not key and not salt:
        return b""
    party = hashlib.blake2b(key, digest_size=PARTY_BYTES, person=b"hybrid party").digest()
    said = len(key).to_bytes(8, "little") + key + salt.encode("utf-8", "surrogatepass")
    return party + hashlib.blake2b(said, digest_size=OWNER_BYTES - PARTY_BYTES, person=b"hybrid owner").digest()
