"""Paths of pictures that are typed or dragged into the terminal."""

import shlex
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def picture_path(text: str) -> Path | None:
    """The path, if a line is nothing but the path of an existing picture. Terminals write the path of a file that is
    dragged into them in quotes, or with a backslash before spaces."""
    line = text.strip()
    if not line or "\n" in line or not line.strip("'\"").lower().endswith(SUFFIXES):
        return None
    forms = [line]
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is not closed
        words = []
    forms += words if len(words) == 1 else []
    for form in forms:
        path = Path(form.removeprefix("file://")).expanduser()
        if path.is_file():
            return path
    return None
