"""Grammars in llguidance's Lark, written piece by piece.

Rules (small letters) are made of terminals (capitals), which are matched greedily: where two go on from the same place,
the longer one is taken and nothing is taken back. So whatever begins like something else that may stand at its place is
one terminal up to where they differ.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from ..constraints.grammar import WHITE_SPACE

ANY = "/(?s:.)*/"  # of text: valid UTF-8, beginnings of characters too as long as they are gone on with


def literal(text: str) -> str:
    """A text, as it stands in a rule or a terminal."""
    return json.dumps(text, ensure_ascii=False)


def token(*ids: int) -> str:
    """One of some tokens, in a rule."""
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
    """What follows a terminal that must not have any of these texts in it."""
    return "".join(f" & ~({ANY} {literal(text)} {ANY})" for text in texts if text)


class Rules:
    """The rules and terminals of one grammar."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, str] = {}  # by what they stand for

    def rule(self, body: str, options: str = "") -> str:
        """The name of a rule."""
        return self._add("r", f"{options}: {body}")

    def terminal(self, body: str) -> str:
        """The name of a terminal."""
        return self._add("T", f": {body}")

    def row(self, items: Iterable[str | int]) -> str:
        """Bodies of terminals and tokens, one behind the other, in a rule: what stands between two tokens is one
        terminal."""
        made: list[str] = []
        for is_token, group in groupby(items, lambda item: isinstance(item, int)):
            run = list(group)
            made += [token(int(item)) for item in run] if is_token else [self.terminal(" ".join(map(str, run)))]
        return " ".join(made)

    @property
    def white(self) -> str:
        """White space within JSON, none too: only in terminals."""
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
