"""What a worker's process holds from one task to the next: each model once, opened when the first task asks for it.

    def a_task(asked: ModelAsked) -> float:       # runs on a worker
        with whole(asked) as model: ...           # nobody else computes with it meanwhile

Tasks of one process run in threads of Dask; a model is used by one at a time. Nothing here imports Dask.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import ClusterError

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel


class Holdable(Protocol):
    """A thing that can be held."""

    def close(self) -> None:
        """Gives back what it has."""


T = TypeVar("T", bound=Holdable)


class Holding:
    """Things of a process by key, each made once, by whoever needs it first; the others wait for it.

    n_threads: of models that say 0
    """

    def __init__(self) -> None:
        self.n_threads = 1
        self._users = 0
        self._things: dict[object, Any] = {}
        self._shared: dict[str, Any] = {}
        self._busy: dict[object, threading.Lock] = {}
        self._lock = threading.Lock()

    def thing(self, key: object, make: Callable[[], T]) -> T:
        """That of `key`, made by `make` if there is none. It is closed (`close`) by `forget` or `release`.

        ClusterError: whom it was for has gone (a task that was begun goes on when its run is interrupted), so that
        nobody would close it.
        """
        with self.lock_of(("made", key)):
            with self._lock:
                if key in self._things:
                    found: T = self._things[key]
                    return found
                self._check_used()
            made = make()
            try:
                with self._lock:
                    self._check_used()
                    self._things[key] = made
            except ClusterError:
                made.close()
                raise
            return made

    def _check_used(self) -> None:
        if self._users <= 0:
            raise ClusterError("nobody uses what this worker holds: whoever asked for it has ended.")

    def lock_of(self, key: object) -> threading.Lock:
        """One for each key."""
        with self._lock:
            return self._busy.setdefault(key, threading.Lock())

    def share(self, key: str, value: object) -> None:
        """What tasks that name the key work with."""
        self._shared[key] = value

    def shared(self, key: str) -> Any:
        """What the client has shared (`ClusterConnection.share`). ClusterError: nothing, or it has ended."""
        if key not in self._shared:
            raise ClusterError(f"this worker knows nothing of {key}: whoever asked for it has ended.")
        return self._shared[key]

    def forget(self, key: str) -> None:
        """What was shared under the key, and what was made of it: it is closed then, whoever else forgets it."""
        self._shared.pop(key, None)
        with self.lock_of(("made", key)):
            if (thing := self._things.pop(key, None)) is not None:
                thing.close()

    def change(self, key: str, how: Callable[[Any], None]) -> None:
        """What was made under the key, if anything was."""
        if (thing := self._things.get(key)) is not None:
            how(thing)

    def use(self) -> None:
        """Somebody works with what is here, until `release`."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """The last who goes closes everything, the youngest first: what was made of a model goes before it."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            things, self._things = self._things, {}
        for thing in reversed(things.values()):
            thing.close()


HERE = Holding()  # of this process


def open_model(asked: ModelAsked) -> "LoadedModel":
    """The model of this process, loaded now if it was not. ClusterError: its file is not here, or is another one."""

    def load() -> "LoadedModel":
        from hybrid.infer import LoadedModel

        path, options = asked.found()
        return LoadedModel.load(path, replace(options, n_threads=options.n_threads or HERE.n_threads))

    return HERE.thing(asked, load)


@contextmanager
def whole(asked: ModelAsked) -> "Iterator[LoadedModel]":
    """The model, which no other task uses meanwhile."""
    with HERE.lock_of(("used", asked)):
        yield open_model(asked)
