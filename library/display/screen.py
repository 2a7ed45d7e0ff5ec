"""Progress bars and notes on stderr or, in a notebook, in its cell. Imports rich only to draw in a terminal."""

import sys
import time
from types import TracebackType
from typing import Self

from hybrid.quant.ggml.byte_sizes import size_text

from ..reporting import Reporter
from .lines import count, is_screen, note, one_line
from .notebook import Amount, NotebookBar, is_notebook


class ProgressBar:
    """A bar with rate and time left, on stderr if that is a terminal, or in a notebook's cell; otherwise silent.

    Called as `progress(label, done, total)` in units of `unit` ("bytes", "tokens", "kernels"). Appears only after
    `delay`
    seconds.
    """

    def __init__(self, label: str, unit: str = "", delay: float = 0.3) -> None:
        self._label, self._unit, self._delay = label, unit, delay
        self._in_notebook = is_notebook()
        self._shown = self._in_notebook or is_screen(sys.stderr)
        self._start = time.monotonic()
        self._bar: _TerminalBar | NotebookBar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __call__(self, label: str, done: int, total: int) -> None:
        if not self._shown:
            return
        if self._bar is None:
            if time.monotonic() - self._start < self._delay:
                return
            self._bar = NotebookBar(self._amount) if self._in_notebook else _TerminalBar(self._label, self._amount)
        self._bar.show(one_line(label) or self._label, done, total)

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
