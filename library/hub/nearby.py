"""Suggestions for misspelt names."""

import difflib
from collections.abc import Sequence

MOST = 3


def similar(word: str, names: Sequence[str]) -> list[str]:
    """The ORG/NAME names close to `word`, compared whole, by the part after the slash, or by that part's beginning."""
    lower = word.lower()
    by_last = {name: name.rpartition("/")[2].lower() for name in names}
    begins = [name for name in names if lower and by_last[name].startswith(lower)]
    within = [name for name in names if len(lower) > 2 and lower.rpartition("/")[2] in by_last[name]]
    whole = difflib.get_close_matches(word, names, n=MOST, cutoff=0.75)
    last = difflib.get_close_matches(lower.rpartition("/")[2], by_last.values(), n=MOST, cutoff=0.75)
    found = [*begins, *whole, *within, *(name for name in names if by_last[name] in last)]
    return list(dict.fromkeys(found))[:MOST]


def near(word: str, names: Sequence[str]) -> str:
    """A sentence with suggestions for the end of an error message, or ""."""
    found = similar(word, names)
    return f" On this machine: {', '.join(found)}." if found else ""
