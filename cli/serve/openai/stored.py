"""Responses that can be fetched and continued: questions and answers as items.

Items are no tokens: any model can continue them, and what a model has read of them is in its prompt cache. A response
has the items of its own request; those before them belong to the response that it continues.

With a folder every response is also a document in it (infer/memory/documents.py), written by one thread:

    resp_0123456789abcdef0123456789abcdef.json    {"id", "owner", "previous", "response", "input"}
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.infer.memory.documents import read_document, write_document
from hybrid.infer.memory.pins import PARTY_BYTES
from hybrid.quant.ggml.errors import StateError, UsageError, shown
from hybrid.quant.ggml.replacing import remove_unfinished

BUDGET = 128 << 20  # bytes of all responses, pictures included
MOST_RESPONSES = 4096
ENTRY_BYTES = 1000  # of a response beside its JSON
_ID = re.compile(r"resp_[0-9a-f]{32}")
RUNNING = ("queued", "in_progress")
ENDED = "the server ended before the answer did"


def as_json(value: Any) -> bytes:
    """A value as stored JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class StoredResponse:
    """owner: of the request (client.py); previous: the response that it continues; input: the items of its request, a
    JSON list; response: a JSON object; said: the IDs of its own items."""

    id: str
    owner: bytes
    previous: str | None
    input: bytes
    response: bytes
    said: tuple[str, ...]

    @classmethod
    def of(cls, response: Mapping[str, Any], owner: bytes, given: bytes) -> "StoredResponse":
        """A response in the form that is sent. given: the items of its request."""
        said = tuple(item["id"] for item in response["output"])
        return cls(response["id"], owner, response["previous_response_id"], given, as_json(response), said)

    @property
    def nbytes(self) -> int:
        return ENTRY_BYTES + len(self.input) + len(self.response)

    def as_object(self) -> dict[str, Any]:
        """The response in the form that is sent."""
        found: dict[str, Any] = json.loads(self.response)
        return found

    def items(self) -> list[dict[str, Any]]:
        """The items of its request."""
        found: list[dict[str, Any]] = json.loads(self.input)
        return found

    def document(self) -> bytes:
        """The contents of its file."""
        head = as_json({"id": self.id, "owner": self.owner.hex(), "previous": self.previous})
        return head[:-1] + b',"response":' + self.response + b',"input":' + self.input + b"}"

    @classmethod
    def of_document(cls, value: Any) -> "StoredResponse":
        """The response of a file. Raises ValueError for any other JSON."""
        try:
            name, owner, previous = value["id"], bytes.fromhex(value["owner"]), value["previous"]
            response, items = value["response"], value["input"]
            ids = [name, name if previous is None else previous, response["id"]]
            lists = [*items, *response["output"]]
            right = all(isinstance(one, str) and _ID.fullmatch(one) for one in ids) and response["id"] == name
            right &= isinstance(items, list) and all(isinstance(item, dict) for item in lists)
            right &= all(isinstance(item["id"], str) for item in response["output"])
            if not right or not isinstance(response["status"], str):
                raise ValueError("no response")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no stored response: {error!r}") from None
        if response["status"] in RUNNING:
            response["status"] = "failed"
            response["error"] = {"code": "server_error", "message": ENDED}
        return cls.of({**response, "previous_response_id": previous}, owner, as_json(items))


class StoredResponses:
    """Responses by ID, at most MOST_RESPONSES of `budget` bytes together. Further ones replace the least recently used
    of the API key that has the most bytes. A response that was continued counts as used with every response after it.

    folder: None: they are in memory only; warn: called with what cannot be read or written. Thread-safe.
    """

    def __init__(
        self, folder: Path | None = None, budget: int = BUDGET, warn: Callable[[str], None] = lambda line: None
    ) -> None:
        self.folder, self.budget, self.warn = folder, budget, warn
        self._lock = threading.RLock()
        self._held: OrderedDict[str, StoredResponse] = OrderedDict()  # least recently used first
        self._by_party: dict[bytes, int] = {}  # bytes
        self._said: dict[str, str] = {}  # the response of each item
        self._failing = False
        self._writer = None if folder is None else ThreadPoolExecutor(1, "hybrid-responses")
        self._changed: set[str] = set()  # IDs whose files are to be written or removed
        if folder is not None:
            self._load(folder)

    def close(self) -> None:
        """Writes the rest."""
        if self._writer is not None:
            self._writer.shutdown()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        """The bytes of all responses."""
        return sum(self._by_party.values())

    def put(self, stored: StoredResponse) -> None:
        """Adds or replaces a response."""
        with self._lock:
            self._put(stored)
            self._write(stored.id)

    def update(self, stored: StoredResponse) -> None:
        """Replaces a response, if it is still there."""
        with self._lock:
            if stored.id in self._held:
                self.put(stored)

    def get(self, name: str, owner: bytes) -> StoredResponse | None:
        """A response of this owner; None: it has no such response."""
        with self._lock:
            found = self._held.get(name)
            if found is None or found.owner != owner:
                return None
            self._use(found)
            return found

    def line(self, name: str, owner: bytes) -> list[StoredResponse]:
        """A response and all that it continues, the first one first. Raises KeyError with the ID that is missing."""
        with self._lock:
            found = self._before(self.get(name, owner))
        missing = found[-1].previous if found else name
        if missing is not None:
            raise KeyError(missing)
        return found[::-1]

    def item(self, name: str, owner: bytes) -> dict[str, Any] | None:
        """An item of an answer of this owner; None: it has no such item."""
        with self._lock:
            found = self.get(self._said.get(name, ""), owner)
        return None if found is None else next(item for item in found.as_object()["output"] if item["id"] == name)

    def remove(self, name: str, owner: bytes) -> bool:
        """Drops a response. False: this owner has no such response."""
        with self._lock:
            if self.get(name, owner) is None:
                return False
            self._drop(name)
            self._write(name)
            return True

    # --- memory ---
    def _put(self, stored: StoredResponse) -> None:
        self._drop(stored.id)
        self._held[stored.id] = stored
        self._said.update(dict.fromkeys(stored.said, stored.id))
        self._count(stored, 1)
        self._use(stored)
        while len(self._held) > MOST_RESPONSES or self.nbytes > self.budget:
            largest = max(self._by_party, key=lambda party: self._by_party[party])
            oldest = next(one.id for one in self._held.values() if one.owner[:PARTY_BYTES] == largest)
            self._drop(oldest)
            self._write(oldest)

    def _before(self, stored: StoredResponse | None) -> list[StoredResponse]:
        """The response and the responses that it continues, unless they were dropped."""
        found: list[StoredResponse] = []
        while stored is not None and len(found) <= len(self._held):  # no more, should files make a circle
            found.append(stored)
            stored = None if stored.previous is None else self._held.get(stored.previous)
        return found

    def _use(self, stored: StoredResponse) -> None:
        """Counts it, then all that it continues, as used: the oldest is never one that another continues."""
        for one in self._before(stored):
            self._held.move_to_end(one.id)

    def _drop(self, name: str) -> None:
        if (dropped := self._held.pop(name, None)) is not None:
            self._count(dropped, -1)
            for item in dropped.said:
                self._said.pop(item, None)

    def _count(self, stored: StoredResponse, sign: int) -> None:
        party = stored.owner[:PARTY_BYTES]
        left = self._by_party.get(party, 0) + sign * stored.nbytes
        self._by_party[party] = left
        if not left:
            del self._by_party[party]

    # --- the folder ---
    def _load(self, folder: Path) -> None:
        try:
            for each in (folder.parent, folder):  # --state-dir may be new; private: it holds people's questions
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_unfinished(folder, "*")
            found = sorted((path.stat().st_mtime_ns, path) for path in folder.glob("resp_*.json"))
        except OSError as error:
            where, why = shown(folder.parent), error.strerror or error
            raise UsageError(f"{where}: no states can be kept there: {why}. Choose another folder.") from None
        for _, path in found:
            try:
                stored = StoredResponse.of_document(read_document(path))
                if path.name != f"{stored.id}.json":
                    raise ValueError("another response's file")
            except (StateError, ValueError):
                self.warn(f"{shown(path)} is damaged: this response is lost.")
                with suppress(OSError):
                    path.unlink()
                continue
            self._put(stored)

    def _write(self, name: str) -> None:
        if self._writer is None or name in self._changed:
            return
        self._changed.add(name)
        with suppress(RuntimeError):  # the server has ended
            self._writer.submit(self._written, name)

    def _written(self, name: str) -> None:
        """Makes the file of a response, or removes it."""
        assert self.folder is not None
        with self._lock:
            self._changed.discard(name)
            stored = self._held.get(name)
        path = self.folder / f"{name}.json"
        try:
            if stored is None:
                path.unlink(missing_ok=True)
            else:
                write_document(path, stored.document())
        except (OSError, UsageError) as error:
            if not self._failing:
                self.warn(f"{shown(self.folder)}: responses cannot be written: {error}. They are kept in memory only.")
            self._failing = True
        else:
            self._failing = False
