"""DRY, "don't repeat yourself" (p-e-w, text-generation-webui PR 5677; llama.cpp PR 9702).

A token that would go on with something the text has said before loses the more, the longer what is repeated would get:
multiplier * base ** (length - allowed length). Nothing counts across a breaker, say a line's end.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

# token -> what has to follow it to make a breaker whole; () where the token alone contains one
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
LONGEST_TAIL = 20  # tokens
MOST_KNOWN = 64  # texts per vocabulary that are remembered: they come with requests
LN_MOST, MOST = 88.7, 3e38  # of a penalty: beyond it f32 has no numbers


class TokenTexts(Protocol):
    """What the breakers need of a tokenizer."""

    @property
    def n_vocab(self) -> int: ...
    def piece(self, token: int) -> bytes: ...
    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...


_KNOWN: "WeakKeyDictionary[TokenTexts, dict[str, Breakers]]" = WeakKeyDictionary()


def breakers_of(vocabulary: TokenTexts, texts: Iterable[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Where breakers begin. Looks at the whole vocabulary once for each text."""
    known = _KNOWN.setdefault(vocabulary, {})
    if len(known) > MOST_KNOWN:
        known.clear()
    whole: dict[int, tuple[tuple[int, ...], ...]] = {}
    for text in texts:
        if text not in known:
            known[text] = _heads(vocabulary, text)
        for token, tails in known[text].items():
            whole[token] = tuple({*whole.get(token, ()), *tails})
    return whole


def _heads(vocabulary: TokenTexts, text: str) -> Breakers:
    """The tokens that contain `text`, or end with a beginning of it, with what is left."""
    raw = text.encode()
    tails: dict[int, tuple[int, ...]] = {}  # by the bytes that the first token has of it
    heads: dict[int, tuple[tuple[int, ...], ...]] = {}
    for token in range(vocabulary.n_vocab):
        piece = vocabulary.piece(token)
        if raw in piece:
            heads[token] = ((),)
            continue
        some = [n for n in range(1, min(len(raw), len(piece) + 1)) if piece.endswith(raw[:n])]
        for n in some:
            if n not in tails:
                rest = raw[n:].decode("utf-8", "replace")
                tails[n] = tuple(vocabulary.encode(rest, add_special=False, parse_special=False)[:LONGEST_TAIL])
        if some:
            heads[token] = tuple(tails[n] for n in some)
    return heads


def repeats(last: Iterable[int], breakers: Breakers, allowed: int) -> dict[int, int]:
    """token -> how many tokens before it would be said again, if it came next; those of at least `allowed`.

    last: the tokens that are looked at, the newest last.
    """
    last = list(last)
    tokens, n = np.asarray(last, np.int64), len(last)
    most = _since_breaker(last, breakers)
    if n <= allowed or most < allowed:
        return {}
    found: dict[int, int] = {}
    if allowed == 0:
        found = dict.fromkeys(tokens[1:].tolist(), 0)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # the text may be about to go on as it did behind these
    length = 1
    while len(ends) and length <= most:
        if length >= allowed:
            for token in tokens[ends + 1].tolist():
                found[token] = length
        ends = ends[ends >= length]
        if length < n:
            ends = ends[tokens[ends - length] == tokens[n - 1 - length]]
        length += 1
    return found


def _since_breaker(last: list[int], breakers: Breakers) -> int:
    """How many tokens at the end may count as repeated: those behind the last breaker."""
    n = len(last)
    for back in range(n):
        tails = breakers.get(last[n - 1 - back], ())
        whole = [len(t) for t in tails if len(t) <= back and last[n - back : n - back + len(t)] == list(t)]
        if whole:
            return back - max(whole)
    return n


def penalties(found: Mapping[int, int], multiplier: float, base: float, allowed: int) -> dict[int, float]:
    """What is subtracted from the logits of these tokens."""
    most = LN_MOST / np.log(base) if base > 1.000001 else np.inf
    return {
        token: min(multiplier * base ** min(length - allowed, int(min(most, 1 << 30))), MOST)
        for token, length in found.items()
    }
