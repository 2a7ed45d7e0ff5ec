"""The client that a request comes from, and the owner of its texts.

Texts belong to the key of their request and to the `cache_salt` that it names, in its body or in its query: nobody
else goes on from them, lists or drops them. Without keys, and with --share-between-keys, the salt alone decides. The
owner is a hash of both: nothing is held of a salt that was used once, and after a restart the owner is the same.
"""

import hashlib
from dataclasses import dataclass

from starlette.requests import Request

from hybrid.infer.answers.asking.ledger import OWNER_BYTES
from hybrid.infer.memory.pins import PARTY_BYTES

SALT = {"cache_salt": {"schema": {"type": "string"}}}  # of a query, as OpenAPI has it
KEY = "hybrid.key"  # in the scope of a request: the key that its texts belong to, as bytes


@dataclass(frozen=True)
class Client:
    """client  whose requests share one turn in the queue
    owner   of the texts that are kept; b"": nobody in particular
    drawn   whether answers that come back as text stand for the tokens that they were drawn as
    """

    client: object = None
    owner: bytes = b""
    drawn: bool = True


def asked_by(request: Request, body: object = None) -> Client:
    """The client and the owner of a request. body: its checked body, which may name a salt."""
    key = request.headers.get("authorization") or request.headers.get("x-api-key")
    client = key or (request.client.host if request.client else None)
    salt = getattr(body, "cache_salt", None) or request.query_params.get("cache_salt", "")
    cache = getattr(body, "cache", None)
    drawn = getattr(body, "cache_prompt", True) and (cache is None or cache.drawn is not False)
    return Client(client, owner_of(request.scope.get(KEY, b""), salt), drawn)


def owner_of(key: bytes, salt: str) -> bytes:
    """OWNER_BYTES bytes. The key alone decides the first PARTY_BYTES. b"" without key and salt."""
    if not key and not salt:
        return b""
    party = hashlib.blake2b(key, digest_size=PARTY_BYTES, person=b"hybrid party").digest()
    said = len(key).to_bytes(8, "little") + key + salt.encode("utf-8", "surrogatepass")
    return party + hashlib.blake2b(said, digest_size=OWNER_BYTES - PARTY_BYTES, person=b"hybrid owner").digest()
