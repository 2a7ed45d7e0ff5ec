"""Splits a format's text into single tags."""

import re

_TOKENS = re.compile(r"\[/?\w+\]|<[^<>\s]*>?|[^\s\[\]<>{},]+|\S")


def tokens(marks: str) -> list[str]:
    """The tags without whitespace between them: a model may write any there, or none."""
    return _TOKENS.findall(marks)
