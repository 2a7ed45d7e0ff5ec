"""Hashes of a model's weights, per tensor and for the whole model, computed and printed as in llama.cpp's gguf-hash.

Only the bytes of tensors are hashed, in the order of the file: metadata and splitting into parts make no difference.
"""

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import xxhash

from .ggml.errors import FormatError, Remedy, UsageError, shown
from .ggml.progress import Progress
from .ggml.split import open_gguf
from .ggml.utf8 import decoded
from .rewrite import chunks_of

# The name space of llama.cpp's UUIDs, which are of version 5 but for the text that is hashed: the weights.
NAMESPACE = uuid.UUID("ef001206-dadc-5f6d-a15f-3359e577d4e5")


class HashKind(StrEnum):
    """Kinds of hashes. `uuid` exists for the whole model only."""

    XXH64 = "xxh64"
    SHA1 = "sha1"
    SHA256 = "sha256"
    UUID = "uuid"


@dataclass(frozen=True)
class Hash:
    """A line of output: the hash of tensor `tensor`, or "" for the whole model. `expected`: the manifest's, or ""."""

    kind: HashKind
    digest: str
    tensor: str
    expected: str = ""

    @property
    def matches(self) -> bool | None:
        """Whether the hash equals the manifest's; None if the manifest lacks it."""
        return self.digest == self.expected if self.expected else None


def hashes(
    path: Path | str,
    kinds: Sequence[HashKind] = (HashKind.XXH64,),
    *,
    tensors: bool = True,
    manifest: Mapping[tuple[str, str], str] | None = None,
    progress: Progress | None = None,
) -> Iterator[Hash]:
    """Yields the hashes of every tensor, if wanted, then of the model. Reads the file once."""
    expected = manifest or {}
    with open_gguf(path) as file:
        total, done = sum(t.nbytes for t in file.tensors.values()), 0
        whole = {kind: _begun(kind) for kind in kinds}
        for name in file.tensors:
            single = {kind: _begun(kind) for kind in kinds if tensors and kind is not HashKind.UUID}
            for chunk in chunks_of(file, name):
                for state in (*whole.values(), *single.values()):
                    state.update(chunk)
                done += chunk.size
                if progress:
                    progress(name, done, total)
            for one, state in single.items():
                yield Hash(one, state.hexdigest(), name, expected.get((one, name), ""))
        for kind, state in whole.items():
            digest = state.hexdigest()
            if kind is HashKind.UUID:
                digest = str(uuid.UUID(bytes=state.digest()[:16], version=5))
            yield Hash(kind, digest, "", expected.get((kind, ""), ""))


def read_manifest(path: Path) -> dict[tuple[str, str], str]:
    """(kind, tensor or "") -> hash, from lines `kind  hash  file[:tensor]`. File names are ignored."""
    try:
        lines = decoded(path.read_bytes()).splitlines()
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FormatError(f"{shown(path)} is not a list of hashes.", remedy=Remedy.MAKE_HASHES) from None
    digests: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split(None, 2)
        if not fields:
            continue
        if len(fields) < 3 or fields[0] not in list(HashKind):
            raise FormatError(f"{shown(path)}, line {number}: expected `kind  hash  file:tensor`.")
        _, _, tensor = fields[2].rstrip().partition(".gguf:")
        digests[fields[0], tensor] = fields[1].lower()
    if not digests:
        raise FormatError(f"{shown(path)} holds no hashes.", remedy=Remedy.MAKE_HASHES)
    return digests


def _begun(kind: HashKind) -> Any:
    if kind is HashKind.XXH64:
        return xxhash.xxh64()
    state = hashlib.new("sha1" if kind is HashKind.UUID else kind.value, usedforsecurity=False)
    if kind is HashKind.UUID:
        state.update(NAMESPACE.bytes)
    return state
