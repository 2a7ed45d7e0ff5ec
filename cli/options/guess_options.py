"""--spec and --draft: how tokens are guessed, and what is said of it, in every command that draws answers."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.loading.options import LoadOptions

GUESSES = (
    "Guess tokens and verify them in one pass, same output: ngram guesses from the text so far, mtp also with the "
    "model's own head for that"
)


class Spec(StrEnum):
    """How to guess tokens."""

    NONE = "none"
    NGRAM = "ngram"
    MTP = "mtp"


@dataclass(frozen=True, eq=False, repr=False)
class GuessOptions:
    """Who guesses."""

    spec: Annotated[Spec, typer.Option(help=f"{GUESSES}.")] = Spec.NONE
    draft: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="A smaller model of the same vocabulary guesses tokens, where that pays; same output."
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether anybody does."""
        return self.spec is not Spec.NONE or self.draft is not None


def loaded_with(model: Path | None, options: "LoadOptions", guessing: GuessOptions) -> "LoadedModel":
    """MODEL, which guesses as it is told where answers are drawn with guesses. UsageError: its file has no head."""
    from hybrid.pipeline import models

    if guessing.spec is Spec.MTP and guessing.draft is not None:
        raise UsageError("--spec mtp and --draft: either the model's own head guesses, or a draft does.")
    made = models.load(model, options, draft=guessing.draft, reporter=console.SCREEN)
    made.runner.guessers.ngrams = guessing.spec is not Spec.NONE
    if guessing.spec is Spec.MTP:
        try:
            _guess_with_head(made)
        except BaseException:
            made.close()
            raise
    return made


def _guess_with_head(model: "LoadedModel") -> None:
    from hybrid.infer.answers.guessing.head_guesser import head_guesser

    helper = head_guesser(model)
    if helper is None:
        raise UsageError(
            f"--spec mtp: {shown(model.path.name)} has no head that guesses tokens ahead, or none that runs here. "
            "`hybrid inspect` shows it as T; `hybrid convert --mtp` keeps it."
        )
    model.runner.guessers.helper = helper


def guesses_text(accepted: int, guessed: int) -> str:
    """What became of guesses, in brackets; nothing where there were none."""
    return f" ({accepted} of {guessed} guesses came true)" if guessed else ""
