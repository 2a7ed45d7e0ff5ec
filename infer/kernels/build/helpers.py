"""Other processes that compile kernels, too: numba compiles under one lock, so threads would not help.

A helper is a process that says which kernels it can compile, their files in a line. Then it is told one of these, a
line, compiles it into the disk cache and says a line again, until its input ends (`help_compiling`).
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from types import TracebackType
from typing import Generic, Protocol, TypeVar


class Compiled(Protocol):
    """What helpers know of a kernel."""

    @property
    def file(self) -> str: ...

    def compile(self) -> None: ...


K = TypeVar("K", bound=Compiled)


class Helpers(Generic[K]):
    """Kernels that are to be compiled, handed out in their order: to each helper by a thread, and to the caller.

    command  arguments of Python for a process that ends in `help_compiling`
    """

    def __init__(self, kernels: Iterable[K], command: Sequence[str], n: int) -> None:
        self._left, self._changed, self._under_way = list(kernels), Condition(), 0
        self._processes: list[tuple[subprocess.Popen[str], Thread]] = []
        for _ in range(n):
            with suppress(OSError):  # then there are fewer
                process = subprocess.Popen(
                    [sys.executable, *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                thread = Thread(target=self._hand_out, args=(process,), daemon=True)
                self._processes.append((process, thread))
                thread.start()

    def __len__(self) -> int:
        """Kernels that nobody has."""
        return len(self._left)

    def take(self) -> K | None:
        """The next kernel, for the caller to compile; None if helpers have taken the rest."""
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
        """Until no helper compiles any more. What one did not finish can be taken again."""
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
            with suppress(OSError):  # the helper has gone: it reads nothing more
                process.stdin.close()
            process.stdout.close()
            process.wait()


def help_compiling(kernels: Iterable[Compiled]) -> None:
    """A helper's part: of these kernels the ones that it is told to compile."""
    by_file = {item.file: item for item in kernels}

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(" ".join(by_file))
    for line in sys.stdin:
        by_file[line.strip()].compile()
        say("done")
