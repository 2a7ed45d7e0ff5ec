"""The GGUF models in a repository, and the choice of one."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from hybrid.quant.ggml.errors import UsageError, shown

from . import type_tags
from .names import Name
from .repository import RepoFile

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
# GGUF files that are no models: projectors for images or sound, importance matrices, adapters, vocabularies.
_NOT_MODELS = re.compile(
    r"mm[-_]?proj|(?<![a-z])(?:i-?matrix|lora|adapter|vocab|control-?vector|cvector)(?![a-z])", re.IGNORECASE
)
# Models that assist another one (drafts, encoders of images); chosen only if there are no others.
_BESIDE_MODELS = re.compile(r"(?<![a-z])(?:mtp|draft|eagle3?|vae|clip)(?![a-z])", re.IGNORECASE)
MOST_LISTED = 40


@dataclass(frozen=True)
class GGUFChoice:
    """A GGUF model. tag: its type, "" if its name has none; files: its parts in order."""

    tag: str
    files: tuple[RepoFile, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


def ggufs(files: Iterable[RepoFile]) -> list[GGUFChoice]:
    """The models among these files, by path. A model with a missing part is left out."""
    files = [file for file in files if _is_gguf(file) and not _NOT_MODELS.search(PurePosixPath(file.path).name)]
    files = [file for file in files if not _BESIDE_MODELS.search(PurePosixPath(file.path).name)] or files
    whole: list[GGUFChoice] = []
    parts: dict[tuple[str, int], dict[int, RepoFile]] = defaultdict(dict)
    for file in sorted(files, key=lambda file: file.path):
        match = _PART.fullmatch(file.path)
        if match is None:
            whole.append(GGUFChoice(type_tags.of_file(file.path), (file,)))
        else:
            parts[match[1], int(match[3])][int(match[2])] = file
    for (stem, count), numbered in parts.items():
        if len(numbered) == count and sorted(numbered) == list(range(1, count + 1)):
            whole.append(GGUFChoice(type_tags.of_file(f"{stem}.gguf"), tuple(numbered[i] for i in sorted(numbered))))
    return sorted(whole, key=lambda choice: choice.files[0].path)


def _is_gguf(file: RepoFile) -> bool:
    return file.path.lower().endswith(".gguf")


def chosen(models: list[GGUFChoice], name: Name) -> GGUFChoice | None:
    """The model that `name` asks for: a file, a type, or else the default type or the nearest in bits.

    None: no such type or file. UsageError: several files have the type.
    """
    if name.file:
        return next((model for model in models if name.file in (file.path for file in model.files)), None)
    if name.type:
        found = of_type(models, name.type)
    else:
        tag = nearest(models)
        found = [model for model in models if model.tag == tag]
    if len(found) > 1:
        listed = ", ".join(shown(model.files[0].path) for model in found[:MOST_LISTED])
        raise UsageError(
            f"{name.repository} has {len(found)} files of type {found[0].tag or 'unknown'}: {listed}. "
            f"Name one: {name.with_choice(shown(found[0].files[0].path))}"
        )
    return found[0] if found else None


def of_type(models: list[GGUFChoice], wanted: str) -> list[GGUFChoice]:
    """The models of exactly this type, or else, if the request names no maker, of types that differ only in their
    maker."""
    tag = type_tags.normal(wanted)
    exact = [model for model in models if model.tag == tag]
    return exact or [model for model in models if model.tag and type_tags.plain(model.tag) == tag]


def nearest(models: list[GGUFChoice]) -> str:
    """The tag nearest to the default type; of two equally near the larger. "" if no name has a type."""
    usual = type_tags.bits(type_tags.DEFAULT)
    assert usual is not None

    def distance(tag: str) -> tuple[bool, float, float, bool]:
        bits = type_tags.bits(tag)
        return bits is None, abs((bits or 0) - usual), -(bits or 0), "-" in tag

    return min({model.tag for model in models}, key=lambda tag: (*distance(tag), tag), default="")


def most_bits(models: list[GGUFChoice]) -> str:
    """The tag with the most bits per weight, if possible at most 16: the best source for other types."""
    known = {model.tag: type_tags.bits(model.tag) or 0.0 for model in models}
    return max(known, key=lambda tag: (known[tag] <= 16, known[tag], tag == "BF16"), default="")


def listed(models: list[GGUFChoice]) -> str:
    """The available types, or file names without types, for an error message."""
    names = [shown(model.tag or model.files[0].path) for model in models]
    names = sorted(set(names), key=lambda tag: (type_tags.bits(tag) or 0.0, tag))
    return ", ".join(names[:MOST_LISTED]) + (
        f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    )
