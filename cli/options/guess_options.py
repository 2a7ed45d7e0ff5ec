"""--spec and --draft: how tokens are guessed, in every command that generates answers."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

GUESSES = (
    "Guess tokens and verify them in one pass, where that pays; the output stays the same. auto, ngram: "
    "guesses from the text so far; mtp: also guesses by the model's own head; none: no guesses."
)


class Spec(StrEnum):
    """Methods of guessing tokens. AUTO: the methods that never cost more than they gain, as measured."""

    AUTO = "auto"
    NONE = "none"
    NGRAM = "ngram"
    MTP = "mtp"


@dataclass(frozen=True, eq=False, repr=False)
class GuessOptions:
    """The methods and models that guess tokens."""

    spec: Annotated[Spec, typer.Option(help=GUESSES)] = Spec.AUTO
    draft: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Smaller model with the same vocabulary that guesses tokens; the output stays the same.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether tokens are guessed."""
        return self.spec is not Spec.NONE or self.draft is not None


def guesses_text(accepted: int, guessed: int) -> str:
    """` (N of M guesses came true)`, or "" if nothing was guessed."""
    return f" ({accepted} of {guessed} guesses came true)" if guessed else ""
