"""Helper processes that compile kernels; numba compiles under one lock, so threads would not help.

A helper prints a line with the files of all kernels that it can compile. Then it reads one of these from a line,
compiles that kernel into the disk cache and prints a line, until its input ends (`help_compiling`).
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from types import TracebackType
from typing import Generic, Protocol, TypeVar


class Compiled(Protocol):
    """The part of a kernel that helpers need."""

    @property
    def file(self) -> str: ...

    def compile(self) -> None: ...


K = TypeVar("K", bound=Compiled)


class Helpers(Generic[K]):
    """A queue of kernels to compile, handed out in order to `n` helpers, by a thread each, and to the caller.

    command  arguments of Python for a process that runs `help_compiling`
    """

    def __init__(self, kernels: Iterable[K], command: Sequence[str], n: int) -> None:
        self._left, self._changed, self._under_way = list(kernels), Condition(), 0
        self._processes: list[tuple[subprocess.Popen[str], Thread]] = []
        for _ in range(n):
            with suppress(OSError):  # then there are fewer helpers
                process = subprocess.Popen(
                    [sys.executable, *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # more would spin, see cli/main.py
                )
                thread = Thread(target=self._hand_out, args=(process,), daemon=True)
                self._processes.append((process, thread))
                thread.start()

    def __len__(self) -> int:
        """Number of kernels not handed out."""
        return len(self._left)

    def take(self) -> K | None:
        """The next kernel, for the caller to compile; None if all are handed out."""
        with self._changed:
            return self._left.pop(0) if self._left else None

    def _take_one_of(self, files: set[str]) -> K | None:
        with self._changed:
            item = next((item for item in self._left if item.file in files), None)
            if item is not None:
                self._left.remove(item)
                self._under_way += 1
            return item

    def wait(self) -> None:
        """Wait until no helper compiles. Kernels that a helper did not finish can then be taken again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def _hand_out(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None and process.stdout is not None
        files = set(process.stdout.readline().split())
        done = True
        while done and (item := self._take_one_of(files)):
            try:
                process.stdin.write(f"{item.file}\n")
                process.stdin.flush()
                done = bool(process.stdout.readline())
            except OSError:
                done = False
            with self._changed:
                self._under_way -= 1
                if not done:
                    self._left.insert(0, item)
                self._changed.notify_all()

    def __enter__(self) -> "Helpers[K]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._left.clear()
        for process, _ in self._processes:
            process.kill()
        for process, thread in self._processes:
            thread.join()
            assert process.stdin is not None and process.stdout is not None
            with suppress(OSError):  # unsent input
                process.stdin.close()
            process.stdout.close()
            process.wait()


def help_compiling(kernels: Iterable[Compiled]) -> None:
    """Run a helper process: compile the kernels that standard input names."""
    by_file = {item.file: item for item in kernels}

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(" ".join(by_file))
    for line in sys.stdin:
        by_file[line.strip()].compile()
        say("done")
