"""Finding special tokens in text: leftmost first, the longest of those that start there."""

import re
from collections.abc import Iterable, Iterator


class SpecialMatcher:
    """Splits text at known tokens. The cost per candidate is the number of distinct lengths, not of tokens:
    Gemma's vocabulary has 6 000 special tokens that all start alike.
    """

    def __init__(self, tokens: Iterable[tuple[str, int]]) -> None:
        self._ids: dict[str, int] = {}
        for text, token in tokens:
            if text:
                self._ids.setdefault(text, token)  # of two equal texts the first counts
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
        if self._start is None:
            if text:
                yield text
            return
        done = search = 0
        while candidate := self._start.search(text, search):
            at = candidate.start()
            for length in self._lengths[candidate.group()]:
                token = self._ids.get(text[at : at + length])
                if token is not None:
                    if at > done:
                        yield text[done:at]
                    yield token
                    done = search = at + length
                    break
            else:
                search = at + 1
        if done < len(text):
            yield text[done:]

    def find(self, text: str) -> int | None:
        """The id of the token spelled exactly so."""
        return self._ids.get(text)
