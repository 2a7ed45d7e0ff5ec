"""GGUF files in the cache folder: conversions, and models of `demo` and `bench`.

converted/      conversions, with their notes (cache_paths)
demo/, shapes/  a file per size and type
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hybrid.quant.ggml.replacing import remove_unfinished
from hybrid.quant.ggml.vision_names import PREFIX, vision_path

from .. import cache_paths
from ..hub import folders
from . import conversions

KEEP_DAYS = 60  # unused conversions are removed after this time, when another one is made
MADE_BY = {"demo": "hybrid demo", "shapes": "hybrid bench"}


@dataclass(frozen=True)
class CachedModel:
    """A file that can be made again, with its vision tower. Times are UTC, RFC 3339.

    made_of: the folder or ORG/NAME[:TYPE] it was converted from, or the command that made it; "" if unknown. trouble:
    why nothing will use it again.
    """

    path: Path
    in_use: bool
    trouble: str | None
    nbytes: int
    last_used: str
    made_of: str


def every() -> list[CachedModel]:
    """All cached models, the most recently used first."""
    by_last_use: list[tuple[float, CachedModel]] = []
    for kind in ("converted", *MADE_BY):
        for path in (cache_paths.cache_dir() / kind).glob("*.gguf"):
            if path.name.startswith(PREFIX) and path.with_name(path.name.removeprefix(PREFIX)).exists():
                continue  # of that model
            with suppress(OSError):  # another process has removed it
                by_last_use.append(_describe(path, kind))
    return [model for _, model in sorted(by_last_use, key=lambda f: -f[0])]


def _describe(path: Path, kind: str) -> tuple[float, CachedModel]:
    """The time of its last use, and the description."""
    tower = vision_path(path)
    size = path.stat().st_size + (tower.stat().st_size if tower.exists() else 0)
    used, made_of, trouble = path.stat().st_mtime, MADE_BY.get(kind, ""), None
    if kind == "converted":
        if (facts := conversions.read_note(path)) is not None:
            made_of = facts.name
            trouble = _trouble_of(facts, path)
        else:
            folder = _folder(path)
            made_of = str(folder or "")
            trouble = _trouble(path, folder)
        with suppress(OSError):
            used = max(used, cache_paths.about(path).stat().st_mtime)
    when = datetime.fromtimestamp(used, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return used, CachedModel(path, trouble is None, trouble, size, when, made_of)


def _trouble_of(facts: conversions.ConversionFacts, model: Path) -> str | None:
    if facts.path != model:
        return "of another version of hybrid"
    newest = folders.commit_of(facts.repository, facts.revision)
    return None if newest in (None, facts.commit) else "a newer commit is here"


def _folder(model: Path) -> Path | None:
    try:
        return Path(json.loads(cache_paths.about(model).read_text(encoding="utf-8"))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _trouble(model: Path, folder: Path | None) -> str | None:
    if folder is None:
        return "of an unknown folder"  # earlier versions did not note the folder; the next use does
    if not folder.is_absolute() or not (folder / "config.json").exists():
        return "its folder is gone"
    try:
        return None if cache_paths.cache_path(folder) == model else "its folder has changed"
    except OSError:
        return None


def remove(wanted: Callable[[CachedModel], bool]) -> list[CachedModel]:
    """Removes the files that `wanted` selects and returns them. Files that cannot be removed stay."""
    removed = [model for model in every() if wanted(model)]
    for model in removed:
        cache_paths.remove(model.path)
    return [model for model in removed if not model.path.exists()]


def tidy() -> None:
    """Removes leftovers of killed conversions, and unusable conversions that were not used for KEEP_DAYS."""
    with suppress(OSError):
        remove_unfinished(cache_paths.cache_dir() / "converted", "*")
    oldest = datetime.fromtimestamp(time.time() - KEEP_DAYS * 86400, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    remove(lambda model: model.trouble is not None and model.last_used < oldest)
