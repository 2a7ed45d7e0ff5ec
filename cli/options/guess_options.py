"""--spec and --draft: how tokens are guessed, and what is said of it, in every command that draws answers."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

GUESSES = (
    "Guess tokens and verify them in one pass; the output stays the same. ngram: guesses from the text so "
    "far; mtp: also guesses by the model's own head."
)


class Spec(StrEnum):
    """How to guess tokens."""

    NONE = "none"
    NGRAM = "ngram"
    MTP = "mtp"


@dataclass(frozen=True, eq=False, repr=False)
class GuessOptions:
    """Who guesses."""

    spec: Annotated[Spec, typer.Option(help=GUESSES)] = Spec.NONE
    draft: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Smaller model with the same vocabulary that guesses tokens; the output stays the same.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether anybody does."""
        return self.spec is not Spec.NONE or self.draft is not None


def guesses_text(accepted: int, guessed: int) -> str:
    """What became of guesses, in brackets; nothing where there were none."""
    return f" ({accepted} of {guessed} guesses came true)" if guessed else ""
