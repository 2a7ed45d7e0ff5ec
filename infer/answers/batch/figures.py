"""Counts of a batcher's work. Written by the thread that steps; any thread may read them."""

from collections import Counter
from typing import TYPE_CHECKING

from ..drawing.drawing import GenerationResult

if TYPE_CHECKING:
    from .reuse import Code, Reuse


class Figures:
    """Sums since the start.

    n_prompt, n_drawn            tokens of prompts read; tokens sampled
    prompt_seconds, draw_seconds time of the steps; a step that does both is divided by tokens
    n_passes, n_busy             passes through the model; jobs in all of them, added up
    longest                      tokens of the longest sequence
    n_guesses                    guesses that were verified; n_guessed, n_accepted: their tokens, and the right ones
    n_reused                     tokens of prompts that were not read
    processed                    tokens of prompts read, by reason
    """

    def __init__(self) -> None:
        self.n_prompt = self.n_drawn = self.n_passes = self.n_busy = self.longest = 0
        self.n_guesses = self.n_guessed = self.n_accepted = self.n_reused = 0
        self.prompt_seconds = self.draw_seconds = 0.0
        self.processed: Counter[Code] = Counter()

    def passed(
        self, n_prompt: int, n_answers: int, n_busy: int, longest: int, seconds: float, n_guesses: int = 0
    ) -> None:
        """Counts a step that read n_prompt tokens of prompts and one token of each of n_answers answers, with n_busy
        jobs and n_guesses guesses.
        """
        self.n_guesses += n_guesses
        share = n_prompt / max(1, n_prompt + n_answers)
        self.n_prompt += n_prompt
        self.prompt_seconds += share * seconds
        self.draw_seconds += (1 - share) * seconds
        self.n_passes += 1
        self.n_busy += n_busy
        self.longest = max(self.longest, longest)

    def ended(self, reuse: "Reuse | None", result: GenerationResult) -> None:
        """Counts an ended job. reuse: None if it never joined."""
        self.n_drawn += len(result.ids)
        self.n_guessed += result.guessed
        self.n_accepted += result.accepted
        if reuse is not None:
            self.n_reused += reuse.n_reused
            self.processed.update(dict(reuse.split(result.prompt_tokens)))
