"""What a head that guesses tokens ahead knows of the texts in a model's slots: it reads along, a token behind."""

from dataclasses import dataclass, field

import numpy as np

from ...engine.head_passes import HeadPasses, HeadSegment
from ...runner import Slot

COMPARED = 16  # tokens at the end of what was read: where they are the same, the text is taken to be
AT_ONCE = 32  # states that wait are given to the head when there are so many: a prompt's


@dataclass(eq=False)
class HeadText:
    """A text from token `base` on, where states were at hand first. Cell i of the head's memory is made of the state of
    token base + i and of the token after it.

    tokens   from `base` on, as far as the model has read them
    n_cells  cells that are made of the text
    beyond   the token of the last cell where it is the one behind `tokens`
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
        """The slot has just got the tokens of these states, f32 [n, n_embd]: they are its last ones."""
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
        """Whether what is known is the slot's text before token `start`."""
        if not self.base < start <= self.base + len(self.tokens):
            return False
        first = max(self.base, start - COMPARED)
        return self.tokens[first - self.base : start - self.base] == self.slot.tokens[first:start]

    def goes_on_with(self, end: int, token: int) -> None:
        """The text is what is known before token `end`, and then this one."""
        n = end - self.base
        same = token == (self.tokens[n] if n < len(self.tokens) else self.beyond)
        del self.tokens[n:]
        if self.n_cells < n or (self.n_cells == n and same):
            del self.waiting[n - self.n_cells :]
            return
        # the state of the last token went into a cell that is of no use now: there will be none for it
        self.n_cells, self.waiting = max(0, n - 1), []
        left_out = n - self.n_cells
        self.base += left_out
        del self.tokens[:left_out]

    def rest_with(self, token: int) -> HeadSegment | None:
        """What the head has not read yet of the text, which goes on with `token`; None: it knows too little of it."""
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
        """Cells that nothing is wanted of."""
        self._settle(len(tokens))
        self.passes.run([HeadSegment(self.slot.slot, tokens, states, wanted=False)])

    def _settle(self, n: int) -> None:
        """The head's memory has no guesses any more, and not yet the last n cells, which are made next."""
        self.passes.memory.truncate(self.slot.slot, self.n_cells - n)

    def _take(self, n: int) -> tuple[list[int], np.ndarray]:
        """The next n cells, of which all is known: tokens, and the states before them, f32 [n, n_embd]."""
        first = self.n_cells + 1
        states, self.waiting = self.waiting[:n], self.waiting[n:]
        self.n_cells += n
        return self.tokens[first : first + n], np.stack(states)
