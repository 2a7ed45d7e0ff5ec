"""Marks of a format, one by one."""

import re

_TOKENS = re.compile(r"\[/?\w+\]|<[^<>\s]*>?|[^\s\[\]<>{},]+|\S")


def tokens(marks: str) -> list[str]:
    """Marks without the white space between them: a model may write any there, or none."""
    return _TOKENS.findall(marks)
