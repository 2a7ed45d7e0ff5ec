"""How much a model may think: after so many tokens of thoughts the mark that closes them is drawn for it."""

from typing import TYPE_CHECKING

from .format import ChatFormat
from .marks import shown_tokens

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

MOST_WAITED = 3  # tokens for the rest of a character


class ThoughtBudget:
    """Counts the thoughts of one answer. `accept` each token that was drawn, then `closing` has to come next, if it is
    not empty. What it knows follows from the tokens: accepting them again gives the same state.

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
        self._most, self.n_tokens = most, 0
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
        self.n_tokens += self._is_inside
        text = self._stream.push(token)
        if text:
            self._ends_line = text.endswith("\n")
        self._tail += text
        while not self._is_over and (self._leaves() if self._is_inside else self._enters()):
            pass

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
