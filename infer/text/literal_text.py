"""Text that stays text inside a rendered chat template, even if it spells a control token.

A template writes tags such as <|im_end|> as text, and they become control tokens. A message that contains the same
text must not: whoever writes it could end the turn and begin one of the system. So LiteralText puts BREAK, a character
that Unicode assigns to nobody, into such text before the template sees it; `rendered_ids` finds no token there and
drops BREAK. Trimming, cutting and JSON in the template leave it in place. A text that is quoted again stays the same;
a BREAK that a message brings along is dropped like ours.

The name of a picture is written beside its token in the same way (`named`), so that texts with different pictures
differ.
"""

import re
from bisect import bisect_left
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import UsageError

from .tokenizer.special import SpecialMatcher

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

BREAK = "\ufdd0"
NAMED = "\ufdd1"  # begins a name
NAME_DIGITS = "".join(map(chr, range(0xFDE0, 0xFDF0)))  # also of nobody
_NAME = re.compile(f"{NAMED}[{NAME_DIGITS}]*")
LONGEST = 64  # characters of a control token's text that are looked for at the end of a text


def without_breaks(text: str) -> str:
    """The text without BREAK and without names, as a person reads it."""
    return _NAME.sub("", text.replace(BREAK, "")) if NAMED in text else text.replace(BREAK, "")


def named(name: bytes) -> str:
    """A name that `rendered_ids` drops from a text."""
    return NAMED + "".join(NAME_DIGITS[int(digit, 16)] for digit in name.hex())


class LiteralText:
    """Puts BREAK into texts that contain control tokens of this tokenizer."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._texts = tokenizer.special_texts
        self._matcher = SpecialMatcher((text, token) for token, text in self._texts.items())
        self._sorted = sorted(set(self._texts.values()))
        self._joined = "\0".join(self._sorted)
        self._longest = min(LONGEST, max(map(len, self._sorted), default=0))

    def quoted(self, value: Any, kept: Collection[str] = ()) -> Any:
        """`value` (JSON), with BREAK in its texts and keys, except in texts that are `kept`. UsageError: it is nested
        too deeply."""
        try:
            return self._quoted(value, kept)
        except RecursionError:
            raise UsageError("a message is nested too deeply.") from None

    def _quoted(self, value: Any, kept: Collection[str]) -> Any:
        if isinstance(value, str):
            return self.text(value, kept)
        if isinstance(value, dict):
            return {self._quoted(key, kept): self._quoted(item, kept) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._quoted(item, kept) for item in value]
        return value

    def text(self, text: str, kept: Collection[str] = ()) -> str:
        """`text` with BREAK after the first character of each control token in it, and of a part of one at its ends,
        which the template could complete."""
        if not text:
            return text
        parts = list(self._matcher.split(text))
        if isinstance(parts[-1], str):
            parts[-1] = self._without_ends(parts[-1], len(parts) == 1)
        return "".join(part if isinstance(part, str) else self._token(part, kept) for part in parts)

    def _token(self, token: int, kept: Collection[str]) -> str:
        text = self._texts[token]
        return text if text in kept else _broken(text, 0)

    def _without_ends(self, text: str, is_whole: bool) -> str:
        """`text` with no beginning of a control token at its end that later text could complete. is_whole: no text
        precedes it."""
        starts = range(max(0, len(text) - self._longest + 1), len(text))
        for at in reversed(starts):
            if self._begins(text[at:]):
                text = _broken(text, at)
        if is_whole and 1 < len(text) < self._longest and not text[0].isalnum() and text in self._joined:
            text = _broken(text, 0)
        return text

    def _begins(self, text: str) -> bool:
        """Whether a control token begins with `text`."""
        at = bisect_left(self._sorted, text)
        return at < len(self._sorted) and self._sorted[at].startswith(text)


def _broken(text: str, at: int) -> str:
    return text[: at + 1] + BREAK + text[at + 1 :]
