"""The texts in a model's slots, as the head that guesses tokens ahead knows them: it reads along, one token later."""

from dataclasses import dataclass, field

import numpy as np

from ...engine.head_passes import HeadPasses, HeadSegment
from ...runner import Slot

COMPARED = 16  # tokens at the end of the read text: if they are the same, the text counts as the same
AT_ONCE = 32  # waiting states above which the head reads them, as in a prompt


@dataclass(eq=False)
class HeadText:
    """A text from token `base` on, the first with a state. Cell i of the head's memory is computed from the state of
    token base + i and from the token after it.

    tokens   from `base` on, as far as the model has read them
    n_cells  cells of the text in memory
    beyond   the token of the last cell, if it is the one after `tokens`
    waiting  states of the tokens without cells, f32 [n_embd] each
    """

    passes: HeadPasses
    slot: Slot
    base: int = 0
    tokens: list[int] = field(default_factory=list)
    n_cells: int = 0
    beyond: int = -1
    waiting: list[np.ndarray] = field(default_factory=list)

    def read(self, states: np.ndarray) -> None:
        """Takes the states, f32 [n, n_embd], of the last tokens of the slot, which the model has just read."""
        ids = self.slot.tokens
        start = len(ids) - len(states)
        if not self._goes_on(start):
            self.base, self.tokens, self.n_cells, self.waiting = start, [], 0, []
        self.goes_on_with(start, ids[start])
        self.tokens += ids[start:]
        self.waiting += list(states)
        while len(self.waiting) > AT_ONCE:
            tokens, given = self._take(min(len(self.waiting) - 1, self.passes.n_ubatch))
            self.run(tokens, given)

    def _goes_on(self, start: int) -> bool:
        """Whether the known text is the slot's text before token `start`."""
        if not self.base < start <= self.base + len(self.tokens):
            return False
        first = max(self.base, start - COMPARED)
        return self.tokens[first - self.base : start - self.base] == self.slot.tokens[first:start]

    def goes_on_with(self, end: int, token: int) -> None:
        """Cuts the known text before token `end`, which is `token`, and the cells and states that do not fit it."""
        n = end - self.base
        same = token == (self.tokens[n] if n < len(self.tokens) else self.beyond)
        del self.tokens[n:]
        if self.n_cells < n or (self.n_cells == n and same):
            del self.waiting[n - self.n_cells :]
            return
        # the state of the last token is lost: its cell, now useless, was computed from it
        self.n_cells, self.waiting = max(0, n - 1), []
        left_out = n - self.n_cells
        self.base += left_out
        del self.tokens[:left_out]

    def rest_with(self, token: int) -> HeadSegment | None:
        """The unread part of the text, which continues with `token`; None if the head knows too little of the text."""
        end = len(self.slot.tokens)
        if not self._goes_on(end):
            return None
        self.goes_on_with(end, token)
        if not self.waiting:
            return None
        self.tokens.append(token)
        tokens, states = self._take(len(self.waiting))
        del self.tokens[-1]
        self.beyond = token
        self._settle(len(tokens))
        return HeadSegment(self.slot.slot, tokens, states)

    def run(self, tokens: list[int], states: np.ndarray) -> None:
        """Computes cells without outputs."""
        self._settle(len(tokens))
        self.passes.run([HeadSegment(self.slot.slot, tokens, states, wanted=False)])

    def _settle(self, n: int) -> None:
        """Cuts the head's memory to the cells before the next n, which drops guesses."""
        self.passes.memory.truncate(self.slot.slot, self.n_cells - n)

    def _take(self, n: int) -> tuple[list[int], np.ndarray]:
        """The next n cells, for which everything is known: tokens, and the states before them, f32 [n, n_embd]."""
        first = self.n_cells + 1
        states, self.waiting = self.waiting[:n], self.waiting[n:]
        self.n_cells += n
        return self.tokens[first : first + n], np.stack(states)
