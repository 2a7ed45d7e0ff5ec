"""The name of a quantized file, if no name was given."""

import re
from pathlib import Path

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.role_mixes import ROLE_MIXES
from hybrid.quant.ggml.split import stem_of
from hybrid.quant.ggml.types import FileType
from hybrid.quant.planning import target_name

_NAMES = sorted([*FileType.__members__, *ROLE_MIXES], key=len, reverse=True)
_TYPE = re.compile(rf"[-_.]({'|'.join(_NAMES)})$", re.IGNORECASE)


def beside(model: Path, target: str | None) -> Path:
    """MODEL-TYPE.gguf beside a GGUF file or a folder, without an earlier type at the end of the model's name.

    UsageError: `target` is no type or None, `model` is a name on a hub, or the file exists already.
    """
    if target is None:
        raise UsageError(f"the name of the output is missing: hybrid quantize {shown(model)} OUT.gguf ...")
    kind = target_name(target)
    command = f"hybrid quantize {shown(model)} OUT.gguf {kind}"
    if not model.exists():
        raise UsageError(f"{shown(model)}: no such file or folder. A model of a hub needs a name here: {command}")
    path = model.resolve() if model.is_dir() else model
    found = path.parent / f"{_TYPE.sub('', stem_of(path))}-{kind}.gguf"
    if found.exists():
        raise UsageError(f"{shown(found)} exists already. To replace it, or to write another file: {command}")
    return found
