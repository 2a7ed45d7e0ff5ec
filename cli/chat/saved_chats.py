"""Kept chats: one state file each, written after every turn; the newest few per model stay, as far as all together fit
a budget."""

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

KEPT = 10  # chats per model
BUDGET = 2 << 30  # bytes of all chats together; one of 8192 tokens has 50 to 250 MiB
SUFFIX = ".state"
TURN_CHECKPOINTS = 32 << 20  # bytes of checkpoints written after a turn: more would make the user wait
_begun = itertools.count()  # numbers the chats of this process


@dataclass
class Keeper:
    """Saves a conversation to `path`. A crash loses at most the answer that was being generated.

    among_chats: the file is a kept chat, not one that the user named.
    """

    conversation: Conversation
    path: Path
    among_chats: bool
    _found: tuple[object, ...] = field(init=False)  # contents of the file at the beginning
    _saved: tuple[object, ...] = field(init=False)  # contents of the file now

    def __post_init__(self) -> None:
        self._found = self._saved = self._now()

    def _now(self) -> tuple[object, ...]:
        """Values that change whenever the conversation does."""
        turns = self.conversation.turns
        heads: list[Turn | None] = list(turns.branches.values())
        talk = self.conversation
        return turns, len(turns.all), turns.branch, [*turns.branches], heads, talk.system, dict(talk.settings)

    @property
    def is_saved(self) -> bool:
        """Whether the file has turns."""
        return self.path.exists()

    def after_turn(self) -> None:
        """Saves new turns. Raises StateError or OSError if they cannot be written; the file is then unchanged."""
        if self._now() != self._saved and self.conversation.turns.all:
            self._write(TURN_CHECKPOINTS)

    def at_end(self) -> int | None:
        """Saves everything, unless nothing changed; returns the file's size. A forgotten chat is not saved."""
        if self._found == self._saved == self._now():
            return None
        if self.among_chats and not self.conversation.turns.all:
            self.path.unlink(missing_ok=True)
            return None
        return self._write(SAVED_CHECKPOINTS)

    def moved_to(self, conversation: Conversation) -> "Keeper":
        """A keeper for the conversation continued with another model: a kept chat becomes a new one of that model, and
        the old file stays."""
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
    """The kept chats of a model file, the newest first."""
    return _newest_first(folder().glob(_stem(model) + "-*" + SUFFIX))


def last(model: "LoadedModel") -> Path:
    """The chat that --continue continues."""
    chats = of_model(model)
    if not chats:
        raise UsageError(f"there is no earlier chat with {model.path.name}. Start one: hybrid run {model.path}")
    return chats[0]


def new(model: "LoadedModel") -> Path:
    """A path for a new kept chat."""
    when = time.strftime("%Y%m%d-%H%M%S")
    n = next(_begun)  # a process may start several chats in one second, by switching models
    return folder() / f"{_stem(model)}-{when}-{os.getpid()}{f'-{n}' if n else ''}{SUFFIX}"


def make_room(model: "LoadedModel") -> None:
    """Removes the model's oldest chats beyond KEPT, the oldest of all models beyond BUDGET (never the newest), and
    unfinished files of killed processes."""
    from hybrid.quant.ggml.replacing import remove_unfinished

    for path in of_model(model)[KEPT:]:
        path.unlink(missing_ok=True)
    total = 0
    for n, path in enumerate(every()):
        total += path.stat().st_size
        if n and total > BUDGET:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        remove_unfinished(folder(), f"{glob.escape(_stem(model))}-*{SUFFIX}")


def named(name: str) -> Path:
    """A state file by path, or a kept chat by name."""
    for path in (Path(name), folder() / name, folder() / (name + SUFFIX)):
        if path.is_file():
            return path
    raise UsageError(f"{name}: no such state file or kept chat. `hybrid state list` shows the chats.")


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda p: (p.stat().st_mtime, p.name), reverse=True)


def _stem(model: "LoadedModel") -> str:
    # a hash of the path keeps models of the same name apart, and `name-*` matches one model only
    return f"{model.path.stem[:40]}-{hashlib.sha256(str(model.path.resolve()).encode()).hexdigest()[:8]}"
