"""Text lines for a terminal, and the terminal's abilities."""

import os
import sys
from typing import TextIO


def note(text: str = "") -> None:
    """Prints a note to stderr."""
    print(dim(text, sys.stderr), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """The text on one line: newlines become spaces, control characters (escapes in file names) become `?`."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def dim(text: str, stream: TextIO | None = None) -> str:
    return styled(text, "2", stream or sys.stdout) if text else text


def styled(text: str, code: str, stream: TextIO) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if has_colours(stream) else text


def is_screen(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can overwrite a line."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, and NO_COLOR is not set (https://no-color.org)."""
    return is_screen(stream) and not os.environ.get("NO_COLOR")


def count(n: float) -> str:
    """A number for people: `11.4 M`."""
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
