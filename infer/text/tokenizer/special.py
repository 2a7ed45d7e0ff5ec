"""Finds special tokens in text: the leftmost first, and the longest that starts there."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

# Whitespace by Unicode. Python's also has U+001C to U+001F.
_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | set(map(chr, range(0x2000, 0x200B)))
_OF_WORDS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"))
_LETTERS = ((0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))


@dataclass(frozen=True)
class Surroundings:
    """Tokens that depend on adjacent text, as AddedToken of Hugging Face's `tokenizers` does.

    before, after  adjacent whitespace there belongs to the token (lstrip, rstrip)
    words          not found next to a letter, digit or underscore (single_word)
    """

    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()

    @property
    def every(self) -> frozenset[int]:
        return self.before | self.after | self.words


class SpecialMatcher:
    """Splits text at known tokens. The cost per candidate position is the number of distinct lengths, not of tokens:
    Gemma's vocabulary has 6 000 special tokens with the same start.
    """

    def __init__(
        self,
        tokens: Iterable[tuple[str, int]],
        surroundings: Surroundings = Surroundings(),
        rest: "SpecialMatcher | None" = None,
        normalize: Callable[[str], str] = str,
    ) -> None:
        """rest: a matcher that splits the text between these tokens again, after `normalize`."""
        self._surroundings, self._rest, self._normalize = surroundings, rest, normalize
        self._ids: dict[str, int] = {}
        for text, token in tokens:
            if text:
                self._ids.setdefault(text, token)  # of equal texts the first is used
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        for start, inside in lengths.items():
            if len(start) == 2 and start[0] in lengths:
                inside.add(1)
        self._lengths = {start: sorted(inside, reverse=True) for start, inside in lengths.items()}
        starts = sorted(self._lengths, key=len, reverse=True)
        self._start = re.compile("|".join(map(re.escape, starts))) if starts else None

    def split(self, text: str) -> Iterator[str | int]:
        """Stretches of plain text (never empty) and token ids, in order."""
        if self._rest is None:
            yield from self._split(text)
            return
        for part in self._split(text):
            if isinstance(part, int):
                yield part
            else:
                yield from self._rest.split(self._normalize(part))

    def find(self, text: str) -> int | None:
        """The id of the token spelled exactly so."""
        token = self._ids.get(text)
        return self._rest.find(text) if token is None and self._rest is not None else token

    def _split(self, text: str) -> Iterator[str | int]:
        near, done = self._surroundings, 0
        for token, begin, end in self._matches(text):
            if token in near.words and _in_word(text, begin, end):
                continue
            if token in near.before:
                begin = max(_space_before(text, begin), done)
            if token in near.after:
                end = _space_after(text, end)
            if begin >= end:  # whitespace that the token before has taken
                continue
            if begin > done:
                yield text[done:begin]
            yield token
            done = end
        if done < len(text):
            yield text[done:]

    def _matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Found tokens: (token, start, end)."""
        search = 0
        while self._start is not None and (candidate := self._start.search(text, search)):
            at = search = candidate.start()
            for length in self._lengths[candidate.group()]:
                token = self._ids.get(text[at : at + length])
                if token is not None:
                    search = at + length
                    yield token, at, search
                    break
            else:
                search = at + 1


def _in_word(text: str, begin: int, end: int) -> bool:
    return _is_of_word(text[begin - 1 : begin]) or _is_of_word(text[end : end + 1])


def _is_of_word(character: str) -> bool:
    r"""Whether \w matches a character in `tokenizers`, which follows Unicode; Python's \w differs."""
    if not character:
        return False
    return unicodedata.category(character) in _OF_WORDS or any(a <= ord(character) <= b for a, b in _LETTERS)


def _space_after(text: str, at: int) -> int:
    """End of the whitespace that begins at `at`."""
    while text[at : at + 1] in _SPACE:
        at += 1
    return at


def _space_before(text: str, at: int) -> int:
    """Start of the whitespace that ends at `at`."""
    while text[at - 1 : at] in _SPACE:
        at -= 1
    return at
