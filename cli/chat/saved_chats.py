"""Chats that are kept: one state file each, written after every turn, the newest few of every model."""

import contextlib
import glob
import hashlib
import itertools
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid import cache_paths
from hybrid.infer.answers.conversations.chat_file import SAVED_CHECKPOINTS
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.conversations.turns import Turn
from hybrid.quant.ggml.errors import UsageError

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel

KEPT = 10  # chats of one model
SUFFIX = ".state"
TURN_CHECKPOINTS = 32 << 20  # bytes of checkpoints that are written after a turn: nobody waits for more
_begun = itertools.count()  # chats of this process


@dataclass
class Keeper:
    """Keeps a conversation in `path`, whatever ends it: at most the answer that is being generated is lost.

    among_chats: the file is one of the kept chats, not one that the user named.
    """

    conversation: Conversation
    path: Path
    among_chats: bool
    _found: tuple[object, ...] = field(init=False)  # what the file held at the beginning
    _saved: tuple[object, ...] = field(init=False)  # what it holds now

    def __post_init__(self) -> None:
        self._found = self._saved = self._now()

    def _now(self) -> tuple[object, ...]:
        """What differs when the conversation does."""
        turns = self.conversation.turns
        heads: list[Turn | None] = list(turns.branches.values())
        return turns, len(turns.all), turns.branch, [*turns.branches], heads, self.conversation.system

    def after_turn(self) -> None:
        """Write what is new. StateError or OSError when that cannot be; the file is then as it was."""
        if self._now() != self._saved and self.conversation.turns.all:
            self._write(TURN_CHECKPOINTS)

    def at_end(self) -> int | None:
        """Write everything worth it, unless nothing changed; returns the file's size. A forgotten chat is not kept."""
        if self._found == self._saved == self._now():
            return None
        if self.among_chats and not self.conversation.turns.all:
            self.path.unlink(missing_ok=True)
            return None
        return self._write(SAVED_CHECKPOINTS)

    def moved_to(self, conversation: Conversation) -> "Keeper":
        """Of a conversation that goes on with another model: a kept chat is that model's then, and this one stays."""
        path = new(conversation.model) if self.among_chats else self.path
        return Keeper(conversation, path, self.among_chats)

    def _write(self, checkpoints: int) -> int:
        if self.among_chats:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = self.conversation.save(self.path, checkpoints)
        if self.among_chats:
            make_room(self.conversation.model)
        self._saved = self._now()
        return size


def folder() -> Path:
    return cache_paths.state_dir() / "chats"


def every() -> list[Path]:
    """All kept chats, the newest first."""
    return _newest_first(folder().glob("*" + SUFFIX))


def of_model(model: "LoadedModel") -> list[Path]:
    """Those of one model file, the newest first."""
    return _newest_first(folder().glob(_stem(model) + "-*" + SUFFIX))


def last(model: "LoadedModel") -> Path:
    """What --continue goes on with."""
    chats = of_model(model)
    if not chats:
        raise UsageError(f"there is no earlier chat with {model.path.name}. Start one: hybrid run {model.path}")
    return chats[0]


def new(model: "LoadedModel") -> Path:
    """Where a chat that begins now will be kept."""
    when = time.strftime("%Y%m%d-%H%M%S")
    n = next(_begun)  # this process may begin several in a second: with one model, another, and the first again
    return folder() / f"{_stem(model)}-{when}-{os.getpid()}{f'-{n}' if n else ''}{SUFFIX}"


def make_room(model: "LoadedModel") -> None:
    """Remove a model's oldest chats beyond KEPT, and unfinished files of killed processes."""
    from hybrid.quant.ggml.replacing import remove_unfinished

    for path in of_model(model)[KEPT:]:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        remove_unfinished(folder(), f"{glob.escape(_stem(model))}-*{SUFFIX}")


def named(name: str) -> Path:
    """A state file by its path, or a kept chat by its name."""
    for path in (Path(name), folder() / name, folder() / (name + SUFFIX)):
        if path.is_file():
            return path
    raise UsageError(f"{name}: no such state file or kept chat. `hybrid state list` shows the chats.")


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda p: (p.stat().st_mtime, p.name), reverse=True)


def _stem(model: "LoadedModel") -> str:
    # of the path, so that models of the same name stay apart, and `name-*` cannot mean another model
    return f"{model.path.stem[:40]}-{hashlib.sha256(str(model.path.resolve()).encode()).hexdigest()[:8]}"
