"""Models on this disk: in the hub's cache, our conversions, and the user's files that were run lately."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..hub import checkpoints, choice, folders
from ..hub.names import MAIN
from ..hub.repository import Listing
from . import cached_models, conversions, header, recent


class ModelPlace(StrEnum):
    """Where a model is."""

    GGUF = "gguf"  # in the hub's cache
    CHECKPOINT = "checkpoint"  # in the hub's cache
    PARTIAL = "partial"  # in the hub's cache, incomplete
    CONVERSION = "conversion"  # in our cache
    FILE = "file"  # the user's file


@dataclass(frozen=True)
class Present:
    """A model on this disk. name: to type as MODEL; type, architecture: "" if slow to find out; trouble: why it does
    not run."""

    name: str
    kind: ModelPlace
    type: str
    architecture: str
    nbytes: int
    path: Path
    trouble: str = ""


UNSUPPORTED = "its architecture is not supported"


def everything() -> list[Present]:
    """All models: in the hub's cache by name, then conversions and files, the most recently used first."""
    in_hub = [model for repository in folders.repositories() for model in of_repository(repository)]
    return [*in_hub, *_conversions(), *_files()]


def of_repository(repository: str) -> list[Present]:
    """The models of a repository in the hub's cache, at all cached commits."""
    top = folders.repository_folder(repository)
    revisions = {commit: revision for revision, commit in _refs(top)}
    found: list[Present] = []
    with suppress(OSError):
        for snapshot in sorted((top / "snapshots").iterdir()):
            revision = revisions.get(snapshot.name, snapshot.name)
            found += _of_snapshot(repository, snapshot, "" if revision == MAIN else f"@{revision}")
    with suppress(OSError):
        incomplete = sum(path.stat().st_size for path in (top / "blobs").glob("*.incomplete"))
        if incomplete:
            found.append(Present(repository, ModelPlace.PARTIAL, "", "", incomplete, top))
    return found


def names() -> list[str]:
    """Names of models on this disk to type as MODEL, without opening files: for completion."""
    found: list[str] = []
    for repository in folders.repositories():
        with suppress(OSError):
            for _, commit in _refs(folders.repository_folder(repository)):
                listing = Listing(repository, commit, tuple(folders.present(repository, commit)))
                models = choice.ggufs(listing.files)
                found += [repository] if models or checkpoints.has_checkpoint(listing) else []
                found += [f"{repository}:{model.tag or model.files[0].path}" for model in models]
    facts = (conversions.read_note(path) for path in conversions.folder().glob("*.gguf"))
    found += [fact.name for fact in facts if fact is not None]
    return [*dict.fromkeys(found), *map(str, recent.paths())]


def _refs(top: Path) -> Iterator[tuple[str, str]]:
    """(revision, commit) of all refs; main comes last, and so gives a commit with several names its name."""
    refs = top / "refs"
    for path in sorted(refs.rglob("*"), key=lambda path: path.name == MAIN):
        with suppress(OSError, UnicodeDecodeError):
            if path.is_file():
                yield path.relative_to(refs).as_posix(), path.read_text(encoding="ascii").strip()


def _of_snapshot(repository: str, snapshot: Path, revision: str) -> Iterator[Present]:
    files = tuple(folders.present(repository, snapshot.name))
    models = choice.ggufs(files)
    tags = [model.tag for model in models]
    for model in models:
        path = snapshot / model.files[0].path
        architecture, kind = header.read(path)
        chosen = model.tag if model.tag and tags.count(model.tag) == 1 else model.files[0].path
        yield Present(
            f"{repository}:{chosen}{revision}",
            ModelPlace.GGUF,
            model.tag or kind,
            architecture,
            model.nbytes,
            path,
            _trouble(architecture),
        )
    listing = Listing(repository, snapshot.name, files)
    if checkpoints.has_checkpoint(listing):
        nbytes = sum(file.nbytes for file in files)
        trouble = "" if checkpoints.is_supported(snapshot / checkpoints.CONFIG) else UNSUPPORTED
        name = f"{repository}{revision}"
        yield Present(name, ModelPlace.CHECKPOINT, "", _architecture(snapshot), nbytes, snapshot, trouble)


def _trouble(architecture: str) -> str:
    from hybrid.infer.architectures import ENCODERS, FAMILIES

    return "" if architecture in FAMILIES or architecture in ENCODERS else UNSUPPORTED


def _architecture(folder: Path) -> str:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        kind = json.loads((folder / checkpoints.CONFIG).read_bytes()).get("model_type")
        return kind if isinstance(kind, str) else ""
    return ""


def _conversions() -> Iterator[Present]:
    for model in cached_models.every():
        if model.path.parent.name == "converted":
            architecture, kind = header.read(model.path)
            yield Present(model.made_of, ModelPlace.CONVERSION, kind, architecture, model.nbytes, model.path)


def _files() -> Iterator[Present]:
    for path in recent.paths():
        with suppress(OSError):
            architecture, kind = header.read(path)
            yield Present(
                str(path), ModelPlace.FILE, kind, architecture, path.stat().st_size, path, _trouble(architecture)
            )
