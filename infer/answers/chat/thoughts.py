"""Tracks the thoughts of an answer and limits their length: at the limit, their closing tag is forced."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError

from .format import ChatFormat
from .marks import shown_tokens

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

MOST_WAITED = 3  # tokens to wait for the end of a character


class ThoughtMarks:
    """Separates thoughts and their tags from the rest of an answer's text, which arrives in pieces of any size.

    thinks  the prompt opened thoughts

    Thoughts begin where the reader (reader.py) sees them begin: at the start of the answer, or after other thoughts
    without text in between. The tag of a call ends thoughts that the prompt opened.
    is_inside: the text so far ends in thoughts; is_over: text or a call has come, no thoughts can follow.
    """

    def __init__(self, format: ChatFormat, thinks: bool) -> None:
        thoughts = format.thoughts
        self._opening, self._closing = (thoughts.opening, thoughts.closing) if thoughts is not None else ("", "")
        self._call = format.calls.mark if thinks else ""
        self._held = ""  # outside thoughts: text that may be the beginning of a tag
        self._tail = ""  # inside: the end of the text, where a tag may have begun
        self.is_inside, self.is_over = thinks, not self._closing

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Takes more text. Returns the stretches that are certain now, with True for thoughts and their tags."""
        parts: list[tuple[str, bool]] = []
        while text and not self.is_over:
            text = self._inside(text, parts) if self.is_inside else self._outside(text, parts)
        return [*parts, (text, False)] if text else parts

    def rest(self) -> str:
        """Returns the text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def copy(self) -> "ThoughtMarks":
        """A copy of the state for the text that comes next, without the held text."""
        other = copy(self)
        other._held = ""
        return other

    def _outside(self, text: str, parts: list[tuple[str, bool]]) -> str:
        """Takes a tag if one comes next; returns the rest of the text."""
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
    """Limits the thoughts of one answer. Pass each sampled token to `accept`; if `closing` is not empty, its tokens
    must come next.

    most    limit on the tokens of thoughts; 0: they are closed at once; None: no limit
    thinks  the prompt opened thoughts
    forced  tokens of a restored answer that are not sampled yet

    The accepted tokens determine the state. A line feed is put before the closing tag, as templates do, unless the
    thoughts end with one.
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
        """Whether the thoughts have a limit."""
        return self._most is not None

    @property
    def left(self) -> int | None:
        """Tokens of thoughts that may still be sampled; None: no limit, or not inside thoughts."""
        if self._most is None or not self.marks.is_inside or self.marks.is_over:
            return None
        return max(0, self._most - self.n_tokens)

    @property
    def closing(self) -> list[int]:
        """The tokens that must come now; often empty. In the middle of a character, its end is awaited first."""
        left = self.left
        if left is None or left:
            return []
        assert self._most is not None
        if not self._stream.is_whole and self.n_tokens < self._most + MOST_WAITED:
            return []
        return list(self._tokens[self._ends_line])

    def accept(self, token: int) -> None:
        """Takes the next token of the answer."""
        if self.marks.is_over:
            return
        self._said.append(token)
        self.n_tokens += self.marks.is_inside
        text = self._stream.push(token)
        if text:
            self._ends_line = text.endswith("\n")
        self.marks.split(text)

    def state(self, forced: Sequence[int]) -> dict[str, Any]:
        """The state for `resumed`. forced: the tokens that must follow and are not sampled yet."""
        return {"most": self._most, "thinks": self._thinks, "said": list(self._said), "forced": list(forced)}

    @classmethod
    def resumed(cls, format: ChatFormat, tokenizer: "Tokenizer", state: object) -> "ThoughtBudget":
        """The budget at the time of `state`. Raises StateError if `state` is not valid."""
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
            raise StateError("the state's thoughts have tokens outside this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        budget = cls(format, tokenizer, most, thinks)
        for token in said:
            budget.accept(token)
        budget.forced = forced
        return budget
