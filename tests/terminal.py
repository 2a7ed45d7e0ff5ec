"""A terminal for tests: runs a program in a pseudo-terminal and shows its screen."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60  # seconds, for a busy machine
TAB, ENTER, CTRL_C, CTRL_D, UP = "\t", "\r", "\x03", "\x04", "\x1b[A"


class _Screen(pyte.HistoryScreen):
    """A screen that answers the queries that programs send to terminals."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], object]) -> None:
        super().__init__(columns, rows, history=1000, ratio=0.5)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())


class Terminal:
    """`with Terminal([...]) as t:` runs a program in a terminal, and ends it afterwards.

    columns, rows: of the screen. more: environment variables.
    """

    def __init__(
        self, command: Sequence[object], columns: int = 80, rows: int = 24, cwd: Path | None = None, **more: str
    ) -> None:
        self.end, other = pty.openpty()
        self.screen = _Screen(columns, rows, lambda data: os.write(self.end, data))
        self._stream = pyte.ByteStream(self.screen)
        self._set_size(columns, rows)
        self.raw = b""  # all output
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color", **more},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C and resizes arrive as signals
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)

    # --- input ---
    def type(self, *keys: str) -> None:
        """Type each key separately."""
        for text in keys:
            os.write(self.end, text.encode())
            self.pump(0.02)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # --- output ---
    def pump(self, seconds: float) -> bool:
        """Read the program's output for some time. Returns False if the program has ended."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.end], [], [], left)[0]:
                try:
                    data = os.read(self.end, 65536)
                except OSError:  # Linux: the other end is closed
                    data = b""
                if not data:
                    return False
                self.raw += data
                self._stream.feed(data)
        return True

    def until(self, seen: Callable[[], Any], what: str = "") -> None:
        """Wait until `seen()` is true."""
        deadline = time.monotonic() + PATIENCE
        while not seen():
            alive = self.pump(0.05)
            assert (alive and time.monotonic() < deadline) or seen(), f"{what or seen} is not so:\n{self.text}"

    def shows(self, text: str) -> None:
        """Wait for a text on the screen."""
        self.until(lambda: text in self.text, f"{text!r} on the screen")

    def ends(self) -> int:
        """Wait for the program's end; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.pump(0.1):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self.process.wait(PATIENCE)

    @property
    def lines(self) -> list[str]:
        """Lines of the screen without trailing spaces and trailing empty lines."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def scrolled_off(self) -> list[str]:
        """Lines that have scrolled off the screen."""
        columns = self.screen.columns
        return ["".join(line[x].data for x in range(columns)).rstrip() for line in self.screen.history.top]

    def colours(self, text: str) -> set[str]:
        """The colours of a text that occurs once on the screen."""
        ((y, x),) = [(y, line.index(text)) for y, line in enumerate(self.screen.display) if text in line]
        return {self.screen.buffer[y][x + i].fg for i in range(len(text))}


def python(code: str) -> list[str]:
    """The command of a Python program that may import modules of tests."""
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "infer" / "answers")]
    return [sys.executable, "-c", f"import sys\nsys.path[:0] = {paths!r}\n{code}"]
