"""Rules for free text up to a tag: any text, and any special tokens that do not end an answer.

Text is valid UTF-8: a byte that no character has at its position is not sampled. An answer without tags is constrained
in no other way. Characters of several tokens are sampled like others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..constraints.vocabulary import special_tokens
from .lark import ANY, Rules, literal, token, without
from .marks import mark_pieces

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Mark:
    """A tag. token: its special token, if the vocabulary has one: the model samples that and never its letters. behind:
    the rest of the tag, after the token.
    """

    text: str
    token: int | None
    behind: tuple[str | int, ...] = ()

    @classmethod
    def of(cls, text: str, tokenizer: "Tokenizer") -> "Mark":
        """The tag in a text. If the text contains a special token, the tag begins there."""
        pieces = mark_pieces(text, tokenizer)
        for i, piece in enumerate(pieces):
            if isinstance(piece, int):
                return cls(tokenizer.piece(piece).decode("utf-8", "replace"), piece, tuple(pieces[i + 1 :]))
        return cls(text, None)


class FreeText:
    """Writes rules of free text."""

    def __init__(self, rules: Rules, tokenizer: "Tokenizer") -> None:
        self._rules, self._tokenizer = rules, tokenizer

    @cached_property
    def _special(self) -> frozenset[int]:
        return frozenset(special_tokens(self._tokenizer)) - self._tokenizer.eog

    def whole(self, marks: Sequence[Mark], not_first: str = "") -> str:
        """Text without these tags, maybe empty. not_first: terminal that the beginning of the text must not match."""
        text = self._text(marks)
        first = self._rules.terminal(f"{text} & ~({not_first} {ANY})") if not_first else text
        special = self._specials(marks)
        return self._rules.rule(f"{first}? ({special} {text}?)*" if special else f"{first}?")

    def up_to(self, mark: Mark, others: Sequence[Mark] = (), not_first: str = "") -> str:
        """Text without these tags, followed by `mark`."""
        marks = [mark, *others]
        if mark.token is not None:
            return self._rules.rule(f"{self.whole(marks, not_first)} {self.drawn(mark)}")
        bare = f"({ANY}{without([m.text for m in marks])})"
        last = self._lazy(f"{bare} {literal(mark.text)}")
        # the whole text up to the mark, unless it begins like `not_first`
        alone = self._lazy(f"({bare} {literal(mark.text)}) & ~({not_first} {ANY})") if not_first else last
        text, special = self._text(marks), self._specials(marks)
        first = self._rules.terminal(f"{text} & ~({not_first} {ANY})") if not_first else text
        return self._rules.rule(f"{alone} | {first}? {special} ({text}? {special})* {last}" if special else alone)

    def drawn(self, mark: Mark) -> str:
        """A tag that is a token, with the rest of the tag."""
        assert mark.token is not None
        behind = [literal(piece) if isinstance(piece, str) else piece for piece in mark.behind]
        return self._rules.row([mark.token, *behind])

    def _lazy(self, body: str) -> str:
        """A rule that matches `body` lazily: it ends at the first possible place."""
        return self._rules.rule(self._rules.terminal(body), "[lazy]")

    def _text(self, marks: Sequence[Mark]) -> str:
        return self._rules.terminal(f"/(?s:.)+/{without([mark.text for mark in marks])}")

    def _specials(self, marks: Sequence[Mark]) -> str:
        allowed = self._special - {mark.token for mark in marks}
        return token(*allowed) if allowed else ""
