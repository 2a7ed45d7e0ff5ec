"""Paths of pictures that are typed or dragged into the terminal."""

import shlex
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def picture_paths(text: str) -> list[Path]:
    """The paths, if a line is nothing but paths of existing pictures. Terminals write the paths of files that are
    dragged into them in quotes, or with a backslash before spaces."""
    line = text.strip()
    if not line or "\n" in line or not line.strip("'\"").lower().endswith(SUFFIXES):
        return []
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is not closed
        words = []
    for form in ([line], words):
        paths = [Path(word.removeprefix("file://")).expanduser() for word in form]
        if paths and all(path.suffix.lower() in SUFFIXES and path.is_file() for path in paths):
            return paths
    return []
