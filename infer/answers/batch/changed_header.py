"""Detects a part near the beginning of prompts that changes with every request, such as a date or a session's id.

The text after it is the same, but has to be read again every time. A prompt that differs from the nearest known text,
and agrees with it again a few tokens later, is such a request; several at one place are a header.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .difference import Quotes

LONGEST = 24  # tokens of the changing part
SAME = 16  # tokens after it that have to be the same
WORTH = 64  # tokens read again, from which on a request counts
DEEPEST = 4096  # tokens before it
MOST = 16  # headers that are watched
FIRST, EVERY = 3, 100  # the request at which a note is given, and the period of more notes

Tokens = npt.NDArray[np.int32]


@dataclass(eq=False)
class _Header:
    """before: all tokens up to the first that ever differed; behind: the SAME tokens after the changing part."""

    before: Tokens
    behind: Tokens
    n_requests: int = 0
    n_read: int = 0


class ChangedHeaders:
    """The places where recent requests differed."""

    def __init__(self) -> None:
        self._headers: deque[_Header] = deque(maxlen=MOST)  # last seen, last in order

    def seen(self, ids: Tokens, n: int, known: Tokens, words: Quotes) -> str:
        """Takes a prompt that differs from all known texts after n tokens; the nearest continues with `known`.

        Returns a note of one line, usually ""; words: quotes around the difference.
        """
        rest = ids[n:]
        if n > DEEPEST or words.same or (met := _met(rest, known)) is None:
            return ""
        here, there = met
        m = min(len(rest) - here, len(known) - there)
        differ = np.flatnonzero(rest[here : here + m] != known[there : there + m])
        cost = int(differ[0]) if len(differ) else m
        if cost < WORTH:
            return ""
        header = self._header(ids, n, here)
        header.n_requests += 1
        header.n_read += cost
        if header.n_requests % EVERY != FIRST:
            return ""
        return (
            f"the text at token {len(header.before)} changes with every request ('{words.known}', then "
            f"'{words.given}'): {header.n_requests} requests read {header.n_read} tokens again. Put it at the end of "
            "the prompt."
        )

    def _header(self, ids: Tokens, n: int, here: int) -> _Header:
        for header in self._headers:
            at = min(n, len(header.before))
            is_near = max(n, len(header.before)) - at <= LONGEST
            if is_near and np.array_equal(header.before[:at], ids[:at]) and _has(ids[at:], header.behind):
                header.before = header.before[:at]
                self._headers.remove(header)
                break
        else:
            header = _Header(ids[:n].copy(), ids[n + here : n + here + SAME].copy())
        self._headers.append(header)
        return header


def _met(a: Tokens, b: Tokens) -> tuple[int, int] | None:
    """The nearest positions in two texts from which they agree again, within LONGEST tokens; None if they do not."""
    windows = {b[j : j + SAME].tobytes(): j for j in range(min(LONGEST, len(b) - SAME), -1, -1)}
    found = [
        (i, windows[window])
        for i in range(min(LONGEST, len(a) - SAME) + 1)
        if (window := a[i : i + SAME].tobytes()) in windows
    ]
    return min(found, key=sum, default=None)


def _has(text: Tokens, part: Tokens) -> bool:
    """Whether `part` occurs in the first tokens of a text."""
    near = text[: 3 * LONGEST + SAME]
    if len(near) < len(part):
        return False
    return bool((np.lib.stride_tricks.sliding_window_view(near, len(part)) == part).all(axis=1).any())
