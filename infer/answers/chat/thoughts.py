"""Where the thoughts of an answer are, and how long they may be: after the last token their closing mark is drawn."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError

from .format import ChatFormat
from .marks import shown_tokens

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

MOST_WAITED = 3  # tokens for the rest of a character


class ThoughtMarks:
    """Tells thoughts and their marks from the rest of an answer's text, which arrives in pieces of any size.

    thinks  the prompt opened thoughts

    Thoughts begin where a reader (reader.py) sees them begin: with the answer, or where no text has come since the last
    ones. The mark of a call ends thoughts that the prompt opened.
    is_inside: the text so far ends in thoughts; is_over: text or a call has come, no thoughts can follow.
    """

    def __init__(self, format: ChatFormat, thinks: bool) -> None:
        thoughts = format.thoughts
        self._opening, self._closing = (thoughts.opening, thoughts.closing) if thoughts is not None else ("", "")
        self._call = format.calls.mark if thinks else ""
        self._held = ""  # outside of thoughts: text that may be the beginning of a mark
        self._tail = ""  # inside: the end of the text, in which a mark may have begun
        self.is_inside, self.is_over = thinks, not self._closing

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Takes more text; returns stretches that are certain now, each with True if it is thoughts or their mark."""
        parts: list[tuple[str, bool]] = []
        while text and not self.is_over:
            text = self._inside(text, parts) if self.is_inside else self._outside(text, parts)
        return [*parts, (text, False)] if text else parts

    def rest(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def copy(self) -> "ThoughtMarks":
        """Another state for the text that comes next."""
        other = copy(self)
        other._held = ""
        return other

    def _outside(self, text: str, parts: list[tuple[str, bool]]) -> str:
        """Takes a mark; returns the rest of the text."""
        seen, self._held = self._held + text, ""
        bare = seen.lstrip()
        marks = [mark for mark in (self._opening, self._closing) if mark]
        for mark in marks:
            if bare.startswith(mark):
                self.is_inside = mark == self._opening
                rest = bare[len(mark) :]
                parts.append((seen[: len(seen) - len(rest)], True))
                return rest
        if any(mark.startswith(bare) for mark in marks):
            self._held = seen
            return ""
        self.is_over = True
        return seen

    def _inside(self, text: str, parts: list[tuple[str, bool]]) -> str:
        """Takes thoughts up to their end; returns the rest of the text."""
        seen, n = self._tail + text, len(self._tail)
        places = [(at, mark) for mark in (self._closing, self._call) if mark and (at := seen.find(mark)) >= 0]
        if not places:
            parts.append((text, True))
            self._tail = seen[-max(len(self._closing), len(self._call)) :]
            return ""
        at, mark = min(places)
        self.is_over = mark != self._closing
        end = max(0, at + (0 if self.is_over else len(mark)) - n)
        parts.append((text[:end], True))
        if not self.is_over:
            self.is_inside, self._call, self._tail = False, "", ""
        return text[end:]


class ThoughtBudget:
    """Counts the thoughts of one answer. `accept` each token that was drawn, then `closing` has to come next, if it is
    not empty. The accepted tokens alone make its state. forced: tokens of a restored answer that are yet to be drawn.

    most    tokens of thoughts; 0: they are closed at once; None: any number
    thinks  the prompt opened them

    A line feed comes before the closing mark, unless the thoughts end with one: so templates write it.
    """

    def __init__(self, format: ChatFormat, tokenizer: "Tokenizer", most: int | None, thinks: bool) -> None:
        self.marks = ThoughtMarks(format, thinks)
        self._most, self._thinks, self.n_tokens = most, thinks, 0
        self.forced: list[int] = []
        self._said: list[int] = []  # up to the end of the thoughts
        self._stream = tokenizer.stream(skip_special=True, shown=shown_tokens(format, tokenizer))
        self._ends_line = False
        mark = format.thoughts.closing if format.thoughts is not None else ""
        self._tokens = {
            ends_line: tokenizer.encode(
                mark if ends_line else f"\n{mark}",
                add_special=False,
                parse_special=True,
                continues=True,
            )
            for ends_line in (True, False)
        }

    @property
    def is_bounded(self) -> bool:
        """Whether thoughts may be too long."""
        return self._most is not None

    @property
    def left(self) -> int | None:
        """Tokens of thoughts that may still be drawn; None: any number, or this is no thought."""
        if self._most is None or not self.marks.is_inside or self.marks.is_over:
            return None
        return max(0, self._most - self.n_tokens)

    @property
    def closing(self) -> list[int]:
        """The tokens that have to be drawn now; often none. In the middle of a character its end is waited for."""
        left = self.left
        if left is None or left:
            return []
        assert self._most is not None
        if not self._stream.is_whole and self.n_tokens < self._most + MOST_WAITED:
            return []
        return list(self._tokens[self._ends_line])

    def accept(self, token: int) -> None:
        """The next token of the answer."""
        if self.marks.is_over:
            return
        self._said.append(token)
        self.n_tokens += self.marks.is_inside
        text = self._stream.push(token)
        if text:
            self._ends_line = text.endswith("\n")
        self.marks.split(text)

    def state(self, forced: Sequence[int]) -> dict[str, Any]:
        """What `resumed` reads; `forced`: what has to follow, and is not drawn yet."""
        return {"most": self._most, "thinks": self._thinks, "said": list(self._said), "forced": list(forced)}

    @classmethod
    def resumed(cls, format: ChatFormat, tokenizer: "Tokenizer", state: object) -> "ThoughtBudget":
        """Brought to where `state` was taken. StateError: it is no such state."""
        given = state if isinstance(state, dict) else {}
        most, thinks = given.get("most"), given.get("thinks")
        said, forced = ([*ids] if isinstance(ids := given.get(key), list) else None for key in ("said", "forced"))
        if (
            (most is not None and type(most) is not int)
            or "most" not in given
            or type(thinks) is not bool
            or said is None
            or forced is None
        ):
            raise StateError("the state's budget of thoughts cannot be read.", remedy=Remedy.WITHOUT_STATE)
        if not all(type(token) is int and 0 <= token < tokenizer.n_vocab for token in [*said, *forced]):
            raise StateError("the state's thoughts have no tokens of this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        budget = cls(format, tokenizer, most, thinks)
        for token in said:
            budget.accept(token)
        budget.forced = forced
        return budget
