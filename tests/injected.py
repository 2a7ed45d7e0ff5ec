"""Injects faults: the n-th call of a function of the package, in one thread, raises an exception.

    with Injection(n, ROOT / "infer") as injection:   # in the thread that is to fail
        ...
    print(injection.place)

Every call of a Python function counts. `Injection(0, ...)` only counts calls.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any


class InjectedError(RuntimeError):
    """Raised by an injection only."""


class Injection:
    """n: which call raises, counted from 1; 0: none. Only functions of `folder` count, without the files `but`."""

    def __init__(self, n: int, folder: Path, but: tuple[str, ...] = ()) -> None:
        self.n, self.folder, self.but = n, str(folder) + "/", but
        self.n_calls = 0
        self.place = ""

    def start(self) -> None:
        """Call it in the thread that is to fail."""
        sys.setprofile(self._called)

    def stop(self) -> None:
        """Call it in the same thread."""
        sys.setprofile(None)

    def __enter__(self) -> "Injection":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(self.folder) or code.co_filename.rpartition("/")[2] in self.but:
            return
        self.n_calls += 1
        if self.n_calls == self.n:
            sys.setprofile(None)
            self.place = f"{code.co_filename.removeprefix(self.folder)}:{code.co_qualname}"
            raise InjectedError(f"injected at call {self.n}")
