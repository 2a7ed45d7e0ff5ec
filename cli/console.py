"""What the commands put on the screen: text, notes, tables, progress. The only importer of rich, when it draws.

Results go to stdout; notes, progress and errors go to stderr, so that `hybrid run -p ... > file` keeps text only.
"""

import dataclasses
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from hybrid.quant.ggml.byte_sizes import size_text

from .screen.notebook import Amount, NotebookBar, is_notebook

_HARMLESS = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {ord("\r"): None}


def out(text: str = "", end: str = "\n") -> None:
    """A line of the result, on stdout."""
    print(text, end=end, flush=True)


def note(text: str = "") -> None:
    """A line about the work, on stderr."""
    print(dim(text, sys.stderr), file=sys.stderr, flush=True)


def notes(sentences: Iterable[str]) -> None:
    """What a conversion could not keep, a line each on stderr."""
    for sentence in sentences:
        note(f"note: {sentence}")


def paragraph(text: str) -> None:
    """A longer note, broken between words."""
    note(folded(text))


def folded(text: str, indent: int = 0) -> str:
    """A note in lines that are broken between words where stderr is a terminal. indent: of all but the first."""
    if not sys.stderr.isatty():
        return text
    import textwrap

    width = max(20 + indent, min(100, shutil.get_terminal_size().columns))
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def error(text: str) -> None:
    """An error, as one line."""
    print(f"{_styled('error:', '1;31', sys.stderr)} {one_line(text)}", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Newlines become spaces and control characters (terminal escapes in file names) become `?`."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def dim(text: str, stream: TextIO | None = None) -> str:
    return _styled(text, "2", stream or sys.stdout) if text else text


def bold(text: str, stream: TextIO | None = None) -> str:
    return _styled(text, "1", stream or sys.stdout)


def _styled(text: str, code: str, stream: TextIO) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if has_colours(stream) else text


def is_screen(stream: TextIO) -> bool:
    """Whether it is a terminal that can write a line again."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def has_colours(stream: TextIO) -> bool:
    """Whether it is a terminal that shows colours, and nobody has forbidden them (https://no-color.org)."""
    return is_screen(stream) and not os.environ.get("NO_COLOR")


def harmless(text: str) -> str:
    """What a model says, for a terminal: lines and tabs stay, other control characters become `?`."""
    return text.translate(_HARMLESS)


def coloured_code(code: str, language: str) -> str | None:
    """The same text in the terminal's own colours, line by line; None: nobody knows the language."""
    from rich.color import ColorSystem
    from rich.syntax import Syntax

    syntax = Syntax(code, language, theme="ansi_dark")
    if syntax.lexer is None:
        return None
    theme = Syntax.get_theme("ansi_dark")
    # unprocessed: a lexer would turn tabs into spaces
    tokens = [(kind, text) for _, kind, text in syntax.lexer.get_tokens_unprocessed(code + "\n")]
    if "".join(text for _, text in tokens) != code + "\n":
        return None
    shown = []
    for kind, text in tokens:
        style = theme.get_style_for_token(kind)
        lines = text.split("\n")  # no colour goes on over the end of a line
        shown.append("\n".join(style.render(x, color_system=ColorSystem.STANDARD) if x.strip() else x for x in lines))
    return "".join(shown).removesuffix("\n")


def plain(value: Any) -> Any:
    """Dataclasses, numpy values, paths and enums as what JSON has; NaN and infinity as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def out_json(value: Any) -> None:
    """The same as `plain`, indented."""
    out(indented(value))


def indented(value: Any) -> str:
    """The text of `out_json`."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def as_json(value: Any) -> str:
    """On one line."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> str:
    """Aligned columns. `right` has one character per column: `r` aligns to the right, anything else to the left."""
    cells = [list(headers), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = []
    for row in cells:
        padded = [
            c.rjust(w) if right[i : i + 1] == "r" else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    lines[0] = bold(lines[0])
    return "\n".join(lines)


def size(nbytes: float) -> str:
    """Bytes for people: `21.8 MiB`."""
    return size_text(nbytes)


def count(n: float) -> str:
    """Numbers for people: `11.4 M`."""
    for unit in ("", " K", " M"):
        if abs(n) < 1000:
            return f"{n:.0f}" if not unit else f"{n:.1f}{unit}"
        n /= 1000
    return f"{n:.2f} B"


def duration(seconds: float) -> str:
    """`256 ms`, `1.3 s` or `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def rate(n: int, seconds: float) -> str:
    """`(41.7 per second)`; nothing when nothing was measured."""
    return f"({n / seconds:.1f} per second)" if n and seconds > 0 else ""


class StatusLine:
    """One line on stderr that says what is going on, written again and again; silent where that is no terminal."""

    SECONDS = 0.1  # between two of them

    def __init__(self) -> None:
        self.is_shown = is_screen(sys.stderr)
        self._there = False
        self._next = 0.0

    def show(self, text: str) -> None:
        """Instead of what was there."""
        if not self.is_shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.SECONDS
        width = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{dim(one_line(text)[: width - 1], sys.stderr)}", end="", file=sys.stderr, flush=True)
        self._there = True

    def clear(self) -> None:
        """It goes; what is printed next stands in its place."""
        if self._there:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._there, self._next = False, 0.0


class ProgressBar:
    """A bar with rate and time left, on stderr when that is a terminal, in a notebook in its cell; silent otherwise.

    Called as `progress(label, done, total)` in units of `unit` ("bytes", "tokens", "kernels"). Nothing is drawn for
    work that is over within `delay` seconds.
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
        """The same for callbacks that only count."""
        self(self._label, done, total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _amount(self, done: float, total: float, per_second: float | None) -> str:
        show = size if self._unit == "bytes" else count
        unit = "" if self._unit == "bytes" else f" {self._unit}"
        text = f"{show(done)} of {show(total)}{unit}"
        return f"{text}, {show(per_second)}{unit}/s" if per_second else text


class _TerminalBar:
    """Drawn by rich. amount: of (done, total, per second) as text."""

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
        if done < self._last:  # the next piece of work, with its own total; the rate is of what comes from here on
            self._bar.reset(self._task, completed=done, total=total)
        self._last = done
        self._bar.update(self._task, completed=done, total=total, description=label)

    def stop(self) -> None:
        self._bar.stop()
