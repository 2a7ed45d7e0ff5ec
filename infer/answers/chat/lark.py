"""Writes grammars in llguidance's Lark dialect, piece by piece.

Rules (lower case) consist of terminals (upper case), which match greedily: if two fit at the same position, the longer
one is taken, without backtracking. So alternatives that begin alike are one terminal up to where they differ.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from ..constraints.grammar import WHITE_SPACE

ANY = "/(?s:.)*/"  # any text: valid UTF-8, or part of it while the last character is incomplete


def literal(text: str) -> str:
    """A text, quoted for a rule or a terminal."""
    return json.dumps(text, ensure_ascii=False)


def token(*ids: int) -> str:
    """Any one of these tokens, in a rule."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return f"<[{','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}]>"


def either(bodies: Sequence[str]) -> str:
    return bodies[0] if len(bodies) == 1 else f"({' | '.join(bodies)})"


def without(texts: Collection[str]) -> str:
    """A suffix for a terminal that must not contain any of these texts."""
    return "".join(f" & ~({ANY} {literal(text)} {ANY})" for text in texts if text)


class Rules:
    """The rules and terminals of one grammar."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, str] = {}  # by body

    def rule(self, body: str, options: str = "") -> str:
        """Adds a rule; returns its name."""
        return self._add("r", f"{options}: {body}")

    def terminal(self, body: str) -> str:
        """Adds a terminal; returns its name."""
        return self._add("T", f": {body}")

    def row(self, items: Iterable[str | int]) -> str:
        """Bodies of terminals, and tokens, in sequence, for a rule; the bodies between two tokens are one terminal."""
        made: list[str] = []
        for is_token, group in groupby(items, lambda item: isinstance(item, int)):
            run = list(group)
            made += [token(int(item)) for item in run] if is_token else [self.terminal(" ".join(map(str, run)))]
        return " ".join(made)

    @property
    def white(self) -> str:
        """Optional whitespace within JSON; for terminals only."""
        return self.terminal(f"/{WHITE_SPACE}/")

    def text(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join([f"start: {start}", *self._lines, ""])

    def _add(self, kind: str, body: str) -> str:
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = f"{kind}{len(self._names)}"
            self._lines.append(name + body)
        return name
