"""tiktoken, the slow way: split a text, then merge neighbouring bytes of each piece into tokens, lowest rank first."""

import re
import sys
import unicodedata
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

HAN_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "CJK RADICAL",
    "KANGXI RADICAL",
    "HANGZHOU NUMERAL",
    "IDEOGRAPHIC ITERATION MARK",
    "IDEOGRAPHIC NUMBER ZERO",
    "VERTICAL IDEOGRAPHIC ITERATION MARK",
)
SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # White_Space of Unicode
# The expressions of tokenization_kimi.py; `kimi` fills in their classes: {han}, {upper}, {lower} (both without Han),
# {letter}, {number}, {space}.
KIMI = (
    "[{han}]+",
    r"[^\r\n{letter}{number}]?[{upper}]*[{lower}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n{letter}{number}]?[{upper}]+[{lower}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    "[{number}]{{1,3}}",
    r" ?[^{space}{letter}{number}]+[\r\n]*",
    r"[{space}]*[\r\n]+",
    r"[{space}]+(?![^{space}])",
    "[{space}]+",
)


@cache
def kimi() -> re.Pattern[str]:
    """The splitting expression of Kimi's models."""
    han, by_category = [], {}
    for point in range(sys.maxunicode + 1):
        letter = chr(point)
        if unicodedata.name(letter, "").startswith(HAN_NAMES):
            han.append(point)
        by_category.setdefault(unicodedata.category(letter), []).append(point)

    def points(*categories: str) -> set[int]:
        return {p for name, of in by_category.items() if name.startswith(categories) for p in of}

    upper, lower = points("Lu", "Lt", "Lm", "Lo", "M"), points("Ll", "Lm", "Lo", "M")
    classes = {
        "han": set(han),
        "upper": upper - set(han),
        "lower": lower - set(han),
        "letter": points("L"),
        "number": points("N"),
    }
    spelt = {name: _ranges(of) for name, of in classes.items()} | {"space": SPACES}
    return re.compile("|".join(KIMI).format(**spelt))


def _ranges(points: set[int]) -> str:
    parts, ordered = [], sorted(points)
    begin = ordered[0]
    for here, after in zip(ordered, [*ordered[1:], -1], strict=True):
        if after != here + 1:
            parts.append(f"\\U{begin:08x}-\\U{here:08x}")
            begin = after
    return "".join(parts)


def encode(ranks: Mapping[bytes, int], text: str, split: re.Pattern[str]) -> list[int]:
    """Ids of a text: pieces that are tokens, and merges of the others."""
    ids = []
    for match in split.finditer(text):
        piece = match[0].encode()
        ids += [ranks[piece]] if piece in ranks else [ranks[part] for part in joined(ranks, piece)]
    return ids


def joined(ranks: Mapping[bytes, int], piece: bytes) -> list[bytes]:
    """The parts after all merges; of equal ranks the first pair is merged first."""
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        pairs = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not pairs:
            return parts
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
