"""A terminal for tests: a program in a pseudo-terminal, and what its screen shows."""

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
PATIENCE = 60  # seconds, on a busy machine
TAB, ENTER, CTRL_C, CTRL_D, UP = "\t", "\r", "\x03", "\x04", "\x1b[A"


class _Screen(pyte.HistoryScreen):
    """Answers what programs ask a terminal."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], object]) -> None:
        super().__init__(columns, rows, history=1000, ratio=0.5)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())


class Terminal:
    """`with Terminal([...]) as t:` a program that runs in one; it is ended with it.

    columns, rows: of the screen. more: variables of its environment.
    """

    def __init__(
        self, command: Sequence[object], columns: int = 80, rows: int = 24, cwd: Path | None = None, **more: str
    ) -> None:
        self.end, other = pty.openpty()
        self.screen = _Screen(columns, rows, lambda data: os.write(self.end, data))
        self._stream = pyte.ByteStream(self.screen)
        self._set_size(columns, rows)
        self.raw = b""  # all that was written
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color", **more},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C and sizes come as signals
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)

    # --- what is done ---
    def type(self, *keys: str) -> None:
        """Each by itself, as fingers do."""
        for text in keys:
            os.write(self.end, text.encode())
            self.pump(0.02)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # --- what is seen ---
    def pump(self, seconds: float) -> bool:
        """Takes what the program writes within some time; False: it has ended."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.end], [], [], left)[0]:
                try:
                    data = os.read(self.end, 65536)
                except OSError:  # Linux: nobody is at the other end any more
                    data = b""
                if not data:
                    return False
                self.raw += data
                self._stream.feed(data)
        return True

    def until(self, seen: Callable[[], Any], what: str = "") -> None:
        """Waits for something to be so."""
        deadline = time.monotonic() + PATIENCE
        while not seen():
            alive = self.pump(0.05)
            assert (alive and time.monotonic() < deadline) or seen(), f"{what or seen} is not so:\n{self.text}"

    def shows(self, text: str) -> None:
        """Waits for a text on the screen."""
        self.until(lambda: text in self.text, f"{text!r} on the screen")

    def ends(self) -> int:
        """Waits for the program; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.pump(0.1):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self.process.wait(PATIENCE)

    @property
    def lines(self) -> list[str]:
        """Of the screen, without spaces at their ends and empty lines at its."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def scrolled_off(self) -> list[str]:
        """Lines above the screen."""
        columns = self.screen.columns
        return ["".join(line[x].data for x in range(columns)).rstrip() for line in self.screen.history.top]

    def colours(self, text: str) -> set[str]:
        """Those of a text that stands once on the screen."""
        ((y, x),) = [(y, line.index(text)) for y, line in enumerate(self.screen.display) if text in line]
        return {self.screen.buffer[y][x + i].fg for i in range(len(text))}


def python(code: str) -> list[str]:
    """A program that may use the modules of tests."""
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "infer" / "answers")]
    return [sys.executable, "-c", f"import sys\nsys.path[:0] = {paths!r}\n{code}"]
