"""DRY, "don't repeat yourself" (p-e-w, text-generation-webui PR 5677; llama.cpp PR 9702).

A token that would continue a repetition of earlier text is penalized, the more the longer the repetition gets:
multiplier * base ** (length - allowed length). A breaker, such as the end of a line, ends a repetition.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

# token -> the tokens after it that complete a breaker; () if the token itself contains one
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
LONGEST_TAIL = 20  # tokens
MOST_KNOWN = 64  # texts per vocabulary that are cached: they come with requests
LN_MOST, MOST = 88.7, 3e38  # of a penalty: f32 overflows beyond it


class TokenTexts(Protocol):
    """The part of a tokenizer that the breakers need."""

    @property
    def n_vocab(self) -> int: ...
    def piece(self, token: int) -> bytes: ...
    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...


_KNOWN: "WeakKeyDictionary[TokenTexts, dict[str, Breakers]]" = WeakKeyDictionary()


def breakers_of(vocabulary: TokenTexts, texts: Iterable[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """The tokens with which breakers begin. Scans the vocabulary once for each text."""
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
    """The tokens that contain `text`, or end with a prefix of it; each with the tokens of the rest."""
    raw = text.encode()
    tails: dict[int, tuple[int, ...]] = {}  # by the bytes of `text` that the first token has
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
    """token -> how many tokens before it would be repeated if it came next; only counts of at least `allowed`.

    last: the tokens that are searched, the newest last.
    """
    last = list(last)
    tokens, n = np.asarray(last, np.int64), len(last)
    most = _since_breaker(last, breakers)
    if n <= allowed or most < allowed:
        return {}
    found: dict[int, int] = {}
    if allowed == 0:
        found = dict.fromkeys(tokens[1:].tolist(), 0)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # the text may be about to continue as it did after these
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
    """How many tokens at the end can be a repetition: those after the last breaker."""
    n = len(last)
    for back in range(n):
        tails = breakers.get(last[n - 1 - back], ())
        whole = [len(t) for t in tails if len(t) <= back and last[n - back : n - back + len(t)] == list(t)]
        if whole:
            return back - max(whole)
    return n


def penalties(found: Mapping[int, int], multiplier: float, base: float, allowed: int) -> dict[int, float]:
    """The values that are subtracted from the logits of these tokens."""
    most = LN_MOST / np.log(base) if base > 1.000001 else np.inf
    return {
        token: min(multiplier * base ** min(length - allowed, int(min(most, 1 << 30))), MOST)
        for token, length in found.items()
    }
