"""Quotes the words at which two texts differ: '2026-11-22' in one, '2026-11-21' in the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid.quant.ggml.errors import HybridError, shown

from ...text.tokenizer import Tokenizer

SEEN = 8  # tokens on each side of the difference that are compared
WORD = 24  # characters of a quote on each side of the first difference


@dataclass(frozen=True)
class Quotes:
    """The words around the first difference, for one line: at most about 2 * WORD characters each.

    same  the compared parts are one text, written in two ways as tokens; the quotes are then the same
    """

    given: str
    known: str
    same: bool = False


def quotes(tokenizer: Tokenizer, before: Sequence[int], given: Sequence[int], known: Sequence[int]) -> Quotes:
    """Quotes two texts that continue the tokens `before` with `given` and `known`, whose first tokens differ.

    Control tokens separate words as spaces do. A vocabulary that cannot spell its tokens gives their numbers.
    """
    before, given, known = (_words(ids) for ids in (before[-SEEN:], given[:SEEN], known[:SEEN]))
    try:
        last = max((i for i, token in enumerate(before) if tokenizer.is_control(token)), default=-1)
        before = before[last + 1 :]
        given, known = (_until_control(tokenizer, after) for after in (given, known))
        a, b = (_text(tokenizer, [*before, *after]) for after in (given, known))
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    except HybridError:
        return Quotes(f"token {given[0]}", f"token {known[0]}")
    if at is None:
        word = _word(a if len(a) < len(b) else b, len(_text(tokenizer, before)))
        return Quotes(word, word, same=True)
    return Quotes(_word(a, at), _word(b, at))


def _words(ids: Sequence[int]) -> Sequence[int]:
    """The tokens of text, not of pictures."""
    return [token for token in ids if token >= 0]


def _until_control(tokenizer: Tokenizer, ids: Sequence[int]) -> Sequence[int]:
    """The tokens up to the first control token, included: texts that end in different places differ there."""
    return ids[: next((i + 1 for i, token in enumerate(ids) if tokenizer.is_control(token)), len(ids))]


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return b"".join(tokenizer.piece(int(token)) for token in ids).decode("utf-8", "replace").rstrip("\ufffd")


def _word(text: str, at: int) -> str:
    """The word around an index."""
    begin, end = at, at + 1
    while begin > max(0, at - WORD) and not text[begin - 1].isspace():
        begin -= 1
    while end < min(len(text), at + WORD) and not text[end].isspace():
        end += 1
    return shown(text[begin:end], 4 * WORD)
