"""Chats that were kept when they ended: one state file each, the newest few of every model."""

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import UsageError

from . import models

if TYPE_CHECKING:
    from hybrid.infer import Model

KEPT = 10  # chats of one model
SUFFIX = ".state"


def folder() -> Path:
    return models.state_dir() / "chats"


def every() -> list[Path]:
    """All kept chats, the newest first."""
    return _newest_first(folder().glob("*" + SUFFIX))


def of_model(model: "Model") -> list[Path]:
    """Those of one model file, the newest first."""
    return _newest_first(folder().glob(_stem(model) + "-*" + SUFFIX))


def last(model: "Model") -> Path:
    """What --continue goes on with."""
    found = of_model(model)
    if not found:
        raise UsageError(f"there is no earlier chat with {model.path.name}. Start one: hybrid run {model.path}")
    return found[0]


def new(model: "Model") -> Path:
    """Where a chat that begins now will be kept."""
    when = time.strftime("%Y%m%d-%H%M%S")
    return folder() / f"{_stem(model)}-{when}-{os.getpid()}{SUFFIX}"


def make_room(model: "Model") -> None:
    """Remove the oldest chats of a model beyond KEPT."""
    for path in of_model(model)[KEPT:]:
        path.unlink(missing_ok=True)


def named(name: str) -> Path:
    """A state file by its path, or a kept chat by its name."""
    for path in (Path(name), folder() / name, folder() / (name + SUFFIX)):
        if path.is_file():
            return path
    raise UsageError(f"{name}: no such state file or kept chat. `hybrid state list` shows the chats.")


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda p: (p.stat().st_mtime, p.name), reverse=True)


def _stem(model: "Model") -> str:
    # of the path, so that models of the same name stay apart, and `name-*` cannot mean another model
    return f"{model.path.stem[:40]}-{hashlib.sha256(str(model.path.resolve()).encode()).hexdigest()[:8]}"
