"""The generation loop: prompt in, text out piece by piece, until something ends it.

answer = generate(seq, ids, sampler, max_tokens=200, stop=["\\n\\n"])
for piece in answer:
    show(piece.text)
answer.result.reason
"""

import time
from collections.abc import Collection, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from ...engine.pass_costs import PassCosts
from ...guessers import Guessers, Place
from ...progress import TokenProgress
from ...text.tokenizer import Tokenizer
from ..sampling import Sampler
from .context_shift import MARGIN, Shiftable, make_room
from .drawing import Drawing, EndReason, GenerationResult, TextPiece

if TYPE_CHECKING:
    from ..chat.thoughts import ThoughtBudget
    from ..constraints import Constraint
    from .text_guesses import TextGuesses


class TextSequence(Shiftable, Place, Protocol):
    """What the loop asks of a sequence (hybrid.infer.Sequence has more)."""

    tokens: list[int]

    @property
    def logits(self) -> np.ndarray | None: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def pass_costs(self) -> PassCosts: ...
    @property
    def guessers(self) -> Guessers: ...
    @property
    def most_verified(self) -> int: ...
    def prefill(
        self, ids: Sequence[int], progress: TokenProgress | None = None, boundaries: Sequence[int] = ()
    ) -> np.ndarray: ...
    def decode(self, token: int) -> np.ndarray: ...
    def verify(self, ids: Sequence[int]) -> np.ndarray: ...
    def take_back(self, n: int) -> None: ...


def generate(
    seq: TextSequence,
    prompt_ids: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int = -1,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    progress: TokenProgress | None = None,
    tokenizer: Tokenizer | None = None,
    boundaries: Sequence[int] = (),
    speculate: bool = False,
    keep: int | None = None,
    constraint: "Constraint | None" = None,
    n_top: int | None = None,
    sampled: bool = False,
    shown: Collection[int] = (),
    budget: "ThoughtBudget | None" = None,
) -> "Generation":
    """Appends the prompt to `seq` and generates after it; nothing happens before the first `next`.

    prompt_ids  may be empty when the sequence has logits (a restored state, an answer to be continued)
    max_tokens  -1: until the context is full; with `keep` for ever
    stop        strings that end the text; they are found across tokens and are not part of it
    ignore_eos  tokens that end an answer are never drawn
    progress    (done, total) while the prompt is processed
    tokenizer   None: the model's own
    boundaries  positions in the whole text that later texts may continue from: see Sequence.prefill
    speculate   guess tokens, by what the model's `guessers` say: the same tokens in fewer passes
    keep        so many tokens at the beginning of the sequence stay when the context is full, and half of the others
                leave it (`Sequence.shift`): see context_shift.kept_tokens. None: a full context ends the answer
    constraint  the form of the answer; it is this answer's own from now on
    n_top       each piece has its logprobs, with those of so many of the likeliest tokens; None: it has not
    sampled     these are of what the token was drawn from, behind the sampler
    shown       special tokens that are part of the answer's text (chat/marks.py)
    budget      of its thoughts; it is this answer's own, too

    UsageError: nothing to generate from, or the prompt does not fit. A KeyboardInterrupt while the model computes ends
    the generation as reason "interrupt"; what was generated up to there is kept.
    """
    tokenizer = tokenizer or seq.tokenizer
    drawing = Drawing(sampler, tokenizer, max_tokens, stop, ignore_eos, n_top, sampled, constraint, shown, budget)
    return Generation(seq, list(prompt_ids), drawing, progress, boundaries, speculate, keep)


class Generation:
    """Iterator over the pieces of the answer. `result` can be read at any time and is complete after the last piece."""

    def __init__(
        self,
        seq: TextSequence,
        prompt: list[int],
        drawing: Drawing,
        progress: TokenProgress | None,
        boundaries: Sequence[int],
        speculate: bool,
        keep: int | None = None,
    ) -> None:
        self.result: GenerationResult = drawing.result
        self._seq, self._prompt, self._drawing = seq, prompt, drawing
        self._progress = progress
        self._boundaries, self._keep = boundaries, keep
        self._guesses: TextGuesses | None = None
        self._speculate = speculate
        self._guess: list[int] = []  # in the sequence already, yet to be drawn
        self._rows: list[np.ndarray] = []  # the logits after each of them
        self._n_guess = 0  # tokens of the guess when it was made; 0: no guess is pending
        self._pieces = self._run()

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> TextPiece:
        return next(self._pieces)

    def close(self) -> None:
        """Ends it early; the text held back for a stop string is added to `result.text`."""
        self._pieces.close()

    def state(self) -> dict[str, Any]:
        """See Drawing: beside the sampler's state and `pending`, what is saved with the sequence."""
        return self._drawing.state()

    def settle(self) -> None:
        """Brings the last drawn token into the sequence: before its state is saved, or when it is to go on unprompted.

        Otherwise that pass through the model is saved: the next prompt can begin with `result.pending`.
        """
        if self.result.pending and self._has_room():
            self._seq.decode(self.result.pending[0])
            self.result.pending = []

    def _run(self) -> Generator[TextPiece, None, None]:
        result = self.result
        try:
            result.reason = yield from self._loop()
        except KeyboardInterrupt:
            pass  # "interrupt", as it began
        except GeneratorExit:
            self._drawing.finish()
            raise
        finally:
            self._end_guess()
            if self._guesses is not None:
                self._guesses.end()
        rest = self._drawing.finish()
        if rest is not None:
            yield rest

    def _loop(self) -> Generator[TextPiece, None, EndReason]:
        """Yields pieces; returns the reason of the end."""
        seq, drawing, result = self._seq, self._drawing, self.result
        begin = time.perf_counter()
        drawing.begin(self._prompt)
        try:
            logits = self._read_prompt()
        finally:
            result.prompt_seconds = time.perf_counter() - begin
        if self._speculate:
            from .text_guesses import TextGuesses

            self._guesses = TextGuesses(seq.tokens, seq.pass_costs, seq.guessers, seq)
        while (reason := drawing.ended) is None:
            piece = drawing.draw(logits)
            if result.ttft is None:
                result.ttft = time.perf_counter() - begin
            if piece is None:
                continue
            yield piece
            if drawing.ended is not None:
                continue
            if not self._has_room():
                return "context"
            before = time.perf_counter()
            assert piece.id is not None
            logits = self._next(piece.id)
            result.gen_seconds += time.perf_counter() - before
            result.gen_tokens += 1
        return reason

    def _next(self, token: int) -> np.ndarray:
        """The logits after `token`, which has been guessed already, or goes through the model, maybe with a guess."""
        seq, result, guesses = self._seq, self.result, self._guesses
        if self._guess and self._guess[0] == token:
            result.pending = []
            result.accepted += 1
            self._guess.pop(0)
            if guesses is not None:
                guesses.extend(token)
                guesses.came_true()
            return self._rows.pop(0)
        self._end_guess()
        room, left = seq.room - self._margin, self._drawing.left
        room = max(0, (room if left is None else min(room, left)) - 1)
        guess: list[int] = []
        if guesses is not None:
            guesses.extend(token)
            guess = guesses.guess(min(room, seq.most_verified - 1), self._drawing)
        if self._drawing.foresees:
            guess = self._drawing.foreseen(guess, min(room, seq.most_verified - 1))
        past, start = seq.n_past, time.perf_counter()
        result.passes += 1
        try:
            rows = seq.verify([token, *guess]) if guess else [seq.decode(token)]
        finally:
            if seq.n_past > past:  # an interrupt may come before or after
                result.pending = []
        if guesses is not None:
            guesses.timed(1 + len(guess), time.perf_counter() - start)
        if not guess:
            return rows[0]
        result.guessed += len(guess)
        result.forced += self._drawing.is_forced * len(guess)
        self._guess, self._rows, self._n_guess = guess, list(rows[1:]), len(guess)
        return rows[0]

    def _end_guess(self) -> None:
        """What was guessed and not drawn is taken back."""
        if self._n_guess:
            self._seq.take_back(len(self._guess))
            self._guess, self._rows, self._n_guess = [], [], 0

    @property
    def _margin(self) -> int:
        return 0 if self._keep is None else MARGIN

    def _has_room(self) -> bool:
        """Whether another token fits, after what leaves the context for it."""
        if self._seq.room + len(self._guess) <= self._margin:
            self._end_guess()
            self._shift(1 + self._margin)
        return self._seq.room + len(self._guess) > 0

    def _shift(self, n: int) -> None:
        """Where there is no room for n tokens, the oldest ones leave the context, as far as that helps."""
        if self._keep is not None:
            self.result.discarded += make_room(self._seq, n, self._keep)

    def _read_prompt(self) -> np.ndarray:
        if self._prompt:
            self._shift(len(self._prompt))
            if self._progress is not None:
                self._progress(0, len(self._prompt))
            logits = self._seq.prefill(self._prompt, self._progress, self._boundaries)
            self.result.prompt_tokens = len(self._prompt)
            return logits
        if self._seq.logits is None:
            raise UsageError("the prompt is empty and nothing came before it. Give some text to start from.")
        return self._seq.logits


__all__ = ["EndReason", "Generation", "GenerationResult", "TextPiece", "generate"]
