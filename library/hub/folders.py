"""The hub's cache on this disk, in huggingface_hub's documented layout, and our notes about it.

<hub>/models--ORG--NAME/refs/REVISION          a commit
<hub>/models--ORG--NAME/snapshots/COMMIT/PATH  a link to
<hub>/models--ORG--NAME/blobs/BLOB             a file's bytes; BLOB.incomplete: a partial download
<hub>/.locks/models--ORG--NAME/BLOB.lock       locked while it is downloaded
<cache>/hub/models--ORG--NAME/REVISION.json    ours: the list of files that the hub gave (`Note`)

<hub> follows HF_HUB_CACHE and HF_HOME. Reading it needs no network.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.replacing import replace_file

from .. import cache_paths
from .repository import BLOB, COMMIT, Listing, RepoFile, checked


def hub() -> Path:
    """The folder of the hub's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def folder_name(repository: str) -> str:
    return f"models--{repository.replace('/', '--')}"


def repository_folder(repository: str) -> Path:
    return hub() / folder_name(repository)


def snapshot(repository: str, commit: str) -> Path:
    return repository_folder(repository) / "snapshots" / commit


def pointer(repository: str, commit: str, path: str) -> Path:
    """The path of a repository's file."""
    return snapshot(repository, commit) / path


def blob_path(repository: str, blob: str) -> Path:
    return repository_folder(repository) / "blobs" / blob


def commit_of(repository: str, revision: str) -> str | None:
    """The commit of a revision when the hub was last asked; None if unknown."""
    if COMMIT.fullmatch(revision):
        return revision
    with suppress(OSError, UnicodeDecodeError):
        text = (repository_folder(repository) / "refs" / revision).read_text(encoding="ascii").strip()
        if COMMIT.fullmatch(text):
            return text
    return None


def set_commit(repository: str, revision: str, commit: str) -> None:
    """Notes the commit of a revision. OSError."""
    if revision == commit or commit_of(repository, revision) == commit:
        return
    path = repository_folder(repository) / "refs" / revision
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [commit.encode()])


def present(repository: str, commit: str) -> list[RepoFile]:
    """The complete files of a commit on this disk. A file that is not a link to a blob has the blob name ""."""
    top = snapshot(repository, commit)
    files = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):
                target = Path(os.path.realpath(path)).name
                blob = target if path.is_symlink() and BLOB.fullmatch(target) else ""
                files.append(RepoFile(path.relative_to(top).as_posix(), path.stat().st_size, blob))
    return sorted(files, key=lambda file: file.path)


def is_here(repository: str, commit: str, file: RepoFile) -> bool:
    with suppress(OSError):
        return pointer(repository, commit, file.path).stat().st_size == file.nbytes
    return False


def repositories() -> list[str]:
    """ORG/NAME of all models in the hub's cache or in our notes."""
    names = set()
    for top in (hub(), _notes()):
        with suppress(OSError):
            names |= {path.name for path in top.iterdir() if path.name.startswith("models--") and path.is_dir()}
    return sorted("/".join(name.split("--")[1:]) for name in names if name.count("--") == 2)


# --- answers of the hub ---
def _notes() -> Path:
    return cache_paths.cache_dir() / "hub"


def note_path(repository: str, revision: str) -> Path:
    return _notes() / folder_name(repository) / f"{quote(revision, safe='')}.json"


def write_note(listing: Listing, revision: str) -> None:
    """Notes the contents of a revision. Failure is ignored: a read-only cache works also."""
    files = [[file.path, file.nbytes, file.blob] for file in listing.files]
    note = {"commit": listing.commit, "architecture": listing.architecture, "files": files}
    path = note_path(listing.repository, revision)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [json.dumps(note).encode()])


def read_note(repository: str, revision: str) -> Listing | None:
    """The contents that `write_note` noted; None if missing or unreadable."""
    try:
        note = json.loads(note_path(repository, revision).read_bytes())
        commit, architecture = note["commit"], note["architecture"]
        files = tuple(checked(repository, *entry) for entry in note["files"])
    except (OSError, ValueError, KeyError, TypeError, HybridError):
        return None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        return None
    return Listing(repository, commit, files, str(architecture))


def known(repository: str, revision: str) -> Iterator[tuple[Listing, bool]]:
    """File lists of a revision that need no network, and whether each is complete."""
    commit, note = commit_of(repository, revision), read_note(repository, revision)
    if commit is not None and (note is None or note.commit != commit):
        yield Listing(repository, commit, tuple(present(repository, commit))), False
    if note is not None:
        yield note, True
