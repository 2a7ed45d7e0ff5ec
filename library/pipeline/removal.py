"""Removes models from the hub's cache and from ours, never a file of the user."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError, shown
from hybrid.quant.ggml.vision_names import vision_path

from .. import cache_paths
from ..hub import choice, folders, names, type_tags
from ..hub.names import Name
from ..hub.nearby import near
from . import cached_models, conversions, vision_files


@dataclass(frozen=True)
class Removal:
    """Files to remove for one name. repository: removed as a whole, "" for none; files: removed with their notes."""

    name: str
    repository: str
    files: tuple[Path, ...]
    nbytes: int


def planned(text: str) -> Removal:
    """The removal for a name. UsageError: the name is in no cache, or is a file of the user."""
    path = Path(text)
    if path.exists():
        return _of_path(path)
    name = names.parse(text)
    if name is None:
        here = near(text, folders.repositories())
        raise UsageError(f"{shown(text)} is not in a cache.{here}", remedy=Remedy.SEE_MODELS)
    whole = not (name.type or name.file)
    kept = [model for model in cached_models.every() if _is_of(model, name)]
    top = folders.repository_folder(name.repository)
    files = tuple(model.path for model in kept)
    if whole:
        note = folders.note_path(name.repository, name.revision).parent
        if not kept and not top.is_dir() and not note.is_dir():
            raise _absent(name, text)
        nbytes = sum(model.nbytes for model in kept) + _nbytes(top)
        return Removal(str(name), name.repository, files, nbytes)
    links, blobs = _links(name)
    if not kept and not links:
        raise _absent(name, text)
    nbytes = sum(model.nbytes for model in kept) + sum(blob.stat().st_size for blob in blobs)
    return Removal(str(name), "", (*files, *links, *blobs), nbytes)


def remove(removal: Removal) -> None:
    """Carries it out. HybridError: a file cannot be removed."""
    try:
        for path in removal.files:
            path.unlink(missing_ok=True)
            if path.parent == conversions.folder():
                cache_paths.about(path).unlink(missing_ok=True)
                vision_path(path).unlink(missing_ok=True)
        if removal.repository:
            _remove_repository(removal.repository)
    except OSError as err:
        raise HybridError(f"{shown(err.filename)} cannot be removed: {err.strerror}.") from err


def _absent(name: Name, text: str) -> UsageError:
    return UsageError(f"{name} is not here.{near(text, folders.repositories())}", remedy=Remedy.LIST_MODELS)


def _of_path(path: Path) -> Removal:
    whole = path.resolve()
    kept = [model for model in cached_models.every() if model.path.resolve() == whole or model.made_of == str(whole)]
    if not kept:
        raise UsageError(f"{shown(path)} is your own", remedy=Remedy.IN_CACHES_ONLY)
    return Removal(str(path), "", tuple(model.path for model in kept), sum(model.nbytes for model in kept))


def _is_of(model: cached_models.CachedModel, name: Name) -> bool:
    facts = conversions.read_note(model.path)
    if facts is None or facts.repository != name.repository or name.file:
        return False
    return not name.type or facts.type == type_tags.normal(name.type)


def _nbytes(top: Path) -> int:
    """Bytes of a repository's folder; a blob counts once."""
    total = 0
    for folder, _, files in os.walk(top):
        for file in files:
            with suppress(OSError):
                total += Path(folder, file).lstat().st_size
    return total


def _links(name: Name) -> tuple[list[Path], list[Path]]:
    """For one type or file, at any commit: its links in the snapshots, and the blobs that nothing else needs."""
    top = folders.repository_folder(name.repository)
    wanted: set[Path] = set()
    with suppress(OSError):
        for snapshot in (top / "snapshots").iterdir():
            models = choice.ggufs(folders.present(name.repository, snapshot.name))
            found = choice.chosen(models, name)
            wanted |= {snapshot / file.path for file in found.files} if found else set()
            if found and len(models) == 1 and (tower := vision_files.vision_of(snapshot / found.files[0].path)):
                wanted.add(tower)
    blobs = {path.resolve() for path in wanted if path.is_symlink()}
    others = {path.resolve() for path in (top / "snapshots").rglob("*") if path.is_symlink() and path not in wanted}
    mine = (top / "blobs").resolve()
    return sorted(wanted), sorted(blob for blob in blobs - others if blob.parent == mine)


def _remove_repository(repository: str) -> None:
    """Removes all commits, as huggingface_hub does, then partial downloads and our notes."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    with suppress(CacheNotFound):
        cache = scan_cache_dir(folders.hub())
        found = [repo for repo in cache.repos if (repo.repo_id, repo.repo_type) == (repository, "model")]
        commits = [revision.commit_hash for repo in found for revision in repo.revisions]
        if commits:
            cache.delete_revisions(*commits).execute()
    for left in (folders.repository_folder(repository), folders.note_path(repository, "main").parent):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
