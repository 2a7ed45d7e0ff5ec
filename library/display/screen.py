"""Progress bars and notes on stderr or, in a notebook, in its cell. Imports rich only to draw in a terminal."""

import sys
import time
from types import TracebackType
from typing import Self

from hybrid.quant.ggml.byte_sizes import size_text

from ..reporting import Reporter
from .lines import count, duration, is_screen, note, one_line
from .notebook import Amount, NotebookBar, is_notebook

FIRST_LINE = 10.0  # seconds after which progress is told where there is no terminal
LONGEST_PAUSE = 300.0  # seconds between two lines


class ProgressBar:
    """A bar with rate and time left, on stderr if that is a terminal, or in a notebook's cell; otherwise a line on
    stderr now and then.

    Called as `progress(label, done, total)` in units of `unit` ("bytes", "tokens", "kernels"). Appears only after
    `delay` seconds, or FIRST_LINE.
    """

    def __init__(self, label: str, unit: str = "", delay: float = 0.3) -> None:
        self._label, self._unit, self._delay = label, unit, delay
        self._in_notebook = is_notebook()
        self._in_lines = not self._in_notebook and not is_screen(sys.stderr)
        if self._in_lines:
            self._delay = FIRST_LINE
        self._start = time.monotonic()
        self._bar: _TerminalBar | NotebookBar | _Lines | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __call__(self, label: str, done: int, total: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._start < self._delay:
                return
            self._bar = self._made()
        self._bar.show(one_line(label) or self._label, done, total)

    def _made(self) -> "_TerminalBar | NotebookBar | _Lines":
        if self._in_notebook:
            return NotebookBar(self._amount)
        return _Lines(self._amount) if self._in_lines else _TerminalBar(self._label, self._amount)

    def step(self, done: int, total: int) -> None:
        """For callbacks without a label."""
        self(self._label, done, total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _amount(self, done: float, total: float, per_second: float | None) -> str:
        show = size_text if self._unit == "bytes" else count
        unit = "" if self._unit == "bytes" else f" {self._unit}"
        text = f"{show(done)} of {show(total)}{unit}"
        return f"{text}, {show(per_second)}{unit}/s" if per_second else text


class _Lines:
    """Notes in a file or pipe: one at once, the next after FIRST_LINE seconds, then after ever longer pauses."""

    def __init__(self, amount: Amount) -> None:
        self._amount, self._pause, self._due = amount, FIRST_LINE, 0.0
        self._total, self._last, self._begun = 0, 0, time.monotonic()

    def show(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if total != self._total or done < self._last:  # another stage, with its own rate
            self._total, self._begun = total, now
        self._last = done
        if now < self._due:
            return
        self._due, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        spent = now - self._begun
        left = f", about {duration(spent * (total - done) / done)} left" if done and spent > 1 else ""
        note(f"{label}: {self._amount(done, total, None)}{left}")

    def stop(self) -> None:
        pass


class _TerminalBar:
    """A bar drawn by rich. amount: text made of (done, total, per second)."""

    def __init__(self, label: str, amount: Amount) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.progress import Task as RichTask
        from rich.text import Text

        class Done(ProgressColumn):
            def render(self, task: RichTask) -> Text:
                return Text(amount(task.completed, task.total or 0, task.speed))

        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            Done(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(label, total=None)
        self._last = sys.maxsize

    def show(self, label: str, done: int, total: int) -> None:
        if done < self._last:  # another stage, with its own total and rate
            self._bar.reset(self._task, completed=done, total=total)
        self._last = done
        self._bar.update(self._task, completed=done, total=total, description=label)

    def stop(self) -> None:
        self._bar.stop()


SCREEN = Reporter(note, ProgressBar)
