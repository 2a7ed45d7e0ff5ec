"""Files with vision towers (mmproj), and which of them belongs to a GGUF model: by their names."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from . import type_tags

PREFERRED = ("F16", "BF16", "Q8_0", "F32")  # types of one tower, the best first
_WORD = re.compile(r"[-_. ]*mm[-_]?proj[-_. ]*", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_GENERIC = ("", "model", "vision")  # names that name no model


def is_tower(path: str) -> bool:
    """Whether a file of this name holds a tower."""
    name = PurePosixPath(path).name
    return name.lower().endswith(".gguf") and _WORD.search(name) is not None


def chosen(paths: Iterable[str], model: str, *, of_one_model: bool) -> str | None:
    """The tower of `model` among files: mmproj- and the model's name, with any type; or a tower without a model's name,
    if all models have one name; of_one_model: any tower then. Types in the order of PREFERRED, a tower in the model's
    folder first."""
    files = [path for path in paths if path.lower().endswith(".gguf")]
    towers = [path for path in files if is_tower(path)]
    whole, own = PurePosixPath(model), _plain(model)
    found = [path for path in towers if _plain(path) == own]
    if not found and {_plain(path) for path in files if not is_tower(path)} <= {own}:
        found = [path for path in towers if of_one_model or _plain(path) in _GENERIC]

    def order(path: str) -> tuple[int, bool, str]:
        tag = type_tags.plain(type_tags.of_file(path))
        rank = PREFERRED.index(tag) if tag in PREFERRED else len(PREFERRED)
        return rank, PurePosixPath(path).parent != whole.parent, path

    return min(found, key=order, default=None)


def _plain(path: str) -> str:
    """A file's name without its type, the number of its part and the word mmproj."""
    name = _PART.sub("", PurePosixPath(path).name.lower().removesuffix(".gguf"))
    return _WORD.sub("-", type_tags.without(f"{name}.gguf")).strip("-_. ")
