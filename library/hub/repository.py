"""The files of a repository with sizes and hashes, as a hub lists them. All of it is checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hybrid.quant.ggml.errors import HybridError, shown

COMMIT = re.compile(r"[0-9a-f]{40}")
BLOB = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
MOST_BYTES = 1 << 50  # limit for a file: larger sizes are wrong


@dataclass(frozen=True)
class RepoFile:
    """A file of a repository.

    blob: its name in the hub's cache: SHA-256 of the content of a large file, git's hash of others
    """

    path: str
    nbytes: int
    blob: str


@dataclass(frozen=True)
class Listing:
    """A repository at one commit. architecture: of its GGUF files, if the hub names it, else ""."""

    repository: str
    commit: str
    files: tuple[RepoFile, ...]
    architecture: str = ""

    def file(self, path: str) -> RepoFile | None:
        return next((file for file in self.files if file.path == path), None)


def from_hub(repository: str, answer: Any) -> Listing:
    """Parses the answer to /api/models/ORG/NAME/revision/REVISION?blobs=true. HybridError: malformed or malicious."""
    answer = answer if isinstance(answer, Mapping) else {}
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise HybridError(f"{repository}: the hub's answer is not a list of files. Check HF_ENDPOINT.")
    files = tuple(_file(repository, entry) for entry in siblings)
    gguf = answer.get("gguf")
    architecture = gguf.get("architecture") if isinstance(gguf, Mapping) else ""
    return Listing(repository, commit, files, architecture if isinstance(architecture, str) else "")


def _file(repository: str, entry: Any) -> RepoFile:
    entry = entry if isinstance(entry, Mapping) else {}
    path, nbytes, blob = entry.get("rfilename"), entry.get("size"), entry.get("blobId")
    large = entry.get("lfs")
    if isinstance(large, Mapping):
        nbytes, blob = large.get("size", nbytes), large.get("sha256", blob)
    return checked(repository, path, nbytes, blob)


def checked(repository: str, path: Any, nbytes: Any, blob: Any) -> RepoFile:
    """A file of the list. HybridError: its path would leave the folder, or its size or hash is impossible."""
    where = f"{repository}: the file {shown(path)}"
    if not isinstance(path, str) or not path or not _stays_inside(path):
        raise HybridError(f"{where} would not be inside its folder; nothing of this repository is downloaded.")
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or not 0 <= nbytes <= MOST_BYTES:
        raise HybridError(f"{where} has an impossible size on the hub ({shown(nbytes)} bytes). Try again later.")
    if not isinstance(blob, str) or not BLOB.fullmatch(blob):
        raise HybridError(f"{where} has no valid hash on the hub ({shown(blob)}). Try again later.")
    return RepoFile(path, nbytes, blob)


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    plain = path.isprintable() and "\\" not in path and "/".join(parts) == path
    return plain and not path.startswith("/") and not {".", ".."} & set(parts) and len(path.encode()) < 1024
