"""Text from files, stdin and the command line. It must be UTF-8; an error gives the offset of the wrong byte."""

import sys
from pathlib import Path

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.utf8 import decoded

STDIN = Path("-")


def read_text(path: Path, *, empty: bool = False) -> str:
    """The text of `path`; `-` is stdin. UsageError: unreadable, not UTF-8, or empty (unless `empty` is true)."""
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


def one_of(argument: Path | None, option: Path | None) -> Path | None:
    """The file that is given as an argument or with -f. UsageError: both are."""
    if argument is not None and option is not None:
        raise UsageError(f"{shown(argument)} and -f {shown(option)} are both given. Use one of them.")
    return argument or option


def read_bytes(path: Path) -> bytes:
    """The bytes of `path`; `-` is stdin. UsageError: unreadable."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{shown(path)} is a folder. Name a text file.") from None
    except OSError as err:
        raise UsageError(f"{shown(path)} cannot be read: {err.strerror}. Name a text file, or - for stdin.") from None


def name_of(path: Path) -> str:
    """The name of `path` for messages."""
    return "stdin" if path == STDIN else shown(path)


def checked(text: str, name: str) -> str:
    """The command-line argument `text`, unchanged. UsageError: it is not UTF-8, which a shell can pass; `name` names
    it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not UTF-8. Convert it, for example with iconv.") from None
    return text
