"""Models that a worker's process keeps between tasks; each is opened by the first task that needs it.

    def a_task(asked: ModelAsked) -> float:       # runs on a worker
        with whole(asked) as model: ...           # no other task uses it in this block

Tasks of one process run in threads of Dask; only one at a time uses a model. Nothing here imports Dask.
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
    """A thing that can be held and closed."""

    def close(self) -> None:
        """Frees its resources."""


T = TypeVar("T", bound=Holdable)


class Holding:
    """Things of a process by key. The first thread that needs one makes it; others wait for it.

    n_threads: for models that ask for 0
    """

    def __init__(self) -> None:
        self.n_threads = 1
        self._users = 0
        self._things: dict[object, Any] = {}
        self._shared: dict[str, Any] = {}
        self._busy: dict[object, threading.Lock] = {}
        self._lock = threading.Lock()

    def thing(self, key: object, make: Callable[[], T]) -> T:
        """The thing of this key; `make` makes it if it is missing. `forget` and `release` close it.

        ClusterError: the client has gone (tasks go on when their run is interrupted), so nobody would close it.
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
            raise ClusterError("nobody uses what this worker holds: its client has ended.")

    def lock_of(self, key: object) -> threading.Lock:
        """The lock of this key."""
        with self._lock:
            return self._busy.setdefault(key, threading.Lock())

    def share(self, key: str, value: object) -> None:
        """Stores a value for the tasks that name the key."""
        self._shared[key] = value

    def shared(self, key: str) -> Any:
        """The value that the client has shared (`ClusterConnection.share`). Raises ClusterError if it was never shared,
        or was dropped."""
        if key not in self._shared:
            raise ClusterError(f"this worker knows nothing of {key}: its client has ended.")
        return self._shared[key]

    def forget(self, key: str) -> None:
        """Drops the shared value of the key, and closes the thing made from it."""
        self._shared.pop(key, None)
        with self.lock_of(("made", key)):
            if (thing := self._things.pop(key, None)) is not None:
                thing.close()

    def change(self, key: str, how: Callable[[Any], None]) -> None:
        """Applies `how` to the thing of the key, if it was made."""
        if (thing := self._things.get(key)) is not None:
            how(thing)

    def use(self) -> None:
        """Counts a user of this process's things, until `release`."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """The last user closes everything, the newest first: things made from a model are closed before it."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            things, self._things = self._things, {}
        for thing in reversed(things.values()):
            thing.close()


HERE = Holding()  # the things of this process


def open_model(asked: ModelAsked) -> "LoadedModel":
    """The model in this process, loaded if necessary. ClusterError: its file is missing here, or differs."""

    def load() -> "LoadedModel":
        from hybrid.infer import LoadedModel

        path, options = asked.found()
        return LoadedModel.load(path, replace(options, n_threads=options.n_threads or HERE.n_threads))

    return HERE.thing(asked, load)


@contextmanager
def whole(asked: ModelAsked) -> "Iterator[LoadedModel]":
    """The model, reserved for this task."""
    with HERE.lock_of(("used", asked)):
        yield open_model(asked)
