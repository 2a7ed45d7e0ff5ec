"""How much a model may think: after so many tokens of thoughts the mark that closes them is drawn for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError

from .format import ChatFormat
from .marks import shown_tokens

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

MOST_WAITED = 3  # tokens for the rest of a character


class ThoughtBudget:
    """Counts the thoughts of one answer. `accept` each token that was drawn, then `closing` has to come next, if it is
    not empty. What it knows follows from the tokens: accepting them again gives the same state. forced: what of a
    restored answer is yet to be drawn.

    most    tokens of thoughts; 0: they are closed as soon as they are open
    thinks  the prompt opened them

    Thoughts begin where a reader (reader.py) sees them begin: with the answer, or where no text has come since the last
    ones. In those that the prompt opened the mark of a call ends the count. A line feed comes before the closing mark,
    unless the thoughts end with one: so templates write it.
    """

    def __init__(self, format: ChatFormat, tokenizer: "Tokenizer", most: int, thinks: bool) -> None:
        thoughts = format.thoughts
        self._opening, self._closing = (thoughts.opening, thoughts.closing) if thoughts is not None else ("", "")
        self._call = format.calls.mark if thinks else ""
        self._most, self._thinks, self.n_tokens = most, thinks, 0
        self.forced: list[int] = []
        self._said: list[int] = []  # up to the end of the thoughts
        self._stream = tokenizer.stream(skip_special=True, shown=shown_tokens(format, tokenizer))
        self._tail = ""  # of the text: what may be the beginning of a mark
        self._is_inside = thinks
        self._is_over = not self._closing  # text or a call has come
        self._ends_line = False
        self._tokens = {
            ends_line: tokenizer.encode(
                self._closing if ends_line else f"\n{self._closing}",
                add_special=False,
                parse_special=True,
                continues=True,
            )
            for ends_line in (True, False)
        }

    @property
    def left(self) -> int | None:
        """Tokens of thoughts that may still be drawn; None: this is no thought."""
        return max(0, self._most - self.n_tokens) if self._is_inside and not self._is_over else None

    @property
    def closing(self) -> list[int]:
        """What has to be drawn now; often nothing. In the middle of a character its end is waited for."""
        left = self.left
        if left is None or left:
            return []
        if not self._stream.is_whole and self.n_tokens < self._most + MOST_WAITED:
            return []
        return list(self._tokens[self._ends_line])

    def accept(self, token: int) -> None:
        """The next token of the answer."""
        if self._is_over:
            return
        self._said.append(token)
        self.n_tokens += self._is_inside
        text = self._stream.push(token)
        if text:
            self._ends_line = text.endswith("\n")
        self._tail += text
        while not self._is_over and (self._leaves() if self._is_inside else self._enters()):
            pass

    def state(self, forced: Sequence[int]) -> dict[str, Any]:
        """What `resumed` reads; `forced`: what has to follow, and is not drawn yet."""
        return {"most": self._most, "thinks": self._thinks, "said": list(self._said), "forced": list(forced)}

    @classmethod
    def resumed(cls, format: ChatFormat, tokenizer: "Tokenizer", state: object) -> "ThoughtBudget":
        """Brought to where `state` was taken. StateError: it is no such state."""
        given = state if isinstance(state, dict) else {}
        most, thinks = given.get("most"), given.get("thinks")
        said, forced = ([*ids] if isinstance(ids := given.get(key), list) else None for key in ("said", "forced"))
        if type(most) is not int or type(thinks) is not bool or said is None or forced is None:
            raise StateError("the state's budget of thoughts cannot be read.", remedy=Remedy.WITHOUT_STATE)
        if not all(type(token) is int and 0 <= token < tokenizer.n_vocab for token in [*said, *forced]):
            raise StateError("the state's thoughts have no tokens of this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        budget = cls(format, tokenizer, most, thinks)
        for token in said:
            budget.accept(token)
        budget.forced = forced
        return budget

    def _enters(self) -> bool:
        """Outside of thoughts: whether the text has come to their beginning, or past what may stand before it."""
        text = self._tail.lstrip()
        for mark in (self._opening, self._closing):
            if mark and text.startswith(mark):
                self._is_inside = mark == self._opening
                self._tail = text[len(mark) :]
                return True
        self._is_over = bool(text) and not any(mark.startswith(text) for mark in (self._opening, self._closing))
        return False

    def _leaves(self) -> bool:
        """In thoughts: whether the text has come to their end."""
        at, call = self._tail.find(self._closing), self._tail.find(self._call) if self._call else -1
        if call >= 0 and (at < 0 or call < at):
            self._is_over = True
            return False
        if at >= 0:
            self._is_inside, self._call = False, ""
            self._tail = self._tail[at + len(self._closing) :]
            return True
        self._tail = self._tail[-max(len(self._closing), len(self._call)) :]
        return False
