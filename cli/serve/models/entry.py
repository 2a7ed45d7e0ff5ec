"""A model that a server can load: its names, its file, and whether it is loaded."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import HybridError
from hybrid.reporting import Reporter

from ..served import Served
from .facts import FileFacts, facts_of

WORKING_BYTES = 64 << 20  # for a model that has not been loaded yet, beside its file


class State(StrEnum):
    """Whether a model answers."""

    ASLEEP = "asleep"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"  # it did not load, or a fault has ended it; the next request tries again


@dataclass(eq=False)
class ModelEntry:
    """A model of a server. All of it is used in the event loop's thread, except `opened` and `closed`.

    name      in answers and lists
    aliases   other names; `*` and `?` stand for any characters
    adapters  names of its LoRA adapters: `base:adapter` and the adapter's name alone also mean this model
    path      of the file; None: it is not known before the model is loaded
    opener    loads the model, with notes about that; the context's end unloads it
    pinned    it makes no room for others, and does not fall asleep
    idle      seconds without a request after which it falls asleep; None: never
    keeps     its texts are on disk while it sleeps
    why       of a failure
    n_users   requests in progress that use it; waiting: that wait for it to be loaded
    leaves    it makes room for another model: new requests wait until it is loaded again
    props     what GET /props said when it fell asleep; None: it was never loaded
    """

    name: str
    path: Path | None
    opener: Callable[[Reporter], AbstractContextManager[Served]]
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    pinned: bool = False
    idle: float | None = None
    keeps: bool = False
    served: Served | None = None
    why: str = ""
    n_users: int = 0
    waiting: "list[asyncio.Future[Served]]" = field(default_factory=list)
    leaves: bool = False
    props: dict[str, Any] | None = None
    n_loads: int = 0
    load_seconds: float = 0.0
    last_used: float = field(default_factory=time.monotonic)
    loading: "asyncio.Task[None] | None" = None
    measured: int = 0
    """Bytes of memory that it took the last time."""
    _context: ExitStack = field(default_factory=ExitStack)

    @property
    def state(self) -> State:
        if self.served is not None:
            return State.LOADED if self.served.service.is_open else State.FAILED
        if self.loading is not None:
            return State.LOADING
        return State.FAILED if self.why else State.ASLEEP

    @property
    def is_used(self) -> bool:
        """Whether requests use it, or answers go on without a request."""
        return self.n_users > 0 or (self.served is not None and self.served.n_jobs > 0)

    @property
    def facts(self) -> FileFacts:
        """What its file says, without loading it."""
        return FileFacts() if self.path is None else facts_of(self.path)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it is expected to take."""
        return max(self.measured, self.facts.nbytes + WORKING_BYTES)

    def is_called(self, name: str) -> bool:
        """Whether the name is this model's: its own, an alias, its file's, or an adapter's."""
        return self.canonical(name) is not None

    def canonical(self, name: str) -> str | None:
        """The name of this model, or of its adapter (`base:adapter`), that a request means; None: of another model."""
        base, between, adapter = name.rpartition(":")
        if self._is_base(name):
            return self.name
        if self.adapters and (name in self.adapters or (between and self._is_base(base))):
            return f"{self.name}:{adapter}"
        return None

    def _is_base(self, name: str) -> bool:
        if name == self.name or any(fnmatchcase(name, alias) for alias in self.aliases):
            return True
        return self.path is not None and name in (self.path.name, self.path.stem, str(self.path))

    def without_folder(self, error: Exception) -> str:
        """The message of an error, without the folder of the model's file: clients do not learn folders."""
        text = str(error)
        for folder in () if self.path is None else (self.path.parent, self.path.parent.resolve()):
            text = text.replace(f"{folder}/", "") if folder.name else text
        return text

    def opened(self, reporter: Reporter) -> Served:
        """Loads the model. Call it in a thread. HybridError, OSError, MemoryError: it does not load."""
        begin = time.perf_counter()
        context = ExitStack()
        try:
            served = context.enter_context(self.opener(reporter))
        except BaseException:
            context.close()
            raise
        self._context, self.load_seconds = context, time.perf_counter() - begin
        return served

    def closed(self) -> str:
        """Unloads the model, after its texts are on disk. Call it in a thread. Returns why that failed, or ""."""
        try:
            self._context.close()
        except HybridError as error:
            return str(error)
        return ""
