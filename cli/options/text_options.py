"""Text that comes from outside: files, stdin, the command line. It must be UTF-8; the error says where it is not."""

import sys
from pathlib import Path

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.utf8 import decoded

STDIN = Path("-")


def read_text(path: Path, *, empty: bool = False) -> str:
    """The text of `path`, or of stdin for `-`. UsageError: unreadable, not UTF-8, or not allowed to be `empty`."""
    raw = read_bytes(path)
    name = name_of(path)
    try:
        text = decoded(raw)
    except UnicodeDecodeError as err:
        raise UsageError(
            f"{name} is not UTF-8: byte 0x{raw[err.start]:02x} at offset {err.start}. Convert it with iconv."
        ) from None
    if not text and not empty:
        raise UsageError(f"{name} is empty. Give some text.")
    return text


def read_bytes(path: Path) -> bytes:
    """What is in `path`, or comes from stdin for `-`. UsageError: unreadable."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{shown(path)} is a folder. Name a text file.") from None
    except OSError as err:
        raise UsageError(f"{shown(path)} cannot be read: {err.strerror}. Name a text file, or - for stdin.") from None


def name_of(path: Path) -> str:
    """For messages."""
    return "stdin" if path == STDIN else shown(path)


def checked(text: str, name: str) -> str:
    """A command-line argument as text; the shell may hand over bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not UTF-8. Convert it, for example with iconv.") from None
    return text
