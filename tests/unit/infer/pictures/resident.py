"""The resident memory of this process while something runs, from Linux."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

STATM = Path("/proc/self/statm")
needed = pytest.mark.skipif(not STATM.exists(), reason="Linux says how much memory is in use")


def resident() -> int:
    return int(STATM.read_text().split()[1]) * 4096


class Watch(threading.Thread):
    """The growth of the resident size to its peak, in bytes, while it is open."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.growth, self._before, self._over = 0, resident(), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.001):
            self.growth = max(self.growth, resident() - self._before)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self.join()
