"""A draft's memory of one text: it follows the text, goes back after a wrong guess, and may begin late.

A draft need not read all of a text to guess its next tokens. If the text is longer than its context, or reading it
would cost more than guessing can gain, it reads only a few tokens of the beginning, and the end.
"""

from collections.abc import Sequence

from ...memory.prefix_tree import common_beginning
from ...runner import Runner, Slot

HEAD = 4  # tokens of the beginning that are always read: attention rests on the first ones


class Lane:
    """One text in the draft's memory: its first `_head` tokens, then those from `_start` on.

    Attention is cut back to where a guess was wrong. A recurrent state cannot be: guesses are made in a copy, which
    shares all memory until it writes, and sampled tokens are read in the text's own sequence with the next token.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._text = Slot(runner)
        self._copy = Slot(runner) if runner.memory.is_recurrent else None
        self._head = self._start = 0
        self._n_true = 0  # tokens of `_text` that are known to be in the text
        self.is_free = True

    # --- the text ---
    def common(self, ids: Sequence[int]) -> int:
        """Tokens in memory that a text has at the same positions."""
        return common_beginning(self._text.tokens, [*ids[: self._head], *ids[self._start :]])

    def follow(self, ids: Sequence[int], *, anew: bool = False) -> None:
        """Forgets tokens that are not in this text, which has grown; anew: it is another text."""
        if anew:
            self._n_true = self.common(ids)
        else:
            guessed = self._text.tokens[self._n_true :]
            place = self._place(self._n_true)
            self._n_true += common_beginning(guessed, ids[place : place + len(guessed)])
        # the last token is read again for its logits
        n = min(self._n_true, max(0, self._index(len(ids)) - 1))
        if n < len(self._text.tokens):
            n = self._text.truncate(n)
        self._n_true = n
        if not n:
            self._head = self._start = 0

    def _place(self, n: int) -> int:
        """Index in the text of the n-th token in memory."""
        return n if n < self._head else self._start + n - self._head

    def _index(self, place: int) -> int:
        """Number of tokens in memory if all of the text before index `place` is read."""
        return min(place, self._head) if place < self._start else self._head + place - self._start

    def n_behind(self, ids: Sequence[int]) -> int:
        """Tokens of the text that are not read yet."""
        return len(ids) - self._place(len(self._text.tokens))

    @property
    def n_skipped(self) -> int:
        """Tokens of the text that are never read."""
        return self._start - self._head

    @property
    def room(self) -> int:
        return self._text.room

    def begin_late(self, ids: Sequence[int], n: int) -> None:
        """Forgets everything; the last n tokens of the text are to be read, and the first few."""
        self._text.truncate(0)
        self._n_true = 0
        self._head = min(HEAD, len(ids))
        self._start = max(self._head, len(ids) - n)

    # --- passes ---
    def unread(self, ids: Sequence[int]) -> tuple[Slot, list[int]]:
        """The sequence that reads the text, and the tokens that it has to read before drafting."""
        n = len(self._text.tokens)
        if n < self._head:
            return self._text, [*ids[n : self._head], *ids[self._start :]]
        return self._text, list(ids[self._place(n) :])

    def has_read(self) -> None:
        """Notes that these tokens were read."""
        self._n_true = len(self._text.tokens)

    def drafting(self) -> Slot:
        """The sequence for guessed tokens, which follow all that was read."""
        if self._copy is None:
            return self._text
        self._copy.become(self._text)
        return self._copy

    def close(self) -> None:
        """Frees its memory."""
        self._text.close()
        if self._copy is not None:
            self._copy.close()
