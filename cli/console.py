"""Output of the commands: text, notes, tables. Imports rich only to draw.

Results go to stdout; notes, progress and errors go to stderr, so that `hybrid run -p ... > file` holds the text only.
"""

import dataclasses
import json
import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

# notebooks use these also; commands import them from here
from hybrid.display.lines import count as count
from hybrid.display.lines import dim as dim
from hybrid.display.lines import duration as duration
from hybrid.display.lines import has_colours as has_colours
from hybrid.display.lines import is_screen as is_screen
from hybrid.display.lines import note as note
from hybrid.display.lines import one_line as one_line
from hybrid.display.lines import styled
from hybrid.display.screen import SCREEN as SCREEN
from hybrid.display.screen import ProgressBar as ProgressBar
from hybrid.quant.ggml.byte_sizes import size_text

INDENT = "    "  # of further lines of a row
_HARMLESS = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {ord("\r"): None}


def out(text: str = "", end: str = "\n") -> None:
    """Prints a line of the result to stdout."""
    print(text, end=end, flush=True)


def paragraph(text: str) -> None:
    """Prints a longer note, wrapped between words."""
    note(folded(text))


def folded(text: str, indent: int = 0) -> str:
    """A note, wrapped between words if stderr is a terminal. indent: of all lines but the first."""
    if not sys.stderr.isatty():
        return text
    import textwrap

    width = max(20 + indent, min(100, shutil.get_terminal_size().columns))
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def error(text: str) -> None:
    """Prints an error as one line."""
    print(f"{styled('error:', '1;31', sys.stderr)} {one_line(text)}", file=sys.stderr, flush=True)


def bold(text: str, stream: TextIO | None = None) -> str:
    return styled(text, "1", stream or sys.stdout)


def harmless(text: str) -> str:
    """The model's text, made safe for a terminal: control characters other than newline and tab become `?`."""
    return text.translate(_HARMLESS)


def coloured_code(code: str, language: str) -> str | None:
    """The same code, coloured line by line in the terminal's palette; None: an unknown language."""
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
        lines = text.split("\n")  # a colour ends with its line
        shown.append("\n".join(style.render(x, color_system=ColorSystem.STANDARD) if x.strip() else x for x in lines))
    return "".join(shown).removesuffix("\n")


def plain(value: Any) -> Any:
    """Converts dataclasses, numpy values, paths and enums to JSON values; NaN and infinity become null."""
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
    """Prints `plain(value)` as indented JSON."""
    out(indented(value))


def indented(value: Any) -> str:
    """`plain(value)` as indented JSON."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def as_json(value: Any) -> str:
    """`plain(value)` as JSON on one line."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> str:
    """Aligned columns. `right` has one character per column: `r` aligns to the right, any other to the left.

    In a terminal that is too narrow, a row takes several lines; those after the first are indented.
    """
    cells = [list(headers), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    columns_of_lines = _lines_of(widths, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    lines: list[str] = []
    for row in cells:
        padded = [
            c.rjust(w) if right[i : i + 1] == "r" else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        texts = ["  ".join(padded[i] for i in columns).rstrip() for columns in columns_of_lines]
        texts = [texts[0], *(f"{INDENT}{text}" for text in texts[1:] if text)]
        lines += texts if lines else map(bold, texts)
    return "\n".join(lines)


def _lines_of(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """The columns, by number, that fit on each line of a row of a table. room: characters per line; None: no limit."""
    lines: list[list[int]] = [[]]
    used = 0
    for column, width in enumerate(widths):
        gap = 2 if lines[-1] else 0
        if gap and room is not None and used + gap + width > room:
            lines.append([])
            used, gap = len(INDENT), 0
        used += gap + width
        lines[-1].append(column)
    return lines


def size(nbytes: float) -> str:
    """A number of bytes for people: `21.8 MiB`."""
    return size_text(nbytes)


def rate(n: int, seconds: float) -> str:
    """` (41.7 per second)`, or "" if nothing was measured."""
    return f" ({n / seconds:.1f} per second)" if n and seconds > 0 else ""


class StatusLine:
    """A line on stderr that is overwritten with each new status; silent if stderr is not a terminal."""

    SECONDS = 0.1  # between two columns

    def __init__(self) -> None:
        self.is_shown = is_screen(sys.stderr)
        self._there = False
        self._next = 0.0

    def show(self, text: str) -> None:
        """Replaces the line."""
        if not self.is_shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.SECONDS
        width = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{dim(one_line(text)[: width - 1], sys.stderr)}", end="", file=sys.stderr, flush=True)
        self._there = True

    def clear(self) -> None:
        """Removes the line, so that the next output takes its place."""
        if self._there:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._there, self._next = False, 0.0
