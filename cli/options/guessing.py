"""--spec: how tokens are guessed, and what is said of it, in every command that draws answers."""

from enum import StrEnum

GUESSES = "Guess tokens and verify them in one pass, same output: ngram guesses from the text so far"


class Spec(StrEnum):
    """How to guess tokens."""

    NONE = "none"
    NGRAM = "ngram"


def guesses_text(accepted: int, guessed: int) -> str:
    """What became of guesses, in brackets; nothing where there were none."""
    return f" ({accepted} of {guessed} guesses came true)" if guessed else ""
